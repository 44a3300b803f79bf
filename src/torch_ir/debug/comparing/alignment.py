"""A program beside a lowered form of it: values that both have, and the regions between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from itertools import zip_longest

import torch

from torch_ir.backends.delegate import CALL
from torch_ir.debug.comparing.isolation import Feed, Found
from torch_ir.debug.comparing.judgment import PartFault
from torch_ir.debug.comparing.sources import TorchSource, external_tensors, part_of
from torch_ir.debug.reference.denotation import Meaning, meaning_of
from torch_ir.debug.reference.tolerance_check import Error, same_bits
from torch_ir.errors import InvalidIRError, Raised, attempt, counted, error_text
from torch_ir.ir import IR, OpNode, TensorMeta
from torch_ir.ir.queries import symbol_makers
from torch_ir.ops.choices import VALUES_OPEN
from torch_ir.passes.common_subexpressions import call_key, is_repeatable
from torch_ir.passes.functionalization import without_writes
from torch_ir.passes.requirements import is_functional
from torch_ir.semantics.dtypes import Array

Tensors = Mapping[str, torch.Tensor]
KEPT = 128 << 20
"""Bytes of values that are kept for what comes later; more are freed after their last use."""


def aligned_regions(
    state: Feed, lowered: IR, weights: Tensors | None, constants: Tensors | None
) -> Iterator[Found]:
    """Judge each region of a lowered program on the values of the other side, in program order.

    Where torch runs both sides, a call that is the same on the same values is not run: it is
    covered. So the cost of a pass is that of what it changes, and of what makes its operands.

    Raises:
        InvalidIRError: It takes more inputs than the program, or fewer.
    """
    own, others = len(state.program.graph_inputs), len(lowered.graph_inputs)
    if own != others:
        raise InvalidIRError(f"the lowered program takes {counted(others, 'input')}, not {own}")
    lowered = lowered if is_functional(lowered) else without_writes(lowered)
    external = external_tensors(lowered, weights, constants)
    return _Alignment(state, lowered, external).found()


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
        self.external = external
        self.fed = dict(zip(lowered.input_names, self.program.input_names, strict=True))
        self.alike = {**_equal_externals(self.program, lowered), **self.fed}
        self.given = {*external, *self.fed}
        state.same |= self.fed
        self._shares = isinstance(state.other, TorchSource)
        self._own = _OwnValues(state, lowered, self.there)

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
                made = zip(called.outputs, shown, strict=True)
                self._note_same([called], [m.name for m in called.inputs], made)
                continue
            if node.binds or not node.outputs:
                self._own.make([m.name for m in (*node.inputs, *node.outputs)], [node])
            if not node.outputs:
                state.keep(state.known(node))
                state.covered.add(node.name)
            is_right = True
            for meta in shown:
                own = _back(self.program, meta.name, self.seen)
                found = list(self._region(own, meta, self.there[meta.name]))
                is_right = is_right and not (found and state.is_refuted(own, [meta], state.values))
                yield from found
            if is_right:
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
            own = _back(self.program, meta.name, self.seen) or list(self.program.nodes[-1:])
            if not self.state.has(meta.name):
                continue
            if there is None:
                told = Error(part=float("inf"), reason=f"nothing is in the place of %{meta.name}")
                yield Found(tuple(own), PartFault(meta.name, "missing", told))
            elif there.name != self.there.get(meta.name, there).name or (
                self.alike.get(there.name) != meta.name and meta.name not in self.there
            ):
                yield from self._region(own, meta, there)

    def _added(self, there: TensorMeta | None) -> Iterator[Found]:
        """Say of what the lowered program returns or writes that the program does not."""
        if there is None:
            return
        maker = self.lowered.producers.get(there.name)
        made_of = set[str]() if maker is None else _calls_and_names(maker)
        own = [node for node in self.program.nodes if node.name in made_of]
        reason = "the program returns and writes nothing in its place"
        told = Error(part=float("inf"), reason=reason)
        yield Found(tuple(own or self.program.nodes[-1:]), PartFault(there.name, "extra", told))

    def _is_same(self, node: OpNode, shown: Sequence[TensorMeta]) -> bool:
        """Whether the lowered program has a node's call, on the same values, for all it makes."""
        if not self._shares or not shown or len(shown) != len(node.outputs):
            return False
        others = [self.there[meta.name] for meta in shown]
        other = self.lowered.producers.get(others[0].name)
        if other is None or list(other.outputs) != others or not is_repeatable(self.program, node):
            return False
        inputs = [self.alike.get(meta.name) for meta in other.inputs]
        own = [meta.name for meta in node.inputs]
        return call_key(other, inputs) == call_key(node, own)

    def _align(self, shown: Sequence[TensorMeta]) -> None:
        """Give what reads these in the lowered program the values of the other side."""
        for meta in shown:
            name = self.there[meta.name].name
            self.seen.add(meta.name)
            if name not in self.given:  # one that is given stays
                self.given.add(name)
                self.alike[name] = self.fed[name] = meta.name

    def _given(self, names: Iterable[str]) -> Tensors:
        """The values that a part of the lowered program takes."""
        own = {n: self.fed[n] for n in names if n in self.fed}
        self._own.make(own.values())
        fixed = {n: self.external[n] for n in names if n not in own}
        return {**fixed, **{name: self.state.values[mine] for name, mine in own.items()}}

    def _region(self, own: list[OpNode], meta: TensorMeta, there: TensorMeta) -> Iterator[Found]:
        """Judge one value, which both programs have."""
        state = self.state
        theirs = _back(self.lowered, there.name, self.given)
        names = {node.name for node in own}
        result = self._result(theirs, there, meta) if self._shares else None
        if isinstance(result, torch.Tensor):
            known = state.values[meta.name]
            if not same_bits(known, result).reason:  # which needs no meaning
                self._note(own, meta)
                if result.stride() == known.stride():
                    self._note_same(theirs, _taken(theirs, there), [(there, meta)])
                return
        part = part_of(self.lowered, theirs, [there])
        body = part_of(self.program, own, [meta])
        meaning, other = (meaning_of(p.replace(signature=None)) for p in (body, part))
        if isinstance(meaning, str) or isinstance(other, str):
            why = meaning if isinstance(meaning, str) else str(other)
            state.reasons.update(dict.fromkeys(names, why))
            return
        if meaning.open_reason or other.open_reason:
            is_open = all(node.op_type in VALUES_OPEN for node in own)
            if is_open:  # shape and type are all that there is
                state.covered |= names
            else:
                why = meaning.open_reason or other.open_reason
                state.reasons.update(dict.fromkeys(names, why))
            return
        self._own.make(body.input_names)
        result = self._result(theirs, there, meta) if result is None else result
        if isinstance(result, Exception):  # a wrong program may raise anything
            told = Error(part=float("inf"), reason=error_text(result))
            yield Found(tuple(own), PartFault(meta.name, "error", told))
            return
        slack = partial(self._slack, part, other, meta, result)
        made = state.values
        faults = state.judging.faults(body, meaning, made, made, [result], slack=slack)
        if isinstance(faults, str):
            state.reasons.update(dict.fromkeys(names, faults))
            return
        self._note(own, meta)
        for fault in faults:
            yield Found(_blamed(own, theirs), fault)

    def _result(
        self, theirs: Sequence[OpNode], there: TensorMeta, meta: TensorMeta
    ) -> torch.Tensor | Exception:
        """What torch makes of a part of the lowered program; the own value is made as well."""
        self._own.make([meta.name], theirs)
        given = self._given(_taken(theirs, there))
        run = TorchSource().run
        made = attempt(run, self.lowered, theirs, [there], given, self.state.symbols)
        return made.error if isinstance(made, Raised) else made[0]

    def _note(self, own: Sequence[OpNode], meta: TensorMeta) -> None:
        """Remember that a value was seen, and the nodes that it is made by."""
        self.state.compared |= {node.name for node in own if meta in node.outputs}
        self.state.covered |= {node.name for node in own}

    def _note_same(
        self,
        theirs: Sequence[OpNode],
        taken: Iterable[str],
        made: Iterable[tuple[TensorMeta, TensorMeta]],
    ) -> None:
        """Remember values that both programs make of the same ones, to the bit."""
        same, lowered = self.state.same, self.lowered
        if all(name in same or name in self.external for name in taken) and all(
            is_repeatable(lowered, node) for node in theirs
        ):
            same |= {there.name: meta.name for there, meta in made if there.producer_node}

    def _slack(
        self, part: IR, meaning: Meaning, meta: TensorMeta, result: torch.Tensor
    ) -> dict[str, Array]:
        """How far the lowered part may be off what it means itself."""
        known = {part.output_names[0]: self.state.values[meta.name]}
        judging = self.state.judging
        if judging.form_faults(part, known, [result]):
            return {}
        call = OpNode("part", CALL, part.graph_inputs, part.graph_outputs)
        allowed = judging.allowed(call, meaning, self._given(part.input_names), [result])
        return dict(zip([meta.name], [item.bound for item in allowed], strict=False))


