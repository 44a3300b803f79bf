"""The comparison of two readers of a program, node by node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from torch_ir.arguments import public
from torch_ir.debug.comparing.accumulation import accumulated
from torch_ir.debug.comparing.alignment import aligned_regions
from torch_ir.debug.comparing.comparison import Comparison, FeedMode, NodeDivergence
from torch_ir.debug.comparing.feeding import OwnKernels, feeding, parts_of
from torch_ir.debug.comparing.golden import replayed
from torch_ir.debug.comparing.isolation import Feed, Found, Unit, pieces
from torch_ir.debug.comparing.keeping import Kept
from torch_ir.debug.comparing.sources import (
    AnySource,
    BackendSource,
    Externals,
    GoldenSource,
    GraphSource,
    LoweredSource,
    PartSource,
    Reader,
    TorchSource,
    part_of,
    source_of,
)
from torch_ir.debug.eager import same_random_numbers
from torch_ir.debug.judging.backends import require_compiled_from
from torch_ir.debug.reference.tolerance_check import same_bits
from torch_ir.debug.shrinking.reduced import write_program
from torch_ir.errors import InvalidIRError, did_you_mean
from torch_ir.executor.inputs import check_inputs, require_apart
from torch_ir.ir import IR, OpNode
from torch_ir.ir.functions import CALLS, inline_scopes, written_out
from torch_ir.ir.queries import (
    kept_values,
    live_out,
    nodes_behind,
    op_types,
    positions,
    require_symbols,
    written_values,
)
from torch_ir.kernel_switches import full_precision
from torch_ir.ops.spec import spec_of
from torch_ir.passes.functionalization import functional_form
from torch_ir.passes.requirements import is_functional
from torch_ir.serde.files import make_folder
from torch_ir.steps import steps
from torch_ir.torch_memory import copied

CompareMode = Literal["isolated", "accumulated", "both"]
Tensors = Mapping[str, torch.Tensor]


@public
def compare(
    ir: IR,
    weights: Tensors | None,
    inputs: Sequence[torch.Tensor] | None = None,
    *,
    run: Reader = "aten",
    against: Reader = "reference",
    mode: CompareMode = "both",
    samples: Iterable[Sequence[torch.Tensor]] = (),
    constants: Tensors | None = None,
    symbols: Mapping[str, int] | None = None,
    tolerance: Mapping[str, float] | None = None,
    repro: str | PathLike[str] | None = None,
) -> Comparison:
    """Compare what two readers make of a program, and name the first node that is wrong.

    A subgraph of a backend is run as a whole, and on the values of the other side each of its
    nodes alone and with its neighbor. A program that writes to memory is made functional first.

    Args:
        ir: The program.
        weights: Tensors by ``state_dict`` key.
        inputs: A tensor for each graph input; those of captured values if None.
        run: What is judged; a program that was lowered from ``ir`` is one, too.
        against: What it is compared with; any reader but a lowered program.
        mode: ``"isolated"`` feeds each piece what ``against`` made, ``"accumulated"`` lets the
            values of each side flow on, ``"both"`` looks at what isolation hides where it finds
            nothing. Of a run that is too large for this, ``whole_run`` has the reason.
        samples: More inputs to compare on.
        constants: Values that no state dict has, by key.
        symbols: Values of symbols that no input shows.
        tolerance: How far results of an operator may be off besides, by exact overload.
        repro: A folder for the smallest part that shows the first fault.

    Raises:
        InvalidIRError: There is no such reader (of this program), mode or operator, or inputs.
        InputError: The program has no such symbol.
        ExecutionError, BackendError: There is no such backend, or the other side cannot run.

    Example:
        >>> from torch_ir import parse
        >>> ir = parse('''ir {
        ...   input %x: f32[2]
        ...   %y: f32[2] = aten.exp.default(%x)
        ...   return %y
        ... }''')
        >>> print(compare(ir, {}, (torch.tensor([0.0, 1.0]),)))
        aten agrees with reference on the program: 1 compared, 0 covered of 1
    """
    _require_known(ir, mode, tolerance or {})
    require_symbols(ir, symbols or {})
    require_compiled_from((run, against), ir)
    judged, other = source_of(run), source_of(against)
    case = Pair(ir, Externals(weights, constants), judged, other, mode)
    case.tolerance = dict(tolerance or {})
    first = _captured_inputs(ir, judged, other) if inputs is None else inputs
    case.look_at((first, *samples), dict(symbols or {}))
    if repro is not None and case.first_part is not None:
        _save(case.first_part, Path(repro))
    return case.report()


def _require_known(ir: IR, mode: str, tolerance: Mapping[str, float]) -> None:
    """Refuse a mode, and operators with a tolerance, that do not exist.

    Raises:
        InvalidIRError: There is one.
    """
    modes = get_args(CompareMode)
    if mode not in modes:
        remedy = did_you_mean(str(mode), modes) or f"There are {', '.join(modes)}."
        raise InvalidIRError(f"there is no mode {mode!r:.60} of comparison", remedy=remedy)
    called = op_types(ir) if tolerance else ()
    for name in tolerance.keys() - called:
        spec_of(name)  # raises where nobody knows it


def _captured_inputs(ir: IR, *sources: AnySource) -> list[torch.Tensor]:
    given = next((s.values for s in sources if isinstance(s, GoldenSource)), {})
    missing = [name for name in ir.input_names if name not in given]
    if missing:
        raise InvalidIRError(f"inputs are missing: {', '.join(missing)}")
    return [given[name] for name in ir.input_names]


def _require_captured_inputs(given: Tensors, *sources: AnySource) -> None:
    """Refuse captured values of a run on other inputs: every node would look wrong.

    Raises:
        InvalidIRError: They have an input's value, and it is another one.
    """
    for golden in sources:
        known = golden.values if isinstance(golden, GoldenSource) else {}
        for name, tensor in given.items():
            reason = same_bits(known[name], tensor).reason if name in known else ""
            if reason:
                raise InvalidIRError(
                    f"{golden.name} was captured on another input %{name}: {reason}",
                    remedy="Give the inputs of that run, or none: those captured are then taken.",
                )


def _require_captured_values(program: IR, *sources: AnySource) -> None:
    """Refuse captured values of which the program has none: they are of another, or are weights.

    Raises:
        InvalidIRError: No node makes a value of a name that was captured.
    """
    made = [meta.name for node in program.nodes for meta in node.outputs]
    for golden in sources:
        names = list(golden.values) if isinstance(golden, GoldenSource) else []
        if not names or not made or not set(names).isdisjoint(made):
            continue
        hints = ((name, did_you_mean(name, names)) for name in made[:_LOOKED_AT])
        near = next(
            (f" For %{name}: {hint[0].lower()}{hint[1:]}" for name, hint in hints if hint), ""
        )
        rest = ", ..." if len(names) > _SHOWN else ""
        raise InvalidIRError(
            f"{golden.name} has no value that a node of the program makes; it has "
            f"{', '.join(names[:_SHOWN])}{rest}",
            remedy=f"Capture a run of this program: torch-ir run FILE --capture PATH.{near}",
        )


_SHOWN, _LOOKED_AT = 4, 20
"""How many names an error shows, and for how many the closest is looked for."""


def _save(found: tuple[IR, Tensors], folder: Path) -> None:
    body, values = found
    write_program(make_folder(folder), body, {}, [values[name] for name in body.input_names])


def _with_equal_names(ir: IR, written: IR, judged: AnySource) -> tuple[IR, AnySource]:
    """The functional program, and what is judged, with values of one name on both sides.

    Passes write calls out with other names than reports have: those of ``written`` are origins.
    """
    program = written
    if isinstance(judged, LoweredSource):
        if written is ir:
            judged = replace(judged, ir=inline_scopes(judged.ir, CALLS))
        elif written_out(judged.ir) is judged.ir:
            program = inline_scopes(ir, CALLS)
        else:
            judged = replace(judged, ir=written_out(judged.ir))
    if program is written and is_functional(program):
        return program, judged
    pairs = zip(program.nodes, [node.name for node in written.nodes], strict=True)
    nodes = [node.replace(origins=() if node.name == name else (name,)) for node, name in pairs]
    program = program.replace(nodes=nodes)
    return functional_form(program), judged


class Pair:
    """A program, both sides, and what has been found."""

    def __init__(
        self,
        ir: IR,
        externals: Externals,
        judged: AnySource,
        other: AnySource,
        mode: CompareMode,
    ):
        self.ir = written_out(ir)
        self.program, judged = _with_equal_names(ir, self.ir, judged)
        self.judged = judged
        self.other = other
        self.mode: CompareMode = "accumulated" if isinstance(judged, GoldenSource) else mode
        self.externals = externals
        self.payload = externals.of(self.program)
        self.found: list[NodeDivergence] = []
        self.later: list[NodeDivergence] = []
        self.states: list[Feed] = []
        self.first_part: tuple[IR, Tensors] | None = None
        self.tolerance: dict[str, float] = {}
        self.kept = Kept()
        self.whole_run = ""
        for side in (judged, other):
            if isinstance(side, BackendSource):
                side.hold(self.program, self.payload)

    def look_at(
        self, samples: Iterable[Sequence[torch.Tensor]], symbols: Mapping[str, Any]
    ) -> None:
        """Compare on each sample."""
        for number, sample in enumerate(samples):
            self._look(tuple(sample), dict(symbols), number)

    @full_precision()
    @same_random_numbers()
    def _look(
        self, inputs: tuple[torch.Tensor, ...], symbols: dict[str, Any], number: int
    ) -> None:
        """Compare on some inputs."""
        if number and GoldenSource in {type(self.judged), type(self.other)}:
            raise InvalidIRError(
                "captured values are of one run, so there are none for other samples",
                remedy="Leave the samples out, or compare with something that runs.",
            )
        known = check_inputs(self.program, inputs, torch.device("cpu"), symbols)
        names, written = self.program.input_names, written_values(self.program)
        require_apart(names, inputs, [i for i, name in enumerate(names) if name in written])
        given = dict(zip(names, copied(inputs), strict=True))
        _require_captured_inputs(given, self.judged, self.other)
        _require_captured_values(self.program, self.judged, self.other)
        exact = {type(self.judged), type(self.other)} <= {TorchSource, GraphSource}
        feed = feeding(self.other, self.program)
        kept, self.kept = self.kept, Kept()  # of these inputs
        values = {**self.payload, **given, **kept.values}
        state = Feed(self.program, feed, values, dict(known), is_exact=exact)
        state.tolerance, state.kept = self.tolerance, replace(kept, values={})
        self.states.append(state)
        found = (
            []
            if self.mode == "accumulated" and not self._is_fed_alone
            else list(self._isolated(state))
        )
        fed: FeedMode = "accumulated" if isinstance(self.judged, GoldenSource) else "isolated"
        self.found += [self._divergence(item, fed, number) for item in found]
        if found and self.first_part is None and self.mode != "accumulated":
            self._note_part(found[0], {**self.payload, **given}, dict(known))
        is_hidden = self.mode == "accumulated" or (self.mode == "both" and not found)
        if is_hidden and not self._is_fed_alone:
            feed = Feed(self.program, feed, {**self.payload, **given}, dict(known))
            feed.tolerance = self.tolerance
            later, why = accumulated(feed, self.judged, self.externals)
            self.later += [self._divergence(item, "accumulated", number) for item in later]
            self.whole_run = self.whole_run or why
            if self.mode == "accumulated":
                needed = nodes_behind(self.program, kept_values(self.program))
                hidden = {node.name for node in needed} - feed.covered
                names = {node.name for node in self.program.nodes}
                state.reasons |= dict.fromkeys(names if why else hidden, why or "nothing shows it")
                state.covered |= set() if why else names - hidden

    @property
    def _is_fed_alone(self) -> bool:
        return isinstance(self.judged, GoldenSource | LoweredSource)

    # -- isolated ---------------------------------------------------------------------------------

    def _isolated(self, state: Feed) -> Iterator[Found]:
        judged = self.judged
        if isinstance(judged, GoldenSource):
            return replayed(state, judged.values)
        if isinstance(judged, LoweredSource):
            return aligned_regions(state, judged.ir, self.externals)
        if isinstance(judged, BackendSource):
            return self._delegated(state, judged)
        source: PartSource = TorchSource("aten") if isinstance(judged, GraphSource) else judged
        if isinstance(judged, GraphSource) and judged.graph is not None:
            source = OwnKernels(judged.graph.ir)
        units = [((node,), source) for node in self.program.nodes]
        return self._units(state, units)

    def _delegated(self, state: Feed, source: BackendSource) -> Iterator[Found]:
        groups, order = parts_of(source, self.program)
        parts = [part for nodes in groups if nodes for part in pieces(nodes)]
        group_of = {node.name: nodes for nodes in parts for node in nodes}
        done: set[str] = set()
        units: list[tuple[tuple[OpNode, ...], PartSource]] = []
        for node in order:
            nodes = group_of.get(node.name)
            if nodes is None:
                units.append(((node,), TorchSource()))
            elif nodes[0].name not in done:
                done.add(nodes[0].name)
                units.append((nodes, source))
        return self._units(state, units)

    def _units(
        self, state: Feed, units: Sequence[tuple[tuple[OpNode, ...], PartSource]]
    ) -> Iterator[Found]:
        for nodes, source in steps(units):
            read = nodes[0].outputs if len(nodes) == 1 else live_out(self.program, nodes)
            if not any(node.outputs for node in nodes):
                state.covered |= {node.name for node in nodes}
                for node in nodes:
                    if node.binds:
                        state.known(node)
                    state.done(node)
                continue
            yield from Unit(state, source, nodes, read).found()

    # -- the report -------------------------------------------------------------------------------

    def _divergence(self, found: Found, mode: FeedMode, number: int) -> NodeDivergence:
        nodes = [node for item in found.nodes for node in self._own(item)]
        names = dict.fromkeys([node.name for node in nodes])
        made = [meta.name for item in found.nodes[-1:] for meta in item.outputs]
        shown = [meta.name for blamed in nodes[-1:] for meta in blamed.outputs]
        value = dict(zip(made, shown, strict=False)).get(found.fault.value, found.fault.value)
        told = ("", "", value, "")
        for blamed in nodes[-1:]:  # of a program without nodes none is to blame
            told = (blamed.name, blamed.op_type, value, str(blamed.location or ""))
        error = found.fault.error
        return NodeDivergence(
            *told,
            *(found.fault.kind, mode, tuple(names), number, error.reason),
            *(error.ulp, error.absolute, error.relative, error.part),
        )

    def _own(self, node: OpNode) -> list[OpNode]:
        """The nodes of the compared program of which one of the functional program is made."""
        if self.program is self.ir:
            return [self.ir.by_name.get(node.name, node)]
        found = [self.ir.by_name[name] for name in node.made_of if name in self.ir.by_name]
        return found or [node]

    def _note_part(self, found: Found, values: Tensors, symbols: dict[str, Any]) -> None:
        own = {node.name for node in found.nodes}
        nodes = [node for node in self.program.nodes if node.name in own]
        if not nodes:
            return
        shown = [meta for node in nodes for meta in node.outputs]
        body = part_of(self.program, nodes, shown)
        needed = [meta for meta in body.graph_inputs if meta.name not in values]
        before = self.program.nodes[: self.program.nodes.index(nodes[-1])]
        made = TorchSource().run(self.program, before, needed, values, symbols)
        made = {**values, **{meta.name: made[i] for i, meta in enumerate(needed)}}
        self.first_part = body, made

    def report(self) -> Comparison:
        """What came of it."""
        order = positions(self.ir)
        found = sorted(self.found, key=lambda item: (item.sample, order.get(item.node, 0)))
        seen = {name for state in self.states for name in state.compared}
        by_own = self._by_own()
        compared, inside, missed = [], [], {}
        for node in self.ir.nodes:
            made = by_own.get(node.name, [])
            told = (_not_seen(state, node, made, k) for k, state in enumerate(self.states))
            if why := next(filter(None, told), ""):
                missed[node.name] = why
            elif any(name in seen for name in made):
                compared.append(node.name)
            else:
                inside.append(node.name)
        return Comparison(
            *(self.ir.model_name, self.judged.name, self.other.name, len(self.ir.nodes)),
            (*found, *self.later),
            *(tuple(compared), tuple(inside), missed, self.whole_run),
        )

    def _by_own(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for node in self.program.nodes:
            for name in [own.name for own in self._own(node)]:
                found.setdefault(name, []).append(node.name)
        return found


def _not_seen(state: Feed, node: OpNode, made: Sequence[str], sample: int) -> str:
    """Why a node, of which others were made, was not compared on a sample; empty if it was."""
    left = [name for name in made if name not in state.compared and name not in state.covered]
    why = next((state.reasons[name] for name in left if name in state.reasons), "")
    if not why and node.outputs and len(left) == len(made) > 0:
        why = "nothing shows it"
    return f"{why} (sample {sample})" if why and sample else why
