"""Three readers of one IR, compared on every node: the compiled graph, denotation and eager.

The compiled graph runs as it does in earnest, in-place reuse included. Each node is then read
again on the inputs that it had, copied where it may write to them, so that errors do not add up:
by its denotation, which has no part of torch, and by torch's plain operator, which is called first
and leaves hashes. That no value changes
between the node that makes it and those that read it is checked too, by its hash: nothing else
shows a result that took the place of a value which is still needed. Only hashes and one node's
inputs are held.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias, cast, get_args

import torch

from torch_ir.arguments import public, require_list
from torch_ir.backends.backend_registry import Runner
from torch_ir.backends.delegate import delegates
from torch_ir.backends.delegating import DelegatingExecutor, misfit
from torch_ir.debug.capture import Captured
from torch_ir.debug.eager import fresh, same_random_numbers
from torch_ir.debug.judging.accumulation import Accumulation
from torch_ir.debug.judging.backends import (
    Judged,
    OpaqueRunner,
    graph_of,
    judged_executor,
    require_compiled_from,
    runner_of,
)
from torch_ir.debug.judging.delegates import Judge, Mode
from torch_ir.debug.judging.denoting import Denoting
from torch_ir.debug.judging.expecting import Expected, expected, unlike_eager
from torch_ir.debug.judging.findings import Findings
from torch_ir.debug.judging.storages import MemoryFault, Place
from torch_ir.debug.judging.tally import Tally
from torch_ir.debug.memory import Memory, PlainCall
from torch_ir.debug.reference.allowance import OPEN
from torch_ir.debug.reference.eager_call import bind, call_plainly
from torch_ir.debug.reference.openness import has_open_functions
from torch_ir.debug.reference.tolerance_check import Error
from torch_ir.debug.repro import inputs_of, repro_text, save_part
from torch_ir.debug.validation import Reader, ValidationReport
from torch_ir.dialects.rules import is_custom
from torch_ir.errors import InputError, InvalidIRError, did_you_mean
from torch_ir.executor import ExecGraph, IRExecutor
from torch_ir.executor.inputs import (
    check_inputs,
    flatten_arguments,
    require_values,
    several,
)
from torch_ir.infer.bindings import Symbols
from torch_ir.ir import IR, Constant, OpNode
from torch_ir.ir.aliases import written_tensors
from torch_ir.ir.expressions import Number
from torch_ir.ir.functions import inline_scopes, written_out
from torch_ir.ir.queries import kept_values, require_symbols
from torch_ir.ir.values import kind_without_values
from torch_ir.kernel_switches import full_precision
from torch_ir.ops.rules import allow_operators
from torch_ir.ops.schema import lookup
from torch_ir.passes.functionalization import with_shown_writes
from torch_ir.serde import write_atomically
from torch_ir.serde.files import make_folder
from torch_ir.steps import told
from torch_ir.torch_api import constant_tensors, overload
from torch_ir.torch_memory import copied, storage_key
from torch_ir.weights.tensor_registry import registered_kernel

READERS: tuple[Reader, ...] = ("denotation", "eager")


@public
def validate(
    ir: IR,
    weights: Mapping[str, torch.Tensor] | None,
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    against: Sequence[str] = READERS,
    constants: Mapping[str, torch.Tensor] | None = None,
    symbols: Mapping[str, Number] | None = None,
    graph: ExecGraph | Runner | None = None,
    backend: Judged | None = None,
    mode: Mode = "isolated",
    save_inputs: str | PathLike[str] | None = None,
    repro: str | PathLike[str] | None = None,
    allow: Iterable[str] = (),
) -> ValidationReport:
    """Run a program (TF32 off) and compare every node with its meaning and with eager torch.

    The denotation (of what a node is made of, where it has none itself) must be within what
    ``torch_ir.semantics.tolerance`` allows; eager must be equal to the bit. Calls are written out.

    Args:
        ir: The program.
        weights: Tensors by ``state_dict`` key.
        inputs: The model's positional arguments, or a tensor for each graph input.
        kwargs: Its keyword arguments. All of these stay as they are.
        against: ``"denotation"``, ``"eager"`` or both.
        constants: Values that are in no state dict, by key; see :class:`IRExecutor`.
        symbols: The value of each symbol among the arguments.
        graph: A compiled graph or a runner (its results if it shows no nodes), with its state.
        backend: What to judge: backends by name or as values, or a runner of compile(backend=).
        mode: ``"isolated"``: each delegate, and each of its nodes alone, gets torch's values;
            ``"accumulated"``: the delegates' own values flow on.
        save_inputs: A ``.safetensors`` file for the inputs of the first node or body that differs.
        repro: A folder for the same, and ``repro.py``, which compares that node alone again.
        allow: Operators to allow although the rules refuse them: :func:`allow_operators`.

    Raises:
        InvalidIRError: There is no such reader or mode, or ``graph`` is of another program.
        ExecutionError: The program cannot be run.
        SerializationError: Inputs cannot be written.

    Example:
        >>> from torch_ir import parse
        >>> ir = parse('''ir {
        ...   input %x: f32[2]
        ...   %y: f32[2] = aten.exp.default(%x)
        ...   return %y
        ... }''')
        >>> validate(ir, {}, (torch.tensor([0.0, 1.0]),)).verdict
        'agree'
    """
    require_compiled_from((graph, backend), ir)
    readers, ir = _known(against), with_shown_writes(ir)
    with allow_operators(*allow), full_precision():
        given = _arguments(ir, several(inputs), kwargs or {}, symbols or {})
        judged = _known_mode(mode, repro, _judged(ir, weights, constants, graph, backend, given))
        runs, judge = _prepared(ir, given[0], weights, constants, judged, mode, readers)
        watch = _watched(runs, *given, readers, {**(constants or {}), **(weights or {})}, judge)
    return _saved(runs.ir, watch, save_inputs, repro)


def _watched(
    graph: ExecGraph,
    inputs: tuple[torch.Tensor, ...],
    symbols: Symbols,
    readers: tuple[Reader, ...],
    payload: Mapping[str, torch.Tensor],
    judge: Judge | None,
) -> _Rereading:
    """A run on copies of the inputs, and what was seen of it."""
    require_values(graph.ir, inputs)
    for position, tensor in enumerate(inputs):
        if kind_without_values(tensor) == "functional":  # which programs run on all the same
            raise InputError(
                f"input {position} is a functional tensor, which has no values to hash"
            )
    given = cast(tuple[torch.Tensor, ...], fresh(inputs))
    known = check_inputs(graph.ir, given, graph.device, dict(symbols))
    watch = _Rereading(graph, given, readers, known, judge)
    watch.see_payload(payload)
    with same_random_numbers():
        try:
            outputs = graph.run(given, symbols, watch)[0]
        except Exception:  # what a delegate made may be anything, and end what takes it
            if not watch.was_ended():
                raise
            return watch
    watch.finish(outputs)
    return watch


_Subject: TypeAlias = ExecGraph | DelegatingExecutor | OpaqueRunner | None


def _judged(
    ir: IR,
    weights: Mapping[str, torch.Tensor] | None,
    constants: Mapping[str, torch.Tensor] | None,
    graph: ExecGraph | Runner | None,
    backend: Judged | None,
    given: tuple[tuple[torch.Tensor, ...], Symbols],
) -> _Subject:
    """What is judged: a compiled graph, delegates, or a runner of which only results are seen."""
    if graph is not None and backend is not None:
        raise InvalidIRError("graph= and backend= exclude each other")
    if graph is None or isinstance(graph, DelegatingExecutor):
        return judged_executor(ir, weights, constants, graph if backend is None else backend)
    return graph_of(graph) or OpaqueRunner(ir, runner_of(graph), *given)


def _known_mode(mode: str, repro: object, judged: _Subject) -> _Subject:
    """What is judged, which can be judged in this mode and with these files."""
    if mode not in get_args(Mode):
        remedy = (
            did_you_mean(str(mode), get_args(Mode)) or f"There are {', '.join(get_args(Mode))}."
        )
        raise InvalidIRError(f"there is no mode {mode!r:.60} of validation", remedy=remedy)
    if isinstance(judged, OpaqueRunner) and repro is not None:
        remedy = "Give the name of its backend as backend=."
        raise InvalidIRError("repro= needs to know what made the runner", remedy=remedy)
    return judged


def _prepared(
    ir: IR,
    inputs: tuple[torch.Tensor, ...],
    weights: Mapping[str, torch.Tensor] | None,
    constants: Mapping[str, torch.Tensor] | None,
    judged: _Subject,
    mode: Mode,
    readers: tuple[Reader, ...],
) -> tuple[ExecGraph, Judge | None]:
    """What runs: torch alone or with delegates in their place, and the judge of these."""
    if isinstance(judged, ExecGraph):
        return judged, None
    if judged is None:
        flat = ir if delegates(ir) else written_out(ir)  # torch runs a delegate whole, not by node
        return IRExecutor(flat, weights, constants).graph_for(*inputs), None
    judge = Judge(judged.delegates, readers)
    if isinstance(judged, OpaqueRunner):
        judge = replace(judge, unseen=judged.unseen, repeats=not ir.mutations)
    else:
        found = judged.assignment
        taken = {name: (count, len(found.nodes)) for name, count in found.counts.items()}
        judge = replace(judge, taken=taken)
        if mode == "accumulated":
            drift = Accumulation(judged.graph.ir)
            return judged.graph, replace(judge, drift=drift, aliases=judged.ir.aliases)
    graph = IRExecutor(inline_scopes(judged.ir), weights, constants).graph_for(*inputs)
    return graph, judge


def _arguments(
    ir: IR, args: tuple[Any, ...], kwargs: Mapping[str, Any], symbols: Mapping[str, Number]
) -> tuple[tuple[torch.Tensor, ...], Symbols]:
    """The tensors of a program's inputs, and the numbers among a model's arguments.

    Where they are as many tensors as it has inputs, they are in their order in both readings.
    """
    require_symbols(ir, symbols)
    plain = all(isinstance(item, torch.Tensor) for item in args) and not kwargs
    if plain and len(args) == len(ir.graph_inputs):
        return args, dict(symbols)
    tensors, numbers = flatten_arguments(ir, args, kwargs)
    return tensors, {**numbers, **symbols}


def _known(against: Sequence[str]) -> tuple[Reader, ...]:
    require_list(against, "against", str)
    for name in against:
        if name not in READERS:
            remedy = did_you_mean(name, READERS) or f"There are {' and '.join(READERS)}."
            raise InvalidIRError(f"there is no reader {name!r:.60}", remedy=remedy)
    return cast(tuple[Reader, ...], tuple(against))


def _saved(
    ir: IR,
    watch: _Rereading,
    save_inputs: str | PathLike[str] | None,
    repro: str | PathLike[str] | None,
) -> ValidationReport:
    """The report, after what is asked for was written."""
    found = watch.found
    if found.part is not None and watch.judge is not None:
        if save_inputs is not None:
            inputs_of(found.part).save(save_inputs)
        if repro is not None:
            maker = watch.judge.backend_of(found.part)
            save_part(found.part, maker, watch.symbols, Path(repro))
        save_inputs = repro = None
    first = found.first
    if first is None:
        return watch.report()
    captured = Captured(ir.model_name, (), found.first_inputs, {})
    if save_inputs is not None:
        captured.save(save_inputs)
    if repro is not None:
        folder = make_folder(repro)
        captured.save(folder / "inputs.safetensors")
        text = repro_text(ir, ir.node(first.node), found.first_symbols, first)
        write_atomically(folder / "repro.py", text.encode())
    return watch.report()


_Tensors: TypeAlias = Sequence[torch.Tensor]
_Named: TypeAlias = Mapping[str, torch.Tensor]


class _Rereading:
    """Listener that reads every node again."""

    def __init__(
        self,
        graph: ExecGraph,
        inputs: Sequence[torch.Tensor],
        against: tuple[Reader, ...],
        symbols: Symbols,
        judge: Judge | None = None,
    ):
        self.ir = graph.ir
        self.judge = judge
        self.device = graph.device
        self.against = against
        self.symbols = dict(symbols)
        self.found = Findings()
        self.seen = 0
        self._running: OpNode | None = None
        self.tally = Tally(graph.ir, against)
        self._denoting = Denoting(graph.ir, self.tally)
        self._before: list[torch.Tensor] = []
        self._state: _RandomState | None = None
        self._expected: Expected | None = None
        self._inputs: list[torch.Tensor] = []
        named = dict(zip(graph.ir.input_names, inputs, strict=True))
        aliases = (judge and judge.aliases) or graph.ir.aliases
        self._memory = Memory(graph.ir, {**graph.payload, **named}, aliases)
        self._writing, self._copied = graph.writing(), graph.copied

    def see_payload(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """See that the graph runs with the weights and constants of the program, given by key."""
        for node, fault in _replaced(self.ir, self._memory, tensors):
            self.found.note_fault(node, fault)

    # -- the listener -----------------------------------------------------------------------------

    def will_run(self, node: OpNode, inputs: Sequence[torch.Tensor]) -> None:
        """See that the inputs are what was made, and copy them if they may be written."""
        for fault in self._memory.read(node, inputs):
            self.found.note_fault(fault.culprit or node, fault)
        self._running = node
        self._inputs = list(inputs)
        self._state = _random_state(self.device) if _may_draw(node) else None
        is_judged = self.judge is not None and self.judge.knows(node)
        if "eager" in self.against and not is_judged:
            state, symbols = self._state, self.symbols
            self._expected = _called_first(self.ir, node, inputs, symbols, self.device, state)
        self._before = self._inputs
        if node.name in self._writing:
            self._before = copied(inputs, _positions(node, self._writing[node.name]))

    def did_run(self, node: OpNode, outputs: Sequence[torch.Tensor]) -> None:
        """Read the node again on the copies."""
        self.seen += 1
        told(min(self.seen, len(self.ir.nodes)), len(self.ir.nodes))
        inputs, self._inputs = self._inputs, []
        before, self._before = self._before, []
        named = dict(zip([meta.name for meta in node.inputs], inputs, strict=True))
        after = {meta.name: named[meta.name] for meta in written_tensors(self.ir, node) or ()}
        judge, self._running = self.judge, None
        learned = dict(self.symbols)
        if judge is not None and judge.knows(node):
            plain = None
            self._judge(judge, node, before, None if judge.drift is None else outputs)
            bind(node, _placed(node, outputs), learned)
        else:
            plain, unlike = self._call(node, before, outputs, after, learned)
            drew = self._state is not None and _differs(self._state, _random_state(self.device))
            self._read(node, unlike, before, outputs, after, drew=drew)
            if judge is not None and judge.drift is not None and not drew:
                judge.drift.follow(node, before, outputs, self.symbols, self.ir.functions)
        self.symbols = learned
        for fault in self._memory.read_last(node, inputs, before):
            self.found.note_fault(node, fault)
        is_own = registered_kernel(node.op_type) is not None
        for fault in self._memory.made(node, inputs, before, outputs, plain, is_own=is_own):
            self.found.note_fault(fault.culprit or node, fault)

    def finish(self, outputs: Sequence[torch.Tensor]) -> None:
        """See that what is returned and left is what was made."""
        for fault in self._memory.ended(outputs, self._copied):
            maker = self.ir.producers.get(fault.value) or self._memory.last_reader.get(fault.value)
            self.found.note_fault(fault.culprit or maker, fault)

    def was_ended(self) -> bool:
        """Return whether what a delegate made ended the run; it and the rest are accounted for."""
        judge, node = self.judge, self._running
        if judge is None:
            return False
        if node is not None and judge.knows(node):
            self._judge(judge, node, self._before, None)
        if not any(divergence.delegate for divergence in self.found.divergences):
            return False
        for other in self.ir.nodes:
            self.tally.left(other, "not run: what a delegate made ended the run")
        return True

    def report(self) -> ValidationReport:
        """What was found."""
        return ValidationReport(
            self.ir.model_name,
            self.against,
            len(self.ir.nodes),
            self.tally.compared,
            self._denoting.decomposed,
            tuple(self._denoting.random),
            self._denoting.undenoted,
            tuple(self.found.errors),
            tuple(self.found.divergences),
            self.tally.not_compared,
            self.tally.run_by_torch,
            {} if self.judge is None else self.judge.taken,
        )

    # -- readers ----------------------------------------------------------------------------------

    def _judge(
        self, judge: Judge, node: OpNode, before: _Tensors, outputs: _Tensors | None
    ) -> None:
        """Judge the backend of a delegate, whose own results are given or asked for."""
        self.tally.run_by_backend(node)
        found, unknown = judge.findings(node, before, outputs, self.symbols)
        if unknown or judge.unseen:
            self.tally.left(node, unknown or judge.unseen)
        else:
            for reader in self.against:
                self.tally.read(node, reader)
        for item in found:
            self.found.note_part(item)

    def _read(
        self,
        node: OpNode,
        unlike: Mapping[str, Error] | None,
        before: _Tensors,
        outputs: _Tensors,
        after: _Named,
        *,
        drew: bool,
    ) -> None:
        """Read a node that torch ran, and note how unlike its values are to eager's."""
        if "denotation" in self.against:
            found = self._denoting.read(node, before, self.symbols, outputs, after, drew=drew)
            for name, error in found:
                self.found.note(node, name, "denotation", error, before, self.symbols)
        if "eager" not in self.against:
            return
        loose = "foreign kernel" if unlike is None else _looseness(self.ir, node, unlike.values())
        if unlike is None or loose:
            self.tally.left(node, loose)
            return
        self.tally.read(node, "eager")
        for name, error in (dict(unlike) | _mistyped(node, outputs)).items():
            self.found.note(node, name, "eager", error, before, self.symbols)

    def _call(
        self,
        node: OpNode,
        before: _Tensors,
        outputs: _Tensors,
        after: _Named,
        learned: Symbols,
    ) -> tuple[PlainCall | None, dict[str, Error] | None]:
        """Call torch's plain operator, where there is one and something asks for it.

        Its results are compared and not held.

        Args:
            node: The node.
            before: Its inputs, as they were before it ran.
            outputs: What it made.
            after: What it wrote, by name.
            learned: Where the symbols go that its results determine.
        """
        first, self._expected = self._expected, None
        if first is not None and first.is_made(outputs):
            learned.update(first.learned)
            return first.plain, dict.fromkeys([meta.name for meta in node.outputs], Error())
        is_read = "eager" in self.against or bool(node.binds)
        if _is_foreign(node) or not (is_read or self._memory.needs_call(node, outputs)):
            bind(node, _placed(node, outputs), learned)
            return None, None
        drawn = None if self._state is None else _random_state(self.device)
        if self._state is not None:
            _set_random_state(self._state, self.device)
        written = written_tensors(self.ir, node)
        names = None if written is None else {meta.name for meta in written}
        given = copied(before, _positions(node, names))
        storages = [storage_key(tensor) for tensor in given]
        made = call_plainly(node, given, self.symbols, self.ir.functions, self.device)
        if drawn is not None:
            _set_random_state(drawn, self.device)
        bind(node, made, learned)
        unlike = None
        if "eager" in self.against:
            known = self._denoting.meanings.of(node), self.symbols
            unlike = unlike_eager(node, *known, made, given, before, outputs, after)
        return PlainCall(given, storages, [Place.of(item) for item in made]), unlike


