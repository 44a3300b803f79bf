"""Three readers of one IR, compared on every node: the compiled graph, denotation and eager.

The compiled graph runs as it does in earnest, in-place reuse included. Each node is then read
again on copies of the inputs that it had, so that errors do not add up: by its denotation, which
has no part of torch, and by torch's plain operator. That no value changes between the node that
makes it and those that read it is checked too, by its hash: nothing else shows a result that took
the place of a value which is still needed. Only hashes and one node's inputs are held.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias, cast

import torch

from torch_ir.debug.capture import Captured
from torch_ir.debug.copies import copied
from torch_ir.debug.eager import fresh, same_random_numbers
from torch_ir.debug.judging.denoting import Denoting
from torch_ir.debug.judging.storages import MemoryFault, storage_key
from torch_ir.debug.judging.tally import Tally
from torch_ir.debug.memory import Memory, PlainCall
from torch_ir.debug.reference.denotation import written_inputs
from torch_ir.debug.reference.eager_call import Symbols, bind, call_plainly
from torch_ir.debug.reference.tolerance_check import VALUES_OPEN, Error, same_bits
from torch_ir.debug.repro import repro_text
from torch_ir.debug.validation import (
    Divergence,
    FaultKind,
    NodeError,
    Reader,
    ValidationReport,
)
from torch_ir.errors import InvalidIRError, did_you_mean
from torch_ir.executor import ExecGraph, IRExecutor
from torch_ir.executor.inputs import check_inputs, flatten_arguments, require_values
from torch_ir.ir import IR, Constant, OpNode
from torch_ir.ir.aliases import written_tensors
from torch_ir.ir.expressions import Number
from torch_ir.ops.rules import allow_operators
from torch_ir.passes.inline import inline_scopes
from torch_ir.serde import write_atomically
from torch_ir.torch_api import constant_tensors, overload
from torch_ir.weights.tensor_registry import registered_kernel

READERS: tuple[Reader, ...] = ("denotation", "eager")


def validate(
    ir: IR,
    weights: Mapping[str, torch.Tensor] | None,
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    against: Sequence[str] = READERS,
    constants: Mapping[str, torch.Tensor] | None = None,
    symbols: Mapping[str, Number] | None = None,
    graph: ExecGraph | None = None,
    save_inputs: str | PathLike[str] | None = None,
    repro: str | PathLike[str] | None = None,
    allow: Iterable[str] = (),
) -> ValidationReport:
    """Run a program and compare every node with what it means and with eager torch.

    The denotation must be within what ``torch_ir.semantics.tolerance`` allows for the operator,
    the element type and the length of its sums; eager must be equal to the bit. Nodes without a
    denotation are denoted by what they are made of, or listed; of random nodes the denotation has
    shapes and types only. A node whose values no reader could read is not compared, which is a
    verdict of its own. Scopes that switch the recording of gradients are written out first.

    Args:
        ir: The program.
        weights: Tensors by ``state_dict`` key; never changed.
        inputs: The model's positional arguments, or its input tensors; never changed.
        kwargs: The model's keyword arguments; never changed.
        against: ``"denotation"``, ``"eager"`` or both.
        constants: Values that are in no state dict, by key; see :class:`IRExecutor`.
        symbols: The value of each symbol that is a number among the program's arguments.
        graph: A compiled graph to compare, else the program's; this run changes its state.
        save_inputs: A ``.safetensors`` file for the inputs of the first node that diverges.
        repro: A folder for the same, and ``repro.py``, which compares that node alone again.
        allow: Operators to allow although the rules refuse them: :func:`allow_operators`.

    Raises:
        InvalidIRError: There is no such reader.
        ExecutionError: The program cannot be run.
        SerializationError: The inputs cannot be written.

    Example:
        >>> from torch_ir import parse
        >>> ir = parse('''ir {
        ...   input %x: f32[2]
        ...   %y: f32[2] = aten.exp.default(%x)
        ...   return %y
        ... }''')
        >>> print(validate(ir, {}, (torch.tensor([0.0, 1.0]),)))
        all readers agree on the program: 1 node
          denotation: 1 compared, 0 by decomposition
          eager: 1 compared
    """
    with allow_operators(*allow):
        runs = graph or IRExecutor(inline_scopes(ir), weights, constants).graph
        tensors, numbers = _arguments(ir, tuple(inputs), kwargs or {})
        require_values(runs.ir, tensors)
        held, known = {**(weights or {}), **(constants or {})}, {**numbers, **(symbols or {})}
        watch = _watched(runs, tensors, known, _known(against), held)
    _save(runs.ir, watch, save_inputs, repro)
    return watch.report()


def _watched(
    graph: ExecGraph,
    inputs: tuple[torch.Tensor, ...],
    symbols: Symbols,
    readers: tuple[Reader, ...],
    payload: Mapping[str, torch.Tensor],
) -> _Watch:
    """A run on copies of the inputs, and what was seen of it."""
    given = cast(tuple[torch.Tensor, ...], fresh(inputs))
    known = check_inputs(graph.ir, given, graph.device, dict(symbols))
    watch = _Watch(graph, given, readers, known)
    watch.see_payload(payload)
    with same_random_numbers():
        outputs = graph.run(given, symbols, watch)[0]
    watch.finish(outputs)
    return watch


def _arguments(
    ir: IR, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[torch.Tensor, ...], Symbols]:
    """The tensors of a program's inputs, and the numbers among a model's arguments.

    Where they are as many tensors as it has inputs, they are in their order in both readings.
    """
    plain = all(isinstance(item, torch.Tensor) for item in args) and not kwargs
    if plain and len(args) == len(ir.graph_inputs):
        return args, {}
    return flatten_arguments(ir, args, kwargs)


def _known(against: Sequence[str]) -> tuple[Reader, ...]:
    for name in against:
        if name not in READERS:
            remedy = did_you_mean(name, READERS) or f"There are {' and '.join(READERS)}."
            raise InvalidIRError(f"nothing reads an IR that is called {name!r:.60}", remedy=remedy)
    return cast(tuple[Reader, ...], tuple(against))


def _save(
    ir: IR,
    watch: _Watch,
    save_inputs: str | PathLike[str] | None,
    repro: str | PathLike[str] | None,
) -> None:
    first = watch.first
    if first is None:
        return
    captured = Captured(ir.model_name, (), watch.first_inputs, {})
    if save_inputs is not None:
        captured.save(save_inputs)
    if repro is not None:
        folder = Path(repro)
        folder.mkdir(parents=True, exist_ok=True)
        captured.save(folder / "inputs.safetensors")
        text = repro_text(ir, ir.node(first.node), watch.first_symbols, first)
        write_atomically(folder / "repro.py", text.encode())


class _Watch:
    """Listener that reads every node again."""

    def __init__(
        self,
        graph: ExecGraph,
        inputs: Sequence[torch.Tensor],
        against: tuple[Reader, ...],
        symbols: Symbols,
    ):
        self.ir = graph.ir
        self.device = graph.device
        self.against = against
        self.symbols = dict(symbols)
        self.errors: list[NodeError] = []
        self.divergences: list[Divergence] = []
        self.first: Divergence | None = None  # of those that the node's inputs can show
        self.first_inputs: dict[str, torch.Tensor] = {}
        self.first_symbols: Symbols = {}
        self.tally = Tally(graph.ir, against)
        self._denoting = Denoting(graph.ir, self.tally) if "denotation" in against else None
        self._before: list[torch.Tensor] = []
        self._state: _RandomState | None = None
        self._inputs: list[torch.Tensor] = []
        named = dict(zip([meta.name for meta in graph.ir.graph_inputs], inputs, strict=True))
        self._memory = Memory(graph.ir, {**graph.payload, **named})

    def see_payload(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """See that the graph runs with the weights and constants of the program.

        Args:
            tensors: Weights and constants by key, as far as they are given.
        """
        written = {mutation.target for mutation in self.ir.mutations}
        for name, (key, declared) in self.ir.external_values().items():
            node = self._memory.last_reader.get(name)
            if node is None or name in written:
                continue
            wanted = tensors.get(key)
            if wanted is None and isinstance(declared, Constant):
                wanted = constant_tensors(self.ir.constants, [key], tensors)[key]
            if wanted is not None and not self._memory.is_same(name, wanted):
                reason = "the graph was compiled with another value"
                self._note_fault(node, MemoryFault(name, "changed", reason))

    # -- the listener -----------------------------------------------------------------------------

    def will_run(self, node: OpNode, inputs: Sequence[torch.Tensor]) -> None:
        """Copy the inputs, and see that they are what was made."""
        for fault in self._memory.read(node, inputs):
            self._note_fault(node, fault)
        self._inputs = list(inputs)
        self._before = copied(inputs)
        self._state = _random_state(self.device) if _may_draw(node) else None

    def did_run(self, node: OpNode, outputs: Sequence[torch.Tensor]) -> None:
        """Read the node again on the copies."""
        inputs, self._inputs = self._inputs, []
        before, self._before = self._before, []
        named = dict(zip([meta.name for meta in node.inputs], inputs, strict=True))
        after = {meta.name: named[meta.name] for meta in written_inputs(self.ir, node)}
        if self._denoting is not None:
            drew = self._state is not None and _differs(self._state, _random_state(self.device))
            found = self._denoting.read(node, before, self.symbols, outputs, after, drew=drew)
            for name, error in found:
                self._note(node, name, "denotation", error, before)
        plain = self._call(node, before, outputs)
        if plain is None:
            bind(node, _placed(node, outputs), self.symbols)
        else:
            bind(node, plain.made, self.symbols)
            self._compare(node, plain, before, outputs, after)
        is_own = registered_kernel(node.op_type) is not None
        for fault in self._memory.made(node, inputs, before, outputs, plain, is_own=is_own):
            self._note_fault(node, fault)

    def finish(self, outputs: Sequence[torch.Tensor]) -> None:
        """See that what is returned and left is what was made."""
        for fault in self._memory.ended(outputs):
            maker = self.ir.producers.get(fault.value) or self._memory.last_reader.get(fault.value)
            self._note_fault(maker, fault)

    def report(self) -> ValidationReport:
        """What was found."""
        denoting = self._denoting
        return ValidationReport(
            self.ir.model_name,
            self.against,
            len(self.ir.nodes),
            self.tally.compared,
            0 if denoting is None else denoting.decomposed,
            () if denoting is None else tuple(denoting.random),
            {} if denoting is None else denoting.undenoted,
            tuple(self.errors),
            tuple(self.divergences),
            self.tally.not_compared,
            self.tally.run_by_torch,
        )

    # -- readers ----------------------------------------------------------------------------------

    def _note_fault(self, node: OpNode | None, fault: MemoryFault) -> None:
        error = Error(part=float("inf"), reason=fault.reason)
        self._note(fault.culprit or node, fault.value, "memory", error, [], fault.kind)

    def _call(
        self, node: OpNode, before: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]
    ) -> PlainCall | None:
        """Call torch's plain operator on copies, where there is one and something asks for it."""
        if _is_foreign(node):
            if "eager" in self.against:
                self.tally.left(node, "foreign kernel")
            return None
        is_read = "eager" in self.against or bool(node.binds)
        if not is_read and not self._memory.needs_call(node, outputs):
            return None
        drawn = None if self._state is None else _random_state(self.device)
        if self._state is not None:
            _set_random_state(self._state, self.device)
        given = before if written_tensors(self.ir, node) == () else copied(before)
        storages = [storage_key(tensor) for tensor in given]
        made = call_plainly(node, given, self.symbols, self.ir.functions, self.device)
        if drawn is not None:
            _set_random_state(drawn, self.device)
        return PlainCall(given, storages, made)

    def _compare(
        self,
        node: OpNode,
        plain: PlainCall,
        before: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
        after: Mapping[str, torch.Tensor],
    ) -> None:
        """Compare what a node made with what torch's plain operator makes."""
        if "eager" not in self.against:
            return
        self.tally.read(node, "eager")
        if node.op_type in VALUES_OPEN:
            return
        pairs = [
            (meta.name, plain.made[meta.producer_output_idx], tensor)
            for meta, tensor in zip(node.outputs, outputs, strict=True)
        ]
        left = dict(zip([meta.name for meta in node.inputs], plain.given, strict=True))
        pairs += [(f"written {name}", left[name], tensor) for name, tensor in after.items()]
        for name, expected, got in pairs:
            self._note(node, name, "eager", same_bits(expected, got), before)

    def _note(
        self,
        node: OpNode | None,
        value: str,
        reader: Reader,
        error: Error,
        before: Sequence[torch.Tensor],
        memory: FaultKind | None = None,
    ) -> None:
        if error.is_none:
            return
        numbers = (error.ulp, error.absolute, error.relative, error.part)
        name, operator = ("", "") if node is None else (node.name, node.op_type)
        self.errors.append(NodeError(name, operator, value, reader, *numbers))
        if not error.reason:
            return
        text, place = ("", "") if node is None else (str(node), str(node.location or ""))
        found = Divergence(name, text, place, value, reader, error.reason, memory)
        self.divergences.append(found)
        if self.first is None and reader != "memory" and node is not None:
            names = [meta.name for meta in node.inputs]
            self.first = found
            self.first_inputs = dict(zip(names, copied(before), strict=True))
            self.first_symbols = dict(self.symbols)


