"""A backend tried with many calls, each alone, in a process that may die."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from queue import Empty, Queue
from typing import Any

import torch

from torch_ir.arguments import require_list, require_seconds
from torch_ir.backends.backend_registry import require_backend
from torch_ir.backends.partition import Partitioner
from torch_ir.backends.protocol import DelegateBackend
from torch_ir.debug.comparing.compared import compare
from torch_ir.debug.comparing.sources import BackendSource, part_of, source_of
from torch_ir.debug.conformance.operator_cases import operator_cases, torch_takes
from torch_ir.debug.conformance.scorecard import CaseResult, Conformance, Status
from torch_ir.debug.fuzzing.random_programs import operators_matching
from torch_ir.errors import CompileError, ExecutionError, Raised, attempt, error_text
from torch_ir.infer.dispatch import unwarned
from torch_ir.ir import IR
from torch_ir.passes.operator_calls.case_set import Case, CaseSet
from torch_ir.passes.requirements import is_functional
from torch_ir.steps import steps

_STATUS: Mapping[str, Status] = {"numeric": "wrong"}


def conform(
    backend: str | DelegateBackend,
    *,
    operators: Sequence[str] | None = None,
    dtypes: Sequence[str] | None = None,
    cases: CaseSet | str | PathLike[str] | None = None,
    seconds: float = 10.0,
) -> Conformance:
    """Try a backend with many calls, each a program of its own, and judge what it makes of them.

    What is compiled for a call is called twice, and once more on operands that lie otherwise in
    memory. A backend that is given by name or file runs in a process of its own, which is replaced
    when it dies; one that is given as an object runs in this process.

    Args:
        backend: The backend.
        operators: Overloads to try, with ``*`` as in file names.
        dtypes: Dtypes of the first operand.
        cases: What to try; calls of the core operators if None.
        seconds: How long one case may take in a process of its own.

    Raises:
        InvalidIRError: There is no such operator.
        ExecutionError: There is no such backend, or it cannot be loaded.
        OptionalDependencyError: The package that it needs is not installed.
        SerializationError: The cases cannot be read.
    """
    if isinstance(backend, str) and ":" not in backend:
        require_backend(backend)
    require_seconds(seconds)
    require_list(operators, "operators", str)
    require_list(dtypes, "dtypes", str)
    if cases is None:
        chosen = operator_cases(operators, dtypes)
    else:
        given = cases if isinstance(cases, CaseSet) else CaseSet.load(cases)
        chosen = CaseSet(tuple(_chosen(given, operators, dtypes)))
    if isinstance(backend, str):
        rows = list(_in_worker(backend, chosen, seconds))
        name = backend
    else:
        rows = [result_of(case, backend) for case in chosen]
        name = backend.name
    return Conformance(name, tuple(rows))


def _chosen(
    given: CaseSet, operators: Sequence[str] | None, dtypes: Sequence[str] | None
) -> Iterator[Case]:
    patterns = None if operators is None else tuple(operators)
    wanted = operators_matching(patterns, tuple(dict.fromkeys([c.operator for c in given])))
    for case in given:
        if case.operator in wanted and (dtypes is None or _dtype(case) in dtypes):
            yield case


def _dtype(case: Case) -> str:
    operands = (*case.inputs, *case.outputs)
    return operands[0].dtype if operands else ""


def result_of(case: Case, backend: str | DelegateBackend) -> CaseResult:
    """Return what a backend makes of one case."""
    with unwarned():
        return _result(case, *_judged(case, backend))


def _result(case: Case, status: Status, reason: str) -> CaseResult:
    models = tuple(dict.fromkeys([origin.model for origin in case.origins]))
    return CaseResult(case.operator, case.id, _dtype(case), status, reason, models)


def _judged(case: Case, backend: str | DelegateBackend) -> tuple[Status, str]:
    source = source_of(backend)
    tensors, sizes = case.tensors(), case.sizes()
    program, others = case.program, list[Sequence[Any]]()
    if isinstance(source, BackendSource):
        if not is_functional(program):
            return "unsupported", "it writes to memory, and backends are given what does not"
        partition = Partitioner(source.backend)(program)
        if not partition.subgraphs:
            return "unsupported", next(iter(partition.reasons.values()), "it takes nothing")
        body = part_of(program, program.nodes, program.nodes[0].outputs)
        values = dict(zip(program.input_names, tensors, strict=True))
        made = attempt(source.call, body, values, sizes)
        if isinstance(made, Raised):
            refused = isinstance(made.error, CompileError)
            return "unsupported" if refused else "error", error_text(made.error)
        laid_out = tuple(map(_laid_out, tensors))
        others = [laid_out] if torch_takes(program, laid_out, sizes) else []
    status, reason = _compared(program, tensors, backend, sizes, others)
    special = case.tensors(special=True) if status == "pass" and _is_plain(case) else ()
    if special and torch_takes(program, special, sizes):
        status, reason = _compared(program, special, backend, sizes)
        reason = reason and f"with NaN, infinities and extremes: {reason}"
    return status, reason


def _is_plain(case: Case) -> bool:
    """Whether a case is tried with special numbers too; of NaN, torch defines no mode."""
    is_plain = any(origin.model == "plain" for origin in case.origins)
    return is_plain and case.operator != "aten.mode.default"


_SAMPLES = ("", "where operands lie otherwise in memory: ")


def _laid_out(tensor: torch.Tensor) -> torch.Tensor:
    """The same values, not side by side and in another order, behind the start of a storage."""
    memory = tensor.new_empty((*reversed(tensor.shape), 2))
    return memory[..., 1].permute(tuple(reversed(range(tensor.dim())))).copy_(tensor)


def _compared(
    program: IR,
    tensors: Sequence[Any],
    backend: Any,
    sizes: Mapping[str, int],
    others: Sequence[Sequence[Any]] = (),
) -> tuple[Status, str]:
    """Judge two calls alike, and one on other strides, of what was compiled for it."""
    asked: dict[str, Any] = {"symbols": sizes, "mode": "isolated"}
    for against in ("reference", "eager"):
        report = compare(
            program, {}, tensors, run=backend, against=against, samples=others, **asked
        )
        first = report.first
        if first is not None and first.sample == 1:  # torch itself may read an operand's strides
            alike = attempt(compare, program, {}, others[0], run="eager", against=against, **asked)
            first = None if isinstance(alike, Raised) or alike.first is not None else first
        if first is not None:
            reason = f"{_SAMPLES[first.sample]}{first.reason}"
            return _STATUS.get(first.kind, first.kind), reason  # type: ignore[return-value]  # kinds are statuses
        if report.verdict == "agree":
            break
    return "pass", ""


# -- a process of its own -------------------------------------------------------------------------

_IMPORTING = 60.0  # seconds until torch and the backend are imported
_WORKER = "from torch_ir.debug.conformance.conforming import work; work()"


def work() -> None:
    """Judge cases that are read from standard input, one JSON document a line.

    A line without a case asks whether the backend can be loaded.
    """
    for line in sys.stdin:
        request = json.loads(line)
        if "case" in request:
            found = result_of(Case.from_dict(request["case"]), request["backend"])
            told = {"status": found.status, "reason": found.reason}
        else:
            made = attempt(source_of, request["backend"])
            is_raised = isinstance(made, Raised)
            told = {"status": "error" if is_raised else "pass", "reason": ""}
            if is_raised:
                told["reason"] = error_text(made.error)
        sys.stdout.write(f"\n\x1e{json.dumps(told)}\n")  # below what the backend printed
        sys.stdout.flush()


class _Worker:
    """One process, and the lines that it writes."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(  # noqa: S603  # our own interpreter
            [sys.executable, "-W", "ignore", "-c", _WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.lines: Queue[str | None] = Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            if line.startswith("\x1e"):
                self.lines.put(line[1:])
        self.lines.put(None)

    def ask(self, request: dict[str, Any], seconds: float) -> tuple[Status, str]:
        """Return what came of a case."""
        try:
            assert self.process.stdin is not None  # noqa: S101  # it is a pipe
            self.process.stdin.write(f"{json.dumps(request)}\n")
            self.process.stdin.flush()
            line = self.lines.get(timeout=seconds)
        except Empty:
            self.end()
            return "timeout", f"no answer within {seconds:g} s"
        except OSError:
            line = None
        if line is None:
            code = self.process.wait()
            return "crash", f"signal {-code}" if code < 0 else f"exit status {code}"
        told = json.loads(line)
        return told["status"], told["reason"]

    def end(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()


def _in_worker(backend: str, cases: CaseSet, seconds: float) -> Iterator[CaseResult]:
    worker = _Worker()
    first = False
    try:
        status, reason = worker.ask({"backend": backend}, seconds + _IMPORTING)
        if status != "pass":
            raise ExecutionError(f"the backend {backend!r} cannot be loaded: {reason}")
        for case in steps(cases.cases):
            if worker.process.poll() is not None:
                worker, first = _Worker(), True
            more = _IMPORTING if first else 0.0
            request = {"case": case.to_dict(), "backend": backend}
            yield _result(case, *worker.ask(request, seconds + more))
            first = False
    finally:
        worker.end()
