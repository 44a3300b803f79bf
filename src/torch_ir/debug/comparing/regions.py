"""Regions between values that a program and a lowered form of it both have, judged in turn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from operator import is_

import torch

from torch_ir.backends.delegate import CALL
from torch_ir.debug.comparing.isolation import Feed, Found
from torch_ir.debug.comparing.judgment import PartFault
from torch_ir.debug.comparing.keeping import (
    Kept,
    MadeCall,
    RecordingSource,
    Room,
    is_laid_out_alike,
    memory_of,
    new_bytes,
    storages_of,
)
from torch_ir.debug.comparing.sources import TorchSource, part_of
from torch_ir.debug.reference.denotation import Meaning, meaning_of
from torch_ir.debug.reference.tolerance_check import Error, same_bits
from torch_ir.errors import Raised, attempt, error_text
from torch_ir.ir import IR, OpNode, TensorMeta
from torch_ir.ir.node import needs
from torch_ir.ir.queries import kept_values, last_uses, nodes_behind, positions, symbol_makers
from torch_ir.ops.choices import VALUES_OPEN
from torch_ir.passes.common_subexpressions import is_repeatable
from torch_ir.semantics.dtypes import Array

Tensors = Mapping[str, torch.Tensor]


@dataclass
class _Result:
    """A value of the program, that of the lowered program, and what makes that."""

    meta: TensorMeta
    there: TensorMeta
    theirs: list[OpNode]
    made: torch.Tensor | Exception | None = None


class OwnValues:
    """Values of the program, which the other side makes when they are first needed.

    Args:
        state: The program, and the side that makes values.
        lowered: The other program.
        there: Its value that each value is.

    Attributes:
        room: The memory for values that are kept.
    """

    def __init__(self, state: Feed, lowered: IR, there: Mapping[str, TensorMeta]):
        self._state, self._lowered, self._there = state, lowered, there
        self.room = Room()
        self._sizes = memory_of(state.program, state.values)
        called = [tensor for call in state.kept.calls.values() for tensor in call.made.values()]
        seen = storages_of(state.values.values())
        self.room.held = sum(self._sizes.values()) + new_bytes(called, seen)
        self._last: dict[str, int] | None = None

    def make(self, names: Iterable[str], readers: Sequence[OpNode] = ()) -> None:
        """Let the other side make values of the program, and what they and some nodes need."""
        for node in _needed(self._state, names, readers):
            made = self._state.known(node)
            self._state.values |= made
            if is_repeatable(self._state.program, node):  # it can be made again
                seen = storages_of(self._state.values[meta.name] for meta in node.inputs)
                sizes = {name: new_bytes([tensor], seen) for name, tensor in made.items()}
                self.room.held += sum(sizes.values())
                self._sizes |= sizes

    def free(self, position: int) -> None:
        """Free values before a node that nothing needs from it on, if there are many."""
        if not self.room.is_full:
            return
        if self._last is None:
            self._last = _last_readers(self._state.program, self._lowered, self._there)
        for name in [name for name in self._sizes if self._last[name] < position]:
            self.room.held -= self._sizes.pop(name)
            del self._state.values[name]


def _last_readers(program: IR, lowered: IR, there: Mapping[str, TensorMeta]) -> dict[str, int]:
    """The position of the last node of a program for which either side reads each value."""
    judged = {
        there[meta.name].name: position
        for position, node in enumerate(program.nodes)
        for meta in node.outputs
        if meta.name in there
    }
    end, read = len(program.nodes), dict[str, int]()  # by name in the lowered program
    for node in reversed(lowered.nodes):
        made = [meta.name for meta in node.outputs]
        at = max([judged.get(name, read.get(name, end)) for name in made], default=end)
        for meta in node.inputs:
            read[meta.name] = max(at, read.get(meta.name, 0))
    last = last_uses(program.nodes, kept_values(program))
    lowered_too = {name: read.get(meta.name, 0) for name, meta in there.items() if name in last}
    return last | {name: max(last[name], reader) for name, reader in lowered_too.items()}


def _needed(state: Feed, names: Iterable[str], readers: Sequence[OpNode]) -> list[OpNode]:
    """The nodes, in order, that make values and symbols of ``readers`` which are not known."""
    program, found = state.program, set[str]()
    makers = {s: name for s, name in symbol_makers(program).items() if s not in state.symbols}

    def of(names: Iterable[str], nodes: Sequence[OpNode]) -> list[OpNode | None]:
        made = [program.producers.get(name) for name in names if name not in state.values]
        sized = [makers[s] for s in makers if any(s in node.symbols for node in nodes)]
        return [*made, *[program.by_name[name] for name in sized]]

    wanted = of(names, readers)
    while wanted:
        node = wanted.pop()
        if node is not None and node.name not in found:
            found.add(node.name)
            wanted += of([meta.name for meta in node.inputs], [node])
    return _in_order(program, found)


class Carrying:
    """What comparing a program with what it becomes takes over from comparing it with another.

    Args:
        state: The program before, and the side that makes values.
        lowered: The program.
        external: Its weights and constants by name.
        room: The memory for values that are kept.

    Attributes:
        same: The node of the program before whose call a node makes on the same values, by name.
        taken: The value of the program before that is fed for one which agrees with it, by name.
    """

    def __init__(self, state: Feed, lowered: IR, external: Tensors, room: Room):
        self._state, self._lowered = state, lowered
        self._external, self._room = external, room
        self.same = dict[str, OpNode]()
        self.taken = dict[str, str]()

    def kept(self) -> tuple[Kept, Kept]:
        """Return the values of both programs, for comparing them with others made of them."""
        state, lowered = self._state, self._lowered
        names = zip(lowered.input_names, state.program.input_names, strict=True)
        values = {name: state.values[own] for name, own in names}
        own, theirs = Kept(state.values, state.kept.moved, state.kept.calls), Kept(values)
        if isinstance(state.other, TorchSource):
            self._carry(theirs)
        for program, kept in ((state.program, own), (lowered, theirs)):
            for node in program.nodes:
                if node.binds:  # it is called again, for its numbers
                    for meta in node.outputs:
                        kept.values.pop(meta.name, None)
        if self._room.is_full:
            own = own.fitting(state.program, self._external.values())
            theirs = theirs.fitting(lowered, self._external.values())
        return own, theirs

    def _carry(self, kept: Kept) -> None:
        """Keep values of the lowered program, each of what is kept of those before."""
        values = self._state.values
        for node in self._lowered.nodes:
            read = [kept.values.get(m.name, self._external.get(m.name)) for m in node.inputs]
            own = self.same.get(node.name)
            call = self._room.calls.get(node.name) if own is None else self._own_call(own, node)
            if call is not None and not _are_same(call.given, read):
                call = None
            names = [meta.name for meta in node.outputs]
            if own is None:
                taken = {n: self.taken[n] for n in names if n in self.taken}
            else:
                taken = {n: meta.name for n, meta in zip(names, own.outputs, strict=True)}
            fed = {n: values[name] for n, name in taken.items() if name in values}
            kept.add(node, {**(call.made if call else {}), **fed}, call)

    def _own_call(self, own: OpNode, node: OpNode) -> MadeCall | None:
        """How an own node made its results, by the names of a node that makes the same call."""
        values, kept = self._state.values, self._state.kept
        names = {m.name: there.name for m, there in zip(own.outputs, node.outputs, strict=True)}
        call = kept.calls.get(own.name)
        known = all(name in values for name in (*names, *[meta.name for meta in own.inputs]))
        if known and kept.moved.isdisjoint(names):
            given = tuple([values[meta.name] for meta in own.inputs])
            call = MadeCall(given, {}, {name: values[name] for name in names})
        if call is None:
            return None
        return call._replace(made={names[name]: value for name, value in call.made.items()})


class AlignedRegions:
    """The parts of a program and of a lowered form that make values which both have.

    Args:
        state: The program, and the side that makes values.
        lowered: The other program, functional.
        external: Its weights and constants by name.
        own: The values of the program.

    Attributes:
        fed: The name of the value of the program that is fed for a lowered one, by its name.
        given: The lowered values that a part takes as they are given.
        shares: Whether torch makes the values of both programs.
        carrying: What a later comparison takes over.
    """

    def __init__(self, state: Feed, lowered: IR, external: Tensors, own: OwnValues):
        self.state, self.program, self.lowered = state, state.program, lowered
        self.external = external
        self.fed = dict(zip(lowered.input_names, state.program.input_names, strict=True))
        self.given = {*external, *self.fed}
        self.shares = isinstance(state.other, TorchSource)
        self._own = own
        self._agreed = set[str]()
        self._again = RecordingSource(room=Room(calls=state.kept.calls, is_short=True))
        self._theirs = RecordingSource(room=own.room)
        self.carrying = Carrying(state, lowered, external, own.room)
        state.carry = self.carrying.kept

    def feed(self, name: str, own: str) -> bool:
        """Feed a value of the program in the place of a lowered one; one that is given stays."""
        if name in self.given:
            return False
        self.given.add(name)
        self.fed[name] = own
        return True

    def faults(
        self, own: list[OpNode], pairs: Iterable[tuple[TensorMeta, TensorMeta]]
    ) -> Iterator[Found]:
        """Judge results of one node, which both programs have."""
        state, names = self.state, {node.name for node in own}
        results = [_Result(meta, there, self._theirs_behind(there)) for meta, there in pairs]
        known: Tensors = state.values
        if self.shares:
            for result in results:
                self._make(result)
            known = self._known(own, [result.meta for result in results])
        left = [result for result in results if not self._is_equal(own, result, known)]
        faults = self._judged(own, left, known) if left else []
        if isinstance(faults, str):
            state.reasons.update(dict.fromkeys(names, faults))
            return
        state.covered |= names
        if faults is not None:
            metas = [result.meta for result in results]
            state.compared |= {n.name for n in own if any(m in metas for m in n.outputs)}
            yield from [Found(_blamed(own, result.theirs), fault) for result, fault in faults]

    def _theirs_behind(self, there: TensorMeta) -> list[OpNode]:
        """The lowered nodes between what is given and a value.

        None for a value in whose place one is given with which it agreed.
        """
        if there.name in self._agreed:
            return []
        return nodes_behind(self.lowered, [there.name], self.given)

    def _judged(
        self, own: list[OpNode], results: Sequence[_Result], known: Tensors
    ) -> list[tuple[_Result, PartFault]] | str | None:
        """Judge results by what they mean; return the faults, or why they cannot be judged.

        None where shape and type are all that there is.
        """
        body = part_of(self.program, own, [result.meta for result in results])
        there = {result.there.name: result.there for result in results}
        theirs = {node.name for result in results for node in result.theirs}
        part = part_of(self.lowered, _in_order(self.lowered, theirs), [*there.values()])
        meaning, other = (meaning_of(p.replace(signature=None)) for p in (body, part))
        if isinstance(meaning, str) or isinstance(other, str):
            return meaning if isinstance(meaning, str) else str(other)
        if why := meaning.open_reason or other.open_reason:
            return None if all(node.op_type in VALUES_OPEN for node in own) else why
        self._own.make(body.input_names)
        for result in results:
            if result.made is None:
                self._make(result)
        raised = [(r, _raised(r.meta, r.made)) for r in results if isinstance(r.made, Exception)]
        if raised:
            rest = [result for result in results if isinstance(result.made, torch.Tensor)]
            faults = self._judged(own, rest, known) if rest else []
            return [*raised, *faults] if isinstance(faults, list) else raised
        made = [result.made for result in results if isinstance(result.made, torch.Tensor)]
        slack = cache(lambda: self._slack(part, other, results))
        given = self.state.values
        faults = self.state.judging.faults(body, meaning, given, known, made, slack=slack)
        if isinstance(faults, str):
            return faults
        by_value = {result.meta.name: result for result in results}
        for name in by_value.keys() - {fault.value for fault in faults}:
            self._take(own, by_value[name])
        return [(by_value[fault.value], fault) for fault in faults]

    def _make(self, result: _Result) -> None:
        """Let torch make a value of the lowered program; the own one is made as well."""
        self._own.make([result.meta.name], result.theirs)
        given = self._given(needs(result.theirs, [result.there]))
        run, symbols = self._theirs.run, self.state.symbols
        made = attempt(run, self.lowered, result.theirs, [result.there], given, symbols)
        result.made = made.error if isinstance(made, Raised) else made[0]

    def _known(self, own: Sequence[OpNode], metas: Sequence[TensorMeta]) -> Tensors:
        """What the nodes of a region make themselves, where other values are fed for it."""
        values = self.state.values
        if self.state.kept.moved.isdisjoint([m.name for node in own for m in node.outputs]):
            return values
        names = needs(own, metas)
        self._own.make(names)
        given = {name: values[name] for name in names}
        made = self._again.run(self.program, own, metas, given, self.state.symbols)
        return {meta.name: value for meta, value in zip(metas, made, strict=True)}

    def _is_equal(self, own: Sequence[OpNode], result: _Result, known: Tensors) -> bool:
        """Whether torch made the same of both to the bit, which needs no meaning."""
        if not isinstance(result.made, torch.Tensor):
            return False
        value, name = known[result.meta.name], result.there.name
        if same_bits(value, result.made).reason:
            return False
        maker = self.lowered.producers.get(name)
        call = None if maker is None else self._own.room.calls.get(maker.name)
        if call is not None and is_laid_out_alike(value, result.made):
            call.made[name] = value
        self._take(own, result)
        return True

    def _take(self, own: Sequence[OpNode], result: _Result) -> None:
        """Feed the own value to what reads the lowered one in a later comparison as well."""
        if result.there.name in self.given or not isinstance(result.made, torch.Tensor):
            return
        self._agreed.add(result.there.name)
        if not self.shares:
            return
        repeats = [is_repeatable(self.program, node) for node in own]
        repeats += [is_repeatable(self.lowered, node) for node in result.theirs]
        if all(repeats) and is_laid_out_alike(self.state.values[result.meta.name], result.made):
            self.carrying.taken[result.there.name] = result.meta.name

    def _slack(self, part: IR, meaning: Meaning, results: Sequence[_Result]) -> dict[str, Array]:
        """How far lowered results may be off what they mean themselves."""
        made = {r.there.name: r.made for r in results if isinstance(r.made, torch.Tensor)}
        known = {r.there.name: self.state.values[r.meta.name] for r in results}
        given = [made[name] for name in part.output_names]
        judging = self.state.judging
        if judging.form_faults(part, known, given):
            return {}
        call = OpNode("part", CALL, part.graph_inputs, part.graph_outputs)
        allowed = judging.allowed(call, meaning, self._given(part.input_names), given)
        bounds = dict(zip(part.output_names, [item.bound for item in allowed], strict=False))
        return {r.meta.name: bounds[r.there.name] for r in results if r.there.name in bounds}

    def _given(self, names: Iterable[str]) -> Tensors:
        """The values that a part of the lowered program takes."""
        own = {n: self.fed[n] for n in names if n in self.fed}
        self._own.make(own.values())
        fixed = {n: self.external[n] for n in names if n not in own}
        return {**fixed, **{name: self.state.values[mine] for name, mine in own.items()}}


def _are_same(tensors: Sequence[torch.Tensor], others: Sequence[torch.Tensor | None]) -> bool:
    return len(tensors) == len(others) and all(map(is_, tensors, others))


def _raised(meta: TensorMeta, error: Exception) -> PartFault:
    told = Error(part=float("inf"), reason=error_text(error))
    return PartFault(meta.name, "error", told)


def _blamed(own: list[OpNode], theirs: list[OpNode]) -> tuple[OpNode, ...]:
    """The nodes of the region of which the lowered ones are made; all if nothing says so."""
    made_of = {name for node in theirs for name in node.made_of}
    found = tuple([node for node in own if made_of & calls_and_names(node)])
    return found or tuple(own)


def calls_and_names(node: OpNode) -> set[str]:
    """What a node is made of, and the calls around it: ``a.b`` is a node of what ``a`` calls."""
    parts = [name.split(".") for name in node.made_of]
    return {".".join(names[:end]) for names in parts for end in range(1, len(names) + 1)}


def _in_order(ir: IR, names: Set[str]) -> list[OpNode]:
    return [ir.nodes[i] for i in sorted(positions(ir)[name] for name in names)]