class _OwnValues:
    """Values of the program, which the other side makes when they are first needed.

    Args:
        state: The program, and the side that makes values.
        lowered: The other program.
        there: Its value that each value is.
    """

    def __init__(self, state: Feed, lowered: IR, there: Mapping[str, TensorMeta]):
        self._state, self._lowered, self._there = state, lowered, there
        self._sizes = dict[str, int]()
        self._held = 0
        self._last: dict[str, int] | None = None

    def make(self, names: Iterable[str], readers: Sequence[OpNode] = ()) -> None:
        """Let the other side make values of the program, and what they and some nodes need."""
        for node in _needed(self._state, names, readers):
            made = self._state.known(node)
            self._state.keep(made)
            if is_repeatable(self._state.program, node):  # it can be made again
                sizes = {name: tensor.nbytes for name, tensor in made.items()}
                self._held += sum(sizes.values())
                self._sizes |= sizes

    def free(self, position: int) -> None:
        """Free values before a node that nothing needs from it on, if there are many."""
        if self._held <= KEPT:
            return
        if self._last is None:
            self._last = _last_readers(self._state.program, self._lowered, self._there)
        for name in [name for name in self._sizes if self._last[name] < position]:
            self._held -= self._sizes.pop(name)
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
    last = dict.fromkeys((*program.output_names, *[m.value.name for m in program.mutations]), end)
    for position, node in enumerate(program.nodes):
        for meta in node.outputs:
            reader = read.get(there[meta.name].name, position) if meta.name in there else position
            last.setdefault(meta.name, max(position, reader))
        for meta in node.inputs:
            last[meta.name] = max(position, last.get(meta.name, 0))
    return last