def _placed(node: OpNode, outputs: Sequence[torch.Tensor]) -> dict[int, torch.Tensor]:
    """The outputs by their position among the operator's results."""
    positions = [meta.producer_output_idx for meta in node.outputs]
    return dict(zip(positions, outputs, strict=True))


def _is_foreign(node: OpNode) -> bool:
    """Whether torch has no operator of that name, but a kernel that a user registered."""
    namespace, *rest = node.op_type.split(".")
    if registered_kernel(node.op_type) is None or namespace == "higher_order":
        return False
    return len(rest) != 2 or overload(namespace, *rest) is None


def _may_draw(node: OpNode) -> bool:
    """Whether random numbers may be drawn."""
    namespace, *rest = node.op_type.split(".")
    found = overload(namespace, *rest) if len(rest) == 2 else None
    return found is None or torch.Tag.nondeterministic_seeded in found.tags


_RandomState: TypeAlias = tuple[torch.Tensor, torch.Tensor | None]
"""The state of the CPU's random numbers, and that of another device's."""


def _random_state(device: torch.device) -> _RandomState:
    if device.type == "cpu":
        return torch.get_rng_state(), None
    return torch.get_rng_state(), torch.get_device_module(device).get_rng_state(device)


def _differs(first: _RandomState, second: _RandomState) -> bool:
    pairs = zip(first, second, strict=True)
    return any(a is not None and b is not None and not torch.equal(a, b) for a, b in pairs)


def _set_random_state(state: _RandomState, device: torch.device) -> None:
    torch.set_rng_state(state[0])
    if state[1] is not None:
        torch.get_device_module(device).set_rng_state(state[1], device)
