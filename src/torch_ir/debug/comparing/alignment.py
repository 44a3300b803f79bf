"""A program beside a lowered form of it: values that both have, and the regions between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import zip_longest

import torch

from torch_ir.debug.comparing.isolation import Feed, Found
from torch_ir.debug.comparing.judgment import PartFault
from torch_ir.debug.comparing.regions import AlignedRegions, OwnValues, calls_and_names
from torch_ir.debug.comparing.sources import Externals
from torch_ir.debug.reference.tolerance_check import Error
from torch_ir.errors import InvalidIRError, counted
from torch_ir.ir import IR, OpNode, TensorMeta
from torch_ir.ir.queries import external_keys, kept_values, nodes_behind
from torch_ir.passes.common_subexpressions import call_key, is_repeatable
from torch_ir.passes.functionalization import functional_form

Tensors = Mapping[str, torch.Tensor]


def aligned_regions(state: Feed, lowered: IR, externals: Externals) -> Iterator[Found]:
    """Judge each region of a lowered program on the values of the other side, in program order.

    Where torch runs both sides, a call that is the same on the same values is not run: it is
    covered. So the cost of a pass is that of what it changes, and of what makes its operands.

    Raises:
        InvalidIRError: It takes more inputs than the program, or fewer.
    """
    own, others = len(state.program.graph_inputs), len(lowered.graph_inputs)
    if own != others:
        raise InvalidIRError(f"the lowered program takes {counted(others, 'input')}, not {own}")
    lowered = functional_form(lowered)
    return _Alignment(state, lowered, externals.of(lowered)).found()


class _Alignment:
    """A program and a lowered form of it, looked at side by side.

    Args:
        state: The program, and the side that makes values.
        lowered: The other program, functional.
        external: Its weights and constants by name.
    """

    def __init__(self, state: Feed, lowered: IR, external: Tensors):
        self.state = state
        self.program = state.program
        self.lowered = lowered
        self.there = _aligned(self.program, lowered)
        self.seen = {*self.program.input_names, *self.program.external_values()}
        self._own = OwnValues(state, lowered, self.there)
        self._regions = AlignedRegions(state, lowered, external, self._own)
        self.alike = {**_equal_externals(self.program, lowered), **self._regions.fed}

    def found(self) -> Iterator[Found]:
        """Judge the regions in program order."""
        state = self.state
        for position, node in enumerate(self.program.nodes):
            self._own.free(position)
            shown = [m for m in node.outputs if m.name in self.there and state.has(m.name)]
            if self._is_same(node, shown):
                state.covered.add(node.name)
                self._align(shown)
                called = self.lowered.producers[self.there[shown[0].name].name]
                self._regions.carrying.same[called.name] = node
                continue
            if node.binds or not node.outputs:
                self._own.make([m.name for m in (*node.inputs, *node.outputs)], [node])
            if not node.outputs:
                state.values |= state.known(node)
                state.covered.add(node.name)
            if shown:
                own = nodes_behind(self.program, [shown[0].name], self.seen)
                pairs = [(meta, self.there[meta.name]) for meta in shown]
                found = list(self._regions.faults(own, pairs))
                yield from found
                if not (found and state.is_refuted(own, shown, state.values)):
                    self._align(shown)
            if node.outputs and (lacking := state.lacking(node)):
                state.reasons[node.name] = lacking
        yield from self._found_at_ends()
        _cover_the_rest(state)

    def _found_at_ends(self) -> Iterator[Found]:
        """Judge what is returned or written in the place of another value than the own one."""
        for meta, there in dict.fromkeys(_ends(self.program, self.lowered)):
            if meta is None:
                yield from self._added(there)
                continue
            own = nodes_behind(self.program, [meta.name], self.seen)
            own = own or list(self.program.nodes[-1:])
            if not self.state.has(meta.name):
                continue
            if there is None:
                told = Error(part=float("inf"), reason=f"nothing is in the place of %{meta.name}")
                yield Found(tuple(own), PartFault(meta.name, "missing", told))
            elif there.name != self.there.get(meta.name, there).name or (
                self.alike.get(there.name) != meta.name and meta.name not in self.there
            ):
                yield from self._regions.faults(own, [(meta, there)])

    def _added(self, there: TensorMeta | None) -> Iterator[Found]:
        """Say of what the lowered program returns or writes that the program does not."""
        if there is None:
            return
        maker = self.lowered.producers.get(there.name)
        made_of = set[str]() if maker is None else calls_and_names(maker)
        own = [node for node in self.program.nodes if node.name in made_of]
        reason = "the program returns and writes nothing in its place"
        told = Error(part=float("inf"), reason=reason)
        yield Found(tuple(own or self.program.nodes[-1:]), PartFault(there.name, "extra", told))

    def _is_same(self, node: OpNode, shown: Sequence[TensorMeta]) -> bool:
        """Whether the lowered program has a node's call, on the same values, for all it makes."""
        if not self._regions.shares or not shown or len(shown) != len(node.outputs):
            return False
        others = [self.there[meta.name] for meta in shown]
        other = self.lowered.producers.get(others[0].name)
        if other is None or list(other.outputs) != others or not is_repeatable(self.program, node):
            return False
        inputs = [self.alike.get(meta.name) for meta in other.inputs]
        own = [meta.name for meta in node.inputs]
        return inputs == own and (other is node or call_key(other, own) == call_key(node, own))

    def _align(self, shown: Sequence[TensorMeta]) -> None:
        """Give what reads these in the lowered program the values of the other side."""
        for meta in shown:
            self.seen.add(meta.name)
            if self._regions.feed(self.there[meta.name].name, meta.name):
                self.alike[self.there[meta.name].name] = meta.name


