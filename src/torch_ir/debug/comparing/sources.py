"""Sources of values: whatever can run a part of a program on given values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast

import numpy as np
import torch

from torch_ir.backends.backend_registry import Runner, instance_of
from torch_ir.backends.delegate import function_of, sizes_of
from torch_ir.backends.delegating import DelegatingExecutor
from torch_ir.backends.protocol import DelegateBackend, Delegated, compiled_by
from torch_ir.debug.capture import Captured
from torch_ir.debug.judging.backends import backend_of
from torch_ir.debug.reference.denotation import meaning_of
from torch_ir.debug.reference.eager_call import bind, call_plainly
from torch_ir.debug.reference.strides import part_reads_memory
from torch_ir.debug.tensor_comparison import compare_tensors
from torch_ir.errors import (
    BackendError,
    ExecutionError,
    InvalidIRError,
    TorchIRError,
    closest_file,
    first_line,
    raised_as,
)
from torch_ir.executor import ExecGraph, IRExecutor
from torch_ir.executor.state import written_buffers
from torch_ir.ir import IR, Constant, OpNode, TensorMeta
from torch_ir.ir.expressions import Number
from torch_ir.ir.queries import dead_after, external_keys
from torch_ir.passes.common_subexpressions import is_repeatable
from torch_ir.semantics.denote import denote
from torch_ir.serde.files import is_pipe
from torch_ir.serde.programs import read_program
from torch_ir.serde.storage import IR_SUFFIXES
from torch_ir.torch_api import constant_tensors
from torch_ir.torch_memory import copied
from torch_ir.weights import check_weights

Reader: TypeAlias = str | PathLike[str] | DelegateBackend | ExecGraph | Runner | Captured | IR
"""What produces values: ``"aten"``, ``"eager"``, ``"reference"``, a backend or its name,
``FILE.py:NAME``, a compiled graph or runner, captured values or their file, or a lowered program
or its file."""

Values = Mapping[str, torch.Tensor]
Symbols = Mapping[str, Number]


class PartSource(Protocol):
    """Runs parts of a program."""

    @property
    def name(self) -> str:
        """What a report calls it."""
        ...

    def call(self, body: IR, values: Values, symbols: Symbols) -> Sequence[torch.Tensor]:
        """Return the results of a part: a program without weights, on values by name."""
        ...


def part_of(program: IR, nodes: Sequence[OpNode], returned: Sequence[TensorMeta]) -> IR:
    """Return some nodes as a program of their own, which takes weights as inputs too."""
    return function_of(program, nodes, returned, "part", "part").replace(metadata={})


def _sizes(body: IR, symbols: Symbols) -> dict[str, Number]:
    """The sizes that a part takes beside tensors, by symbol."""
    return {size.text: size.evaluate(symbols) for size in sizes_of(body)}


@dataclass(frozen=True)
class TorchSource:
    """torch's operators, called one by one."""

    name: str = "eager"

    def call(self, body: IR, values: Values, symbols: Symbols) -> Sequence[torch.Tensor]:
        """Run a part with torch."""
        return self.run(body, body.nodes, body.graph_outputs, values, symbols)

    def run(
        self,
        program: IR,
        nodes: Sequence[OpNode],
        returned: Sequence[TensorMeta],
        values: Values,
        symbols: Symbols,
    ) -> list[torch.Tensor]:
        """Return what torch makes of some nodes, each value freed after its last use."""
        known, inside = dict(values), dict(symbols)
        dead = dead_after(nodes, {meta.name for meta in returned})
        for node in nodes:
            known |= self.results(program, node, known, inside)
            for name in dead.get(node.name, ()):
                del known[name]
        return [known[meta.name] for meta in returned]

    def results(
        self, program: IR, node: OpNode, values: Values, symbols: dict[str, Number]
    ) -> dict[str, torch.Tensor]:
        """Return what torch makes of one node of a program, by name, and note what it binds.

        It gets copies, unless it is known to leave its inputs as they are.
        """
        given = [values[meta.name] for meta in node.inputs]
        given = given if is_repeatable(program, node) else copied(given)
        device = given[0].device if given else torch.device("cpu")
        with (
            torch.no_grad(),
            raised_as(
                lambda error: ExecutionError(f"%{node.name}: {first_line(error)}", node=node.name),
                passing=(TorchIRError,),
            ),
        ):
            made = call_plainly(node, given, symbols, program.functions, device)
        bind(node, made, symbols)
        return {meta.name: made[meta.producer_output_idx] for meta in node.outputs}