def _taken(nodes: Sequence[OpNode], returned: TensorMeta) -> list[str]:
    """The names that some nodes, and what is returned of them, read of what is made elsewhere."""
    made = {meta.name for node in nodes for meta in node.outputs}
    read = [returned.name, *[meta.name for node in nodes for meta in node.inputs]]
    return [name for name in dict.fromkeys(read) if name not in made]


def _equal_externals(program: IR, lowered: IR) -> dict[str, str]:
    """The names in a lowered program of weights and constants that are the same in the program."""
    names = {key: name for name, (key, _) in program.external_values().items()}
    return {
        name: names[key]
        for name, (key, _) in lowered.external_values().items()
        if key in names and program.constants.get(key) == lowered.constants.get(key)
    }


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


def _blamed(own: list[OpNode], theirs: list[OpNode]) -> tuple[OpNode, ...]:
    """The nodes of the region of which the lowered ones are made; all if nothing says so."""
    made_of = {name for node in theirs for name in node.made_of}
    found = tuple([node for node in own if made_of & _calls_and_names(node)])
    return found or tuple(own)


def _calls_and_names(node: OpNode) -> set[str]:
    """What a node is made of, and the calls around it: ``a.b`` is a node of what ``a`` calls."""
    parts = [name.split(".") for name in node.made_of]
    return {".".join(names[:end]) for names in parts for end in range(1, len(names) + 1)}


def _back(ir: IR, name: str, known: Set[str]) -> list[OpNode]:
    """The nodes that a value needs and that known values do not cut off, in program order."""
    found: set[str] = set()
    wanted = [name]
    while wanted:
        value = wanted.pop()
        node = ir.producers.get(value)
        if node is None or node.name in found or (value in known and value != name):
            continue
        found.add(node.name)
        wanted += [meta.name for meta in node.inputs]
    return _in_order(ir, found)


def _in_order(ir: IR, names: Set[str]) -> list[OpNode]:
    positions: Mapping[str, int] = ir.view(
        "positions", lambda: {node.name: i for i, node in enumerate(ir.nodes)}
    )
    return [ir.nodes[i] for i in sorted(positions[name] for name in names)]


def _aligned(program: IR, lowered: IR) -> dict[str, TensorMeta]:
    """The value of the lowered program that each value is, by its name."""
    found: dict[str, TensorMeta] = {}
    exits, own_exits = _exits(lowered), _exits(program)
    made = {meta.name: meta for node in lowered.nodes for meta in node.outputs}
    ends = _ends(program, lowered)
    outputs = {own.name: theirs for own, theirs in ends if own is not None and theirs is not None}
    for node in program.nodes:
        group = exits.get(node.made_of, [])
        for meta in node.outputs:
            same = made.get(meta.name) or outputs.get(meta.name)
            alike = _of_type(group, meta)
            is_exit = _of_type(own_exits.get(node.made_of, []), meta) == [meta]
            if same is None and len(node.outputs) == 1 and len(alike) == 1 and is_exit:
                same = alike[0]
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
    returned = {*ir.output_names, *(m.value.name for m in ir.mutations)}
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
    needed = nodes_for(state.program)
    for node in state.program.nodes:
        if node.name not in needed:
            state.covered.add(node.name)
        elif node.name not in state.compared and node.name not in state.covered:
            state.reasons.setdefault(node.name, "the lowered program has no value of it")


def nodes_for(program: IR, names: Iterable[str] | None = None) -> set[str]:
    """Return the names of the nodes that values need; what the program gives if none are named."""
    kept = [*program.output_names, *(m.value.name for m in program.mutations)]
    needed: set[str] = set()
    wanted = kept if names is None else [*names]
    while wanted:
        node = program.producers.get(wanted.pop())
        if node is not None and node.name not in needed:
            needed.add(node.name)
            wanted += [meta.name for meta in node.inputs]
    return needed