def _equal_externals(program: IR, lowered: IR) -> dict[str, str]:
    """The names in a lowered program of weights and constants that are the same in the program."""
    names = {key: name for name, key in external_keys(program).items()}
    return {
        name: names[key]
        for name, key in external_keys(lowered).items()
        if key in names and program.constants.get(key) == lowered.constants.get(key)
    }


def _aligned(program: IR, lowered: IR) -> dict[str, TensorMeta]:
    """The value of the lowered program that each value is, by its name."""
    found: dict[str, TensorMeta] = {}
    exits, own_exits = [ir.view("exits", partial(_exits, ir)) for ir in (lowered, program)]
    made = {meta.name: meta for node in lowered.nodes for meta in node.outputs}
    ends = _ends(program, lowered)
    outputs = {own.name: theirs for own, theirs in ends if own is not None and theirs is not None}
    for node in program.nodes:
        for meta in node.outputs:
            same = made.get(meta.name) or outputs.get(meta.name)
            if same is None and _of_type(own_exits.get(node.made_of, []), meta) == [meta]:
                alike = _of_type(exits.get(node.made_of, []), meta)
                same = alike[0] if len(alike) == 1 else None
            if same is not None and (same.shape, same.dtype) == (meta.shape, meta.dtype):
                found[meta.name] = same
            elif meta.name in made:
                found[meta.name] = made[meta.name]
    return found


def _ends(program: IR, lowered: IR) -> Iterator[tuple[TensorMeta | None, TensorMeta | None]]:
    """What either program returns and writes, each with what the other has in its place."""
    yield from zip_longest(program.graph_outputs, lowered.graph_outputs)
    inputs = zip(lowered.input_names, program.input_names, strict=True)
    places = {**_equal_externals(program, lowered), **dict(inputs)}
    written = {places.get(m.target, m.target): m.value for m in lowered.mutations}
    for mutation in program.mutations:
        yield mutation.value, written.pop(mutation.target, None)
    for value in written.values():
        yield None, value


def _of_type(values: Iterable[TensorMeta], meta: TensorMeta) -> list[TensorMeta]:
    return [other for other in values if (other.shape, other.dtype) == (meta.shape, meta.dtype)]


def _exits(ir: IR) -> dict[tuple[str, ...], list[TensorMeta]]:
    """What leaves the nodes that are made of the same: results that others read or return."""
    returned = kept_values(ir)
    found: dict[tuple[str, ...], list[TensorMeta]] = {}
    for node in ir.nodes:
        for meta in node.outputs:
            users = ir.users.get(meta.name, ())
            leaves = meta.name in returned or any(u.made_of != node.made_of for u in users)
            if leaves:
                found.setdefault(node.made_of, []).append(meta)
    return found


def _cover_the_rest(state: Feed) -> None:
    """What no result needs is lost nowhere."""
    program = state.program
    needed = {node.name for node in nodes_behind(program, kept_values(program))}
    for node in program.nodes:
        if node.name not in needed:
            state.covered.add(node.name)
        elif node.name not in state.compared and node.name not in state.covered:
            state.reasons.setdefault(node.name, "the lowered program has no value of it")