@dataclass(frozen=True)
class ReferenceSource:
    """The denotation; torch for what has none, and for what strides of values decide."""

    name: str = "reference"

    def call(self, body: IR, values: Values, symbols: Symbols) -> Sequence[torch.Tensor]:
        """Evaluate a part."""
        meaning = meaning_of(body.replace(signature=None))
        if isinstance(meaning, str) or part_reads_memory(body, values):
            return TorchSource().call(body, values, symbols)
        inputs = [values[meta.name] for meta in body.graph_inputs]
        with np.errstate(all="ignore"):
            made = denote(meaning.ir, {}, inputs, symbols=symbols)
        return [Constant.from_numpy(array).torch() for array in made]


_Ends: TypeAlias = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]


def _ends(body: IR) -> _Ends:
    """What tells a part from others of one program: nodes, inputs and outputs, in order."""
    return tuple([node.name for node in body.nodes]), body.input_names, body.output_names


@dataclass
class BackendSource:
    """A backend that compiles parts of a program.

    Attributes:
        backend: The backend.
        compiled: What it made of parts, by their nodes and outputs.
        ready: What it made of a runner's delegates, by their nodes, inputs and outputs.
        held: Tensors that are the same in every call, by name.
    """

    backend: DelegateBackend
    compiled: dict[Any, Delegated] = field(default_factory=dict[Any, Delegated])
    ready: dict[_Ends, Delegated] = field(default_factory=dict["_Ends", Delegated])
    held: Values = field(default_factory=dict[str, torch.Tensor])

    @property
    def name(self) -> str:
        """The backend's name."""
        return self.backend.name

    def hold(self, program: IR, payload: Values) -> None:
        """Take the weights and constants that the program does not write as fixed."""
        written = written_buffers(program)
        fixed = {name: tensor for name, tensor in payload.items() if name not in written}
        self.held = {**fixed, **self.held} if self.ready else fixed

    def call(self, body: IR, values: Values, symbols: Symbols) -> Sequence[torch.Tensor]:
        """Compile a part and run it; what the backend raises comes through.

        Raises:
            BackendError: It writes to what it is given.
        """
        names = tuple([node.name for node in body.nodes])
        held = {n: self.held[n] for n in body.input_names if n in self.held}
        key = (names, body.output_names)
        if key not in self.compiled:
            taken = body.replace(model_name=f"{self.name}_0", metadata={"backend": self.name})
            self.compiled[key] = self.ready.get(_ends(body)) or compiled_by(
                self.backend, taken, held
            )
        whole = {name: values[name] for name in body.input_names if name not in held}
        given = copied(list(whole.values()))
        sizes = _sizes(body, symbols).values()
        with torch.no_grad():
            made = list(self.compiled[key](*given, *sizes))
        # a runner may have a result written in the memory of an argument that nothing else reads
        own = {id(result) for result in made} if self.ready else set[int]()
        left = {n: t for n, t in zip(whole, given, strict=True) if id(t) not in own}
        self.require_unwritten(whole, left)
        return made

    def require_unwritten(self, before: Values, after: Values) -> None:
        """Refuse what the backend gave where it has written to an argument.

        Args:
            before: The values that it was given, by name, and maybe others.
            after: The tensors in which it was given them, by name.

        Raises:
            BackendError: A tensor has changed.
        """
        for name, tensor in after.items():
            if not compare_tensors(before[name], tensor).is_close:
                raise BackendError(f"the backend {self.name!r} writes to its input %{name}")


@dataclass(frozen=True)
class GraphSource:
    """A compiled graph, watched while it runs."""

    graph: ExecGraph | None
    name: str = "aten"


@dataclass(frozen=True)
class GoldenSource:
    """The values of a run that was captured, and the meaning of what was not."""

    values: Values
    name: str = "golden"

    def call(self, body: IR, values: Values, symbols: Symbols) -> Sequence[torch.Tensor]:
        """Return the captured results of a part."""
        names = body.output_names
        missing = any(name not in self.values for name in names)
        meant = ReferenceSource().call(body, values, symbols) if missing else ()
        return [self.values[n] if n in self.values else meant[i] for i, n in enumerate(names)]