def _mistyped(node: OpNode, outputs: _Tensors) -> dict[str, Error]:
    """What an operator of a library gives in another type than its fake kernel said."""
    if not is_custom(node.op_type):
        return {}
    faults = {
        meta.name: misfit([meta], [made]) for meta, made in zip(node.outputs, outputs, strict=True)
    }
    told = "its kernel gives {}, as its fake kernel says".format
    return {
        n: Error(part=float("inf"), reason=told(fault)) for n, fault in faults.items() if fault
    }


def _replaced(
    ir: IR, memory: Memory, tensors: Mapping[str, torch.Tensor]
) -> Iterator[tuple[OpNode | None, MemoryFault]]:
    """Yield the weights and constants that are not those of the program, and what reads them."""
    written = {mutation.target for mutation in ir.mutations}
    left = kept_values(ir)
    for name, (key, declared) in ir.external_values().items():
        node = memory.last_reader.get(name)
        if name in written or (node is None and name not in left):
            continue
        wanted = tensors.get(key)
        if wanted is None and isinstance(declared, Constant):
            wanted = constant_tensors(ir.constants, [key], tensors)[key]
        if wanted is not None and not memory.is_same(name, wanted):
            yield node, MemoryFault(name, "changed", "the graph was compiled with another value")


def _looseness(ir: IR, node: OpNode, unlike: Iterable[Error]) -> str:
    """Why nothing can be said of how unlike eager's values are; empty if something can."""
    if any(error.reason for error in unlike) and has_open_functions(ir, node):
        return OPEN
    return next((error.loose for error in unlike if error.loose), "")


def _called_first(
    ir: IR,
    node: OpNode,
    inputs: _Tensors,
    symbols: Symbols,
    device: torch.device,
    state: _RandomState | None,
) -> Expected | None:
    """Call torch's plain operator before a node runs, if there is one and it writes nothing."""
    if _is_foreign(node) or written_tensors(ir, node) != ():
        return None
    found = expected(ir, node, inputs, symbols, device)
    if state is not None:
        _set_random_state(state, device)
    return found


def _positions(node: OpNode, names: Set[str] | None) -> list[int]:
    """The positions of some inputs; of all if None."""
    return [i for i, meta in enumerate(node.inputs) if names is None or meta.name in names]


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
    """Whether random numbers may be drawn: other packages' operators may without saying so."""
    namespace, *rest = node.op_type.split(".")
    found = overload(namespace, *rest) if len(rest) == 2 else None
    if found is None or lookup(node.op_type) is None:
        return True
    return torch.Tag.nondeterministic_seeded in found.tags


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
