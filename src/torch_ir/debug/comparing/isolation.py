"""Parts of a program, each on the values of the other side, and the place of a fault in them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

from torch_ir.debug.comparing.judgment import Judging, PartFault
from torch_ir.debug.comparing.keeping import Kept
from torch_ir.debug.comparing.sources import (
    BackendSource,
    GoldenSource,
    PartSource,
    ReferenceSource,
    TorchSource,
    Values,
    part_of,
)
from torch_ir.debug.eager import same_random_numbers
from torch_ir.debug.reference.denotation import REFUSED, Meaning, Meanings, meaning_of
from torch_ir.debug.reference.eager_call import bind
from torch_ir.debug.reference.strides import READS_MEMORY, part_reads_memory
from torch_ir.debug.reference.tolerance_check import Error, same_bits
from torch_ir.debug.shrinking.minimal import minimal
from torch_ir.errors import Raised, TorchIRError, attempt, error_text
from torch_ir.ir import IR, OpNode, TensorMeta
from torch_ir.ir.node import distinct_inputs
from torch_ir.ir.queries import live_out
from torch_ir.ops.choices import VALUES_OPEN

MAX_BYTES = 64 << 20
"""A subgraph whose values are larger together is judged in pieces: bounds take memory."""
MAX_PAIRS = 100
"""In a subgraph of so many nodes at most, neighbors are tried together as well."""


@dataclass(frozen=True, slots=True)
class Found:
    """A fault, with the nodes among which it is."""

    nodes: tuple[OpNode, ...]
    fault: PartFault


@dataclass
class Feed:
    """Values of the other side at some place of the program, and what has been seen.

    Attributes:
        program: The functional program.
        other: What is compared with.
        values: Values by name, as long as something needs them.
        symbols: The symbols known by now.
        compared: Nodes whose own value was seen.
        covered: Nodes inside of a region whose results agree.
        reasons: Why others were not compared.
        unseen: Nodes of whose results a captured run has none, or wrong ones.
        flow: What the judged side made of those, instead of values of the other side.
        kept: What earlier comparisons of the program left.
        carry: Says what is to be kept of the program and of the lowered one, once it was compared.
    """

    program: IR
    other: PartSource
    values: dict[str, torch.Tensor]
    symbols: dict[str, int | float | bool]
    is_exact: bool = False
    tolerance: Mapping[str, float] = field(default_factory=dict[str, float])
    compared: set[str] = field(default_factory=set[str])
    covered: set[str] = field(default_factory=set[str])
    reasons: dict[str, str] = field(default_factory=dict[str, str])
    unseen: set[str] = field(default_factory=set[str])
    flow: dict[str, torch.Tensor] = field(default_factory=dict[str, torch.Tensor])
    kept: Kept = field(default_factory=Kept)
    carry: Callable[[], tuple[Kept, Kept]] = lambda: (Kept(), Kept())

    def __post_init__(self) -> None:
        users = self.program.users
        self._left = {name: len(nodes) for name, nodes in users.items()}
        self._kept = {*self.program.output_names, *self.program.external_values()}

    @property
    def meanings(self) -> Meanings:
        """What each node means, found when it is first asked for."""
        return self.program.view("meanings", lambda: Meanings(self.program))

    @property
    def judging(self) -> Judging:
        """How results are judged here."""
        return Judging(self.is_exact, isinstance(self.other, ReferenceSource), self.symbols)

    def has(self, name: str) -> bool:
        """Return whether the other side has a value of its own; captured ones may lack some."""
        return not isinstance(self.other, GoldenSource) or name in self.other.values

    def lacking(self, node: OpNode) -> str:
        """Return why the results of a node cannot be compared with captured ones, or nothing."""
        return (
            not_captured(node, self.other.values) if isinstance(self.other, GoldenSource) else ""
        )

    def since_seen(self, node: OpNode) -> list[OpNode]:
        """Return a node with those before it back to values that were seen, in program order."""
        found, wanted = {node.name}, list(node.inputs)
        while wanted and self.unseen:
            made = self.program.producers.get(wanted.pop().name)
            if made is not None and made.name in self.unseen and made.name not in found:
                found.add(made.name)
                wanted += made.inputs
        if len(found) == 1:
            return [node]
        return [item for item in self.program.nodes if item.name in found]

    def done(self, node: OpNode) -> None:
        """Drop what no later node reads; behind captured values all may be needed."""
        if isinstance(self.other, GoldenSource):
            return
        for meta in distinct_inputs(node):
            left = self._left[meta.name] = self._left.get(meta.name, 0) - 1
            if left <= 0 and meta.name not in self._kept:
                self.values.pop(meta.name, None)
        for meta in node.outputs:
            if not self._left.get(meta.name) and meta.name not in self._kept:
                self.values.pop(meta.name, None)

    def slack(self, nodes: Sequence[OpNode], returned: Sequence[TensorMeta]) -> dict[str, float]:
        """Return what the caller allows the results of nodes besides."""
        more = sum(self.tolerance.get(node.op_type, 0.0) for node in nodes)
        return {meta.name: more for meta in returned}

    def seeded(self, nodes: Sequence[OpNode]) -> AbstractContextManager[None]:
        """Return where nodes are to run: if they draw random numbers, both sides draw the same."""
        draws = any(self.program.effects(node).draws for node in nodes)
        return same_random_numbers() if draws else nullcontext()

    def known(self, node: OpNode) -> dict[str, torch.Tensor]:
        """Return what the other side makes of a node on the values so far, and note what it binds.

        Numbers that a node binds are in no value: torch gives them.
        """
        with self.seeded([node]):
            return self._known(node)

    def _known(self, node: OpNode) -> dict[str, torch.Tensor]:
        if isinstance(self.other, TorchSource) or node.binds:
            return TorchSource().results(self.program, node, self.values, self.symbols)
        body = part_of(self.program, [node], node.outputs)
        try:
            made = self.other.call(body, self.values, self.symbols)
        except TorchIRError:  # its node is then told as not compared; the rest goes on
            if not isinstance(self.other, ReferenceSource):
                raise
            return TorchSource().results(self.program, node, self.values, self.symbols)
        bind(
            node,
            {meta.producer_output_idx: made[i] for i, meta in enumerate(node.outputs)},
            self.symbols,
        )
        return {meta.name: made[i] for i, meta in enumerate(body.graph_outputs)}

    def is_refuted(
        self, nodes: Sequence[OpNode], returned: Sequence[TensorMeta], known: Values
    ) -> bool:
        """Return whether captured results of nodes are not what these mean."""
        if not isinstance(self.other, GoldenSource):
            return False
        body = part_of(self.program, nodes, returned)
        meant = attempt(ReferenceSource().call, body, self.values, self.symbols)
        if isinstance(meant, Raised):
            return False
        made = {meta.name: meant[i] for i, meta in enumerate(body.graph_outputs)}
        judged = replace(self, other=ReferenceSource())
        captured = [known[meta.name] for meta in returned]
        faults = region_faults(judged, nodes, returned, self.values, made, captured)
        return bool(faults) and not isinstance(faults, str)

    def flow_on(self, node: OpNode, results: Sequence[torch.Tensor]) -> None:
        """Go on with what the judged side made: captured results are missing, or are wrong."""
        self.unseen.add(node.name)
        self.flow |= {m.name: made for m, made in zip(node.outputs, results, strict=False)}


def not_captured(node: OpNode, values: Values) -> str:
    """Return why captured values cannot tell what a node gave; empty if they can."""
    missing = [meta.name for meta in node.outputs if meta.name not in values]
    if len(missing) == len(node.outputs) > 0:
        return "its value was not captured"
    return f"%{missing[0]} was not captured" if missing else ""


def node_faults(
    state: Feed, node: OpNode, known: Values, results: Sequence[torch.Tensor]
) -> list[PartFault] | str:
    """Return what is wrong with the results of one node, or why it cannot be judged."""
    meaning = state.meanings.of(node)
    body = part_of(state.program, [node], node.outputs)
    if state.is_exact:
        if node.op_type not in VALUES_OPEN:  # whatever is in memory may be equal by chance
            faults = state.judging.faults(body, None, state.values, known, results)
            if not faults or not _leaves_open(meaning):
                return faults
        state = replace(state, is_exact=False)
    if isinstance(meaning, str):
        return meaning
    if part_reads_memory(body, state.values):
        return READS_MEMORY
    if meaning.open_reason:
        return state.judging.form_faults(body, known, results) or meaning.open_reason
    slack = partial(state.slack, [node], node.outputs)
    judging = state.judging
    try:
        return judging.faults(body, meaning, state.values, known, results, call=node, slack=slack)
    except TorchIRError as error:
        return f"{REFUSED}: {error_text(error)}"


def _leaves_open(meaning: Meaning | str) -> bool:
    """Return whether right results of torch's own may differ.

    They do in memory that nothing has written, and in what stays where several values are put.
    """
    return not isinstance(meaning, str) and (meaning.has_open_values or meaning.has_choices)


def region_faults(
    state: Feed,
    nodes: Sequence[OpNode],
    returned: Sequence[TensorMeta],
    values: Values,
    known: Values,
    results: Sequence[torch.Tensor],
) -> list[PartFault] | str:
    """Return what is wrong with the results of several nodes, or why they cannot be judged."""
    body = part_of(state.program, nodes, returned)
    if state.is_exact:
        return state.judging.faults(body, None, values, known, results)
    meaning = meaning_of(body.replace(signature=None))
    if isinstance(meaning, str):
        return meaning
    if part_reads_memory(body, values):
        return READS_MEMORY
    if meaning.open_reason:
        return meaning.open_reason
    slack = partial(state.slack, nodes, returned)
    try:
        return state.judging.faults(body, meaning, values, known, results, slack=slack)
    except TorchIRError as error:
        return f"{REFUSED}: {error_text(error)}"


def faults_since(
    state: Feed, node: OpNode, known: Values, results: Sequence[torch.Tensor]
) -> list[PartFault] | str:
    """Return what is wrong with a node, judged from the values before it that were seen."""
    nodes = state.since_seen(node)
    if len(nodes) == 1:
        return node_faults(state, node, known, results)
    return region_faults(state, nodes, node.outputs, state.values, known, results)


def pieces(nodes: Sequence[OpNode]) -> Iterator[tuple[OpNode, ...]]:
    """Yield the nodes of a subgraph, in order, in parts whose values fit together."""
    piece, size = list[OpNode](), 0
    for node in nodes:
        own = sum(meta.nbytes or 0 for meta in node.outputs)
        if piece and size + own > MAX_BYTES:
            yield tuple(piece)
            piece, size = [], 0
        piece.append(node)
        size += own
    yield tuple(piece)


def _neighbors(
    program: IR, nodes: Sequence[OpNode], returned: Sequence[TensorMeta]
) -> Iterator[tuple[OpNode, ...]]:
    """Pairs of nodes of which only the second reads the first."""
    inside = {node.name: node for node in nodes}
    wanted = {meta.name for meta in returned}
    for node in nodes:
        users = [user for meta in node.outputs for user in program.users.get(meta.name, ())]
        names = {user.name for user in users}
        if (
            len(names) == 1
            and names <= inside.keys()
            and wanted.isdisjoint([meta.name for meta in node.outputs])
        ):
            yield node, inside[names.pop()]


class _Part:
    """A subgraph that one source runs, as a whole or pieces of it.

    Args:
        state: The other side, where the subgraph begins.
        source: What is judged.
        nodes: The nodes, in order.
        returned: What the rest of the program reads of them.
    """

    def __init__(
        self,
        state: Feed,
        source: PartSource,
        nodes: Sequence[OpNode],
        returned: Sequence[TensorMeta],
    ):
        self.state = state
        self.source = source
        self.nodes = tuple(nodes)
        self.returned = tuple(returned)
        self.known: dict[str, torch.Tensor] = {}
        names = {meta.name for node in nodes for meta in node.inputs}
        self.given = {name: state.values[name] for name in names & state.values.keys()}

    def _half(self, nodes: Sequence[OpNode], values: Values) -> tuple[OpNode, ...]:
        """A half of nodes that cannot be judged together, or a half of one, that shows a fault."""
        middle = len(nodes) // 2
        for half in (tuple(nodes[:middle]), tuple(nodes[middle:])):
            if len(half) < 2:
                continue  # it was judged alone
            faults = self._faults(half, values)
            found = self._half(half, values) if isinstance(faults, str) else half if faults else ()
            if found:
                return found
        return ()

    def _pairs(self, nodes: Sequence[OpNode]) -> Iterator[tuple[OpNode, ...]]:
        return _neighbors(self.state.program, nodes, self.returned)

    def _smallest(self, every: tuple[OpNode, ...], values: Values) -> tuple[OpNode, ...]:
        """The shortest run that shows a fault, without what it does not need; or a pair in it.

        A pair has the tightest bound of all that shows a fault of two nodes together.
        """
        ends = range(1, len(every))
        end = 1 + bisect_left(ends, True, key=lambda end: self._fails(every[:end], values))
        if not self._fails(every[:end], values):
            return ()
        last = [pair for pair in self._pairs(every[:end]) if pair[-1] is every[end - 1]]
        if pair := self._failing(last, values):
            return pair
        starts = range(1, end)
        start = bisect_left(starts, True, key=lambda at: not self._fails(every[at:end], values))
        nodes = self._needed(every[start:end], values)
        return self._failing(self._pairs(nodes), values) or nodes

    def _needed(self, nodes: tuple[OpNode, ...], values: Values) -> tuple[OpNode, ...]:
        """Leave out nodes without which the last still shows the fault."""
        *before, last = nodes
        return (*minimal(before, lambda rest: self._fails([*rest, last], values)), last)

    def _failing(
        self, parts: Iterable[tuple[OpNode, ...]], values: Values
    ) -> tuple[OpNode, ...] | None:
        return next((nodes for nodes in parts if self._fails(nodes, values)), None)

    def _fails(self, nodes: Sequence[OpNode], values: Values) -> bool:
        return bool(nodes) and bool(self._of(nodes, values))

    def _of(self, nodes: Sequence[OpNode], values: Values) -> list[Found]:
        """What is wrong with some nodes run together."""
        found = self._faults(nodes, values)
        return [] if isinstance(found, str) else found

    def _faults(self, nodes: Sequence[OpNode], values: Values) -> list[Found] | str:
        """What is wrong with some nodes run together, or why they cannot be judged."""
        returned = live_out(self.state.program, nodes, unread=True)
        return self._judgments(nodes, returned, values, self._run(nodes, returned, values))

    def _judgments(
        self,
        nodes: Sequence[OpNode],
        returned: Sequence[TensorMeta],
        values: Values,
        results: Sequence[torch.Tensor] | Exception,
    ) -> list[Found] | str:
        """What is wrong with these results of some nodes, or why they cannot be judged."""
        if isinstance(results, Exception):
            return [self._raised(nodes, results)]
        if len(nodes) == 1:
            state = replace(self.state, values=dict(values))
            faults = node_faults(state, nodes[0], self.known, results)
        else:
            faults = region_faults(self.state, nodes, returned, values, self.known, results)
        return faults if isinstance(faults, str) else [Found(tuple(nodes), f) for f in faults]

    def _run(
        self, nodes: Sequence[OpNode], returned: Sequence[TensorMeta], values: Values
    ) -> Sequence[torch.Tensor] | Exception:
        body = part_of(self.state.program, nodes, returned)
        with self.state.seeded(nodes):
            made = attempt(self.source.call, body, values, self.state.symbols)
        return made.error if isinstance(made, Raised) else made

    def _is_error(self, nodes: Sequence[OpNode], values: Values) -> bool:
        live = live_out(self.state.program, nodes, unread=True)
        return isinstance(self._run(nodes, live, values), Exception)

    def _raised(self, nodes: Sequence[OpNode], error: Exception) -> Found:
        value = nodes[-1].outputs[0].name if nodes[-1].outputs else ""
        told = Error(part=float("inf"), reason=error_text(error))
        return Found(tuple(nodes), PartFault(value, "error", told))


class Unit(_Part):
    """A subgraph that one source runs as a whole, and what is wrong with it."""

    def found(self) -> list[Found]:
        """Return what is wrong, each fault with its nodes."""
        state = self.state
        alone: list[Found] = []
        seen: set[str] = set()
        raised: dict[str, Exception] = {}
        wanted = {meta.name for meta in self.returned}
        results: Sequence[torch.Tensor] | Exception = ()
        for node in self.nodes:
            known = state.known(node)
            fed = {**state.values, **state.flow} if state.flow else state.values
            results = self._run([node], node.outputs, fed)
            if not isinstance(results, Exception):
                alone += self._judged(node, known, results, seen)
            elif len(self.nodes) == 1:
                state.reasons[node.name] = "it raised"
                alone = [self._raised([node], results)]
            elif lacking := state.lacking(node):
                state.flow_on(node, ())
                state.reasons[node.name] = lacking
            else:
                raised[node.name] = results
                state.reasons[node.name] = f"alone it raised {error_text(results)}"
            state.values |= known
            self.known |= known
            state.done(node)
        state.values |= {name: self.known[name] for name in wanted}
        if len(self.nodes) == 1:
            return alone or self._again(results, self.nodes[0].outputs, self.known)
        return self._together(alone, seen, raised)

    def _judged(
        self, node: OpNode, known: Values, results: Sequence[torch.Tensor], seen: set[str]
    ) -> list[Found]:
        state = self.state
        if lacking := state.lacking(node):
            state.flow_on(node, results)
            state.reasons[node.name] = lacking
            return []
        faults = faults_since(state, node, known, results)
        if isinstance(faults, str):
            if node.op_type in VALUES_OPEN:  # shape and type are all that it has
                state.covered.add(node.name)
            else:
                state.reasons[node.name] = faults
            return []
        if faults and state.is_refuted(state.since_seen(node), node.outputs, known):
            state.flow_on(node, results)
        state.compared.add(node.name)
        seen.add(node.name)
        return [Found((node,), fault) for fault in faults]

    def _together(
        self, alone: list[Found], seen: set[str], raised: Mapping[str, Exception]
    ) -> list[Found]:
        """What is wrong with nodes alone, or else what only several at once do wrong."""
        state, producers = self.state, self.state.program.producers
        returned = [meta for meta in self.returned if state.has(meta.name)]
        before = {producers[name].name for name in self.given if name in producers}
        if not returned or before & state.unseen:
            return alone
        whole = self._run(self.nodes, returned, self.given)
        values = {**self.given, **self.known}
        unseen = any(node.name in state.unseen for node in self.nodes)
        if isinstance(whole, Exception):
            state.reasons |= dict.fromkeys(raised, "it raised")
            for node in self.nodes:
                state.reasons.setdefault(node.name, "its part raised")
            return [*alone, *(self._errors(raised, values) or self._error(whole, values))]
        if alone:
            return alone
        faults = region_faults(state, self.nodes, returned, values, self.known, whole)
        if unseen:
            return [] if isinstance(faults, str) else [Found(self.nodes, f) for f in faults]
        if isinstance(faults, str):
            if half := self._half(self.nodes, values):
                return self._of(self._smallest(half, values) or half, values)
        elif faults:
            nodes = self._smallest(self.nodes, values)
            found = self._of(nodes, values) if nodes else [Found(self.nodes, f) for f in faults]
            return [*found, *self._wrong_pairs(values, nodes)] if len(nodes) == 2 else found
        else:
            state.covered |= {node.name for node in self.nodes} - seen
            for node in self.nodes:
                state.reasons.pop(node.name, None)
        if again := self._again(whole, returned, values):
            return again
        return self._wrong_pairs(values)

    def _wrong_pairs(self, values: Values, known: Sequence[OpNode] = ()) -> list[Found]:
        """What neighbors do wrong together, each node in one pair; not those that are known."""
        found, used = list[Found](), {node.name for node in known}
        for nodes in self._pairs(self.nodes) if len(self.nodes) <= MAX_PAIRS else ():
            names = {node.name for node in nodes}
            if used.isdisjoint(names) and (wrong := self._of(nodes, values)):
                found += wrong
                used |= names
        return found

    def _errors(self, raised: Mapping[str, Exception], values: Values) -> list[Found]:
        """The nodes that raise alone, and with each neighbor too."""
        pairs = [pair for pair in self._pairs(self.nodes) if any(n.name in raised for n in pair)]
        fine = {n.name for pair in pairs if not self._is_error(pair, values) for n in pair}
        return [
            self._raised([node], raised[node.name])
            for node in self.nodes
            if node.name in raised and node.name not in fine
        ]

    def _error(self, error: Exception, values: Values) -> list[Found]:
        """The smallest part that raises, where all nodes together do."""
        nodes = self._smallest(self.nodes, values) or self.nodes
        results = self._run(nodes, live_out(self.state.program, nodes, unread=True), values)
        return [self._raised(nodes, results if isinstance(results, Exception) else error)]

    def _again(
        self,
        first: Sequence[torch.Tensor] | Exception,
        returned: Sequence[TensorMeta],
        values: Values,
    ) -> list[Found]:
        """What a second call of what a backend compiled does wrong, as of state that it keeps."""
        if not isinstance(self.source, BackendSource) or isinstance(first, Exception):
            return []
        values = {**self.given, **values}
        results = self._run(self.nodes, returned, values)
        if not isinstance(results, Exception) and _are_equal(first, results):
            return []
        found = self._judgments(self.nodes, returned, values, results)
        if isinstance(found, str) or not found:
            return []
        if len(self.nodes) > 1:
            found = [item for node in self.nodes for item in self._of([node], values)] or found
        return [
            Found(item.nodes, replace(item.fault, error=item.fault.error.in_a_second_call()))
            for item in found
        ]


def _are_equal(first: Sequence[Any], second: Sequence[Any]) -> bool:
    """Whether two calls gave the same to the bit; what is no tensor is not."""
    pairs = [*zip(first, second, strict=False)]
    tensors = all(isinstance(item, torch.Tensor) for pair in pairs for item in pair)
    is_whole = len(first) == len(second) and tensors
    return is_whole and not any(same_bits(*pair).reason for pair in pairs)