@dataclass(frozen=True)
class LoweredSource:
    """Another program made from the compared one."""

    ir: IR
    name: str = "lowered"


AnySource: TypeAlias = (
    TorchSource | ReferenceSource | BackendSource | GraphSource | GoldenSource | LoweredSource
)


def source_of(reader: Any) -> AnySource:
    """Return the source that a reader names.

    Raises:
        ExecutionError: There is no such backend.
        InvalidIRError: It is nothing that can be read.
    """
    if isinstance(reader, PathLike):
        reader = str(cast(PathLike[str], reader))
    if isinstance(reader, str):
        return _named(reader)
    if isinstance(reader, IR):
        return LoweredSource(reader, reader.dialect)
    if isinstance(reader, Captured):
        return GoldenSource(reader.values)
    reader = instance_of(reader, "the reader")
    if isinstance(reader, DelegateBackend):
        return BackendSource(reader)
    if isinstance(reader, DelegatingExecutor):
        return _of_runner(reader)
    if isinstance(reader, IRExecutor):
        reader = reader.graph
    if isinstance(reader, ExecGraph):
        return GraphSource(reader)
    raise InvalidIRError(
        f"nothing can be read from a {type(reader).__name__}",
        remedy='Give "aten", "eager", "reference", a backend or its name, FILE.py:NAME, a graph, '
        "captured values, or another program.",
    )


def _of_runner(runner: DelegatingExecutor) -> BackendSource:
    delegates = list(runner.delegates.values())
    if not delegates:
        raise InvalidIRError(
            "the runner has no delegates: torch runs the whole program",
            remedy="torch_ir.backends.support(ir, backend) says why it takes nothing. To compare "
            "the kernels of torch, give 'aten'.",
        )
    ready = {_ends(delegate.body): delegate.compiled for delegate in delegates}
    held = {name: tensor for d in delegates for name, tensor in d.held.items()}
    return BackendSource(delegates[0].backend, ready=ready, held=held)


def _named(name: str) -> AnySource:
    if name in ("aten", "eager"):
        return GraphSource(None) if name == "aten" else TorchSource()
    if name in ("reference", "denotation"):
        return ReferenceSource()
    if name.endswith(".safetensors"):
        from safetensors.torch import load_file

        if not Path(name).exists():
            raise InvalidIRError(f"there is no file {name}", remedy=closest_file(name) or None)
        return GoldenSource(load_file(name), Path(name).name)
    if is_pipe(name):
        return LoweredSource(read_program(name), name)
    if name.endswith(IR_SUFFIXES):
        return LoweredSource(read_program(name), Path(name).name)
    return BackendSource(backend_of(name))


def external_tensors(
    ir: IR, weights: Values | None, constants: Values | None
) -> dict[str, torch.Tensor]:
    """Return the weights and constants of a program by the names that nodes use.

    Raises:
        MissingWeightsError: The program has weights and none were given.
        WeightLoadError: They are not those that it needs.
    """
    payload = check_weights(ir, weights or {}, strict=False, constants=constants)
    known = ir.constants.keys() & external_keys(ir).values()
    tensors = {**payload, **constant_tensors(ir.constants, known, payload)}
    return {n: tensors[key] for n, key in external_keys(ir).items() if key in tensors}


class Externals:
    """The weights and constants of programs: of each one tensor, in whatever program it is.

    Args:
        weights: Tensors by ``state_dict`` key.
        constants: Values that no state dict has, by key.
    """

    def __init__(self, weights: Values | None, constants: Values | None):
        self.weights, self.constants = weights, constants
        self._made = dict[str, tuple[Constant, torch.Tensor]]()
        self._last = list[tuple[IR, dict[str, torch.Tensor]]]()

    def of(self, ir: IR) -> dict[str, torch.Tensor]:
        """Return those of a program, by the names that nodes use; raises as external_tensors."""
        for program, known in self._last:
            if program is ir:
                return known
        made = {k: t for k, (same, t) in self._made.items() if ir.constants.get(k) == same}
        found = external_tensors(ir, self.weights, {**made, **(self.constants or {})})
        for name, key in external_keys(ir).items():
            if key in ir.constants and name in found:
                self._made[key] = ir.constants[key], found[name]
        self._last = [*self._last[-1:], (ir, found)]
        return found
