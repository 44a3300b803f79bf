"""Backends tried with random programs, whose meaning is known."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from torch_ir.arguments import require_integer, require_seconds
from torch_ir.backends.protocol import DelegateBackend
from torch_ir.debug.comparing.compared import compare
from torch_ir.debug.comparing.comparison import NodeDivergence
from torch_ir.debug.comparing.sources import BackendSource, Reader, source_of
from torch_ir.debug.fuzzing.fuzz_report import FuzzFinding, FuzzReport
from torch_ir.debug.fuzzing.random_programs import RandomProgram, random_program
from torch_ir.debug.reference.denotation import REFUSED
from torch_ir.debug.shrinking.reduced import COMPARE, VALIDATE
from torch_ir.debug.shrinking.reduction import reduce
from torch_ir.debug.validate import validate
from torch_ir.debug.validation import Divergence
from torch_ir.errors import Raised, TorchIRError, attempt, error_text, first_line
from torch_ir.infer.dispatch import unwarned
from torch_ir.ir import IR

_MODES = ("accumulated", "both")
_MEANING = ("reference", "denotation")
Tensors = Mapping[str, torch.Tensor]
_Key = tuple[str, str, str]


def fuzz(
    backend: str | DelegateBackend,
    *,
    seed: int = 0,
    programs: int | None = None,
    seconds: float | None = None,
    operators: Sequence[str] | None = None,
    dtypes: Sequence[str] | None = None,
    against: Reader = "reference",
    nodes: int = 10,
    out: str | PathLike[str] | None = None,
) -> FuzzReport:
    """Try a backend with random programs; reduce and report what it gets wrong.

    A divergence is looked at twice, made small, and told once for each operator, kind and class
    of dtypes.

    Args:
        backend: The backend; ``"aten"`` for this package's own executor.
        seed: That of the first program; the next has the next.
        programs: How many; 100 if neither this nor ``seconds`` is given.
        seconds: When to stop.
        operators: Overloads to call, with ``*`` as in file names.
        dtypes: Dtypes of the programs.
        against: What says what is right.
        nodes: How many nodes each program has.
        out: A folder for the findings, each as :func:`reduce` writes it.

    Raises:
        InvalidIRError: There is no such operator or backend, or a number is out of range.
    """
    require_integer(seed, "seed")
    if programs is not None:
        require_integer(programs, "programs", 0)
    if seconds is not None:
        require_seconds(seconds)
    source = source_of(backend)
    trial = _Trial(backend, against, is_delegate=isinstance(source, BackendSource))
    limit = 100 if programs is None and seconds is None else programs
    start = time.monotonic()
    for tried in count():
        is_over = seconds is not None and time.monotonic() - start > seconds
        if is_over or tried == limit:
            break
        with unwarned():
            program = random_program(seed + tried, nodes=nodes, operators=operators, dtypes=dtypes)
            found = trial.look(program)
        if out is not None:
            for finding in found:
                finding.reduced.save(Path(out) / finding.name)
    return trial.report(source.name, time.monotonic() - start)


class _Trial:
    def __init__(self, backend: Any, against: Reader, *, is_delegate: bool):
        self.backend, self.against, self.is_delegate = backend, against, is_delegate
        self.findings: dict[_Key, FuzzFinding] = {}
        self.operators, self.dtypes = Counter[str](), Counter[str]()
        self.refused = Counter[str]()
        self.programs = 0
        self._is_own = backend == "aten" and against in _MEANING

    def look(self, program: RandomProgram) -> list[FuzzFinding]:
        """Try a program; return what is new about it."""
        self.programs += 1
        for node in program.ir.nodes:
            self.operators[node.op_type] += 1
            self.dtypes.update([meta.dtype for meta in node.outputs])
        case = program.ir, program.weights, program.inputs
        try:
            found = self._wrong(*case)
            again = self._wrong(*case) if found else {}
        except TorchIRError as error:  # what no reader runs is no finding
            self.refused[first_line(error)[:60]] += 1
            return []
        new = [key for key in found if key in again and key not in self.findings]
        self.findings |= {key: self._reduced(program, key) for key in new}
        return [self.findings[key] for key in new]

    def _wrong(
        self, ir: IR, weights: Tensors, inputs: Sequence[Any]
    ) -> dict[_Key, NodeDivergence]:
        """What is wrong: with a delegate as a whole, before each node is compiled alone."""
        if self._is_own:
            own = self._first_of_own(ir, weights, inputs)
            return {} if own is None else {_key(ir, own): own}
        found: tuple[NodeDivergence, ...] = ()
        for mode in _MODES if self.is_delegate else _MODES[-1:]:
            found = compare(
                ir, weights, inputs, run=self.backend, against=self.against, mode=mode
            ).divergences
            if not found:
                break
        first: dict[_Key, NodeDivergence] = {}
        for each in found:
            first.setdefault(_key(ir, each), each)
        return first

    def _first_of_own(
        self, ir: IR, weights: Tensors, inputs: Sequence[Any]
    ) -> NodeDivergence | None:
        """What this package's own run does wrong, each node on the values of that run.

        One run sees all: what each node makes, what it writes, and where its memory is. A random
        program runs in torch call by call, so that what it raises is a fault too.
        """
        report = attempt(validate, ir, weights, inputs, against=("denotation",))
        if isinstance(report, Raised):
            return _as_raised(ir, report.error)
        for found in report.divergences:
            if not found.reason.startswith(REFUSED):
                return _as_written(ir, found)
            self.refused[found.reason[:60]] += 1
        return None

    def _reduced(self, program: RandomProgram, key: _Key) -> FuzzFinding:
        """The same failure in a smaller program: of that operator, kind and class of dtypes."""

        def oracle(ir: IR, weights: Tensors, inputs: Sequence[torch.Tensor]) -> str | None:
            try:
                told = self._wrong(ir, weights, inputs).get(key)
            except TorchIRError:
                return None
            return None if told is None else told.failure

        name = self.backend if isinstance(self.backend, str) else self.backend.name
        compared = COMPARE.format(run=name, against=str(self.against))
        script = VALIDATE if self._is_own else compared
        small = reduce(program.ir, program.weights, program.inputs, oracle)
        small = replace(small, script=script)
        first = self._wrong(small.ir, small.weights, small.inputs)[key]
        operator, kind, dtypes = key
        return FuzzFinding(small, kind, operator, dtypes, program.seed, first)

    def report(self, name: str, seconds: float) -> FuzzReport:
        """What came of it."""
        found = tuple(self.findings.values())
        counts = (dict(self.operators), dict(self.dtypes), dict(self.refused))
        return FuzzReport(name, self.programs, found, *counts, seconds)


def _as_raised(ir: IR, error: BaseException) -> NodeDivergence:
    """What a run raised, as a comparison tells it; of the last node, if it names none."""
    node = ir.by_name.get(getattr(error, "node", None) or "") or ir.nodes[-1]
    place = str(node.location or "")
    value = node.outputs[0].name if node.outputs else node.name
    told = (node.name, node.op_type, value, place, "error", "isolated", (node.name,))
    return NodeDivergence(*told, reason=error_text(error))


def _as_written(ir: IR, found: Divergence) -> NodeDivergence:
    """What validation tells of a program that writes, as a comparison tells it."""
    node = ir.by_name.get(found.node) or ir.nodes[-1]
    told = (node.name, node.op_type, found.value, found.location, "numeric", "isolated")
    return NodeDivergence(*told, (node.name,), reason=found.reason)


def _key(ir: IR, found: NodeDivergence) -> _Key:
    """What tells findings apart."""
    node = ir.by_name.get(found.node)
    dtype = node.outputs[0].dtype if node is not None and node.outputs else ""
    classes = {"float16": "half", "bfloat16": "half", "bool": "bool"}
    kinds = ("float", "complex")
    known = classes.get(dtype) or next((k for k in kinds if dtype.startswith(k)), "integer")
    return found.operator, found.kind, known
