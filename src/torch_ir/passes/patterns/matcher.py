"""The search for a pattern in a program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from torch_ir.frozen import identical
from torch_ir.ir import IR, Attribute, FrozenDict, OpNode, TensorMeta
from torch_ir.ir.aliases import StorageGroups
from torch_ir.ir.queries import kept_values
from torch_ir.ir.values import default_attribute
from torch_ir.ops.schema import Schema, typed
from torch_ir.passes.no_ops import checks_recorded_type
from torch_ir.passes.patterns.elements import (
    ANYTHING,
    Call,
    Either,
    Element,
    Match,
    Pattern,
    Result,
    Spot,
    Through,
    Value,
    Wildcard,
)
from torch_ir.passes.patterns.numbers import Origins, in_dtype, is_number

COMMUTATIVE = frozenset(
    f"aten.{name}"
    for name in (
        "add.Tensor",
        "mul.Tensor",
        "maximum.default",
        "minimum.default",
        "eq.Tensor",
        "ne.Tensor",
        "logical_and.default",
        "logical_or.default",
        "logical_xor.default",
        "bitwise_and.Tensor",
        "bitwise_or.Tensor",
        "bitwise_xor.Tensor",
    )
)
"""Operators for which the order of ``self`` and ``other`` does not matter."""


class Matcher:
    """Finds elements of patterns in one program.

    Args:
        ir: The program.
        memory: What of it is written.
        origins: What its numbers copy, if each use of one is a node of its own.
        explains: Whether to keep why nodes did not fit.
    """

    def __init__(
        self,
        ir: IR,
        memory: StorageGroups | None = None,
        origins: Origins | None = None,
        *,
        explains: bool = False,
    ):
        self.ir = ir
        self.origins = origins
        self.memory = StorageGroups(ir) if memory is None else memory
        self.returned = kept_values(ir)
        self.explains = explains
        self.reasons: list[tuple[float, str]] = []
        """Why nodes did not fit, each with how many nodes did; half of one if its operator did."""

    def occurrences(
        self, pattern: Pattern, missed: Callable[[OpNode, str, float], None] | None = None
    ) -> Iterator[Match]:
        """Yield every place where a pattern occurs, in program order; no two share a node.

        What is inside of a match is used nowhere else, and nothing writes to any of its values.

        Args:
            pattern: What to look for.
            missed: Is told of nodes that make what the pattern's first result is made by, but
                where the pattern does not occur, with the reason and how many nodes fit.
        """
        taken: set[str] = set()
        for node in self.ir.nodes:
            self.reasons.clear()
            for found in self.at(pattern, node):
                match = replace(found, checks=type_checks(self.ir, pattern, found))
                names = {made.name for made in match.inside}
                if names.isdisjoint(taken) and self.is_whole(pattern, match):
                    taken |= names
                    yield match
                    break
            else:
                depth, reason = max(self.reasons, default=(0, ""), key=lambda item: item[0])
                if depth >= 1 and missed is not None and node.name not in taken:
                    missed(node, reason, depth)

    def at(self, pattern: Pattern, node: OpNode) -> Iterator[Match]:
        """Yield the matches in which a node makes the pattern's first result."""
        (name, first), *others = pattern.results.items()
        for meta in node.outputs:
            for match in self.element(first, meta, Match()):
                named = replace(match, values={**match.values, name: meta})
                yield from self._others(others, named)

    def _others(self, results: Sequence[tuple[str, Element]], match: Match) -> Iterator[Match]:
        if not results:
            yield match
            return
        (name, element), *rest = results
        known = match.values.get(name)
        nodes = self.ir.nodes if known is None else ()
        for meta in chain((known,) if known else (), *(node.outputs for node in nodes)):
            for found in self.element(element, meta, match):
                named = replace(found, values={**found.values, name: meta})
                yield from self._others(rest, named)

    def is_whole(self, pattern: Pattern, match: Match) -> bool:
        """Return whether nothing outside a match uses, writes or returns what is inside it."""
        inside = {node.name for node in match.inside}
        outputs = {match.values[name].name for name in pattern.results}
        for name in pattern.inputs:
            value = match.values.get(name)
            if value is not None and value.producer_node in inside:
                return self._refuse(match, f"%{value.name} is made inside of it")
        for node in match.inside:
            for meta in node.outputs:
                users = [u.name for u in self.ir.users.get(meta.name, ()) if u.name not in inside]
                if meta.name in outputs or not (users or meta.name in self.returned):
                    continue
                whom = f"used by {users[0]!r} too" if users else "a result of the program"
                return self._refuse(match, f"%{meta.name} is {whom}")
        found = written(self.memory, match)
        return not found or self._refuse(match, f"something writes to %{found}")

    def _refuse(self, match: Match, reason: str, half: float = 0.0) -> bool:
        if self.explains:
            self.reasons.append((len(match.nodes) + half, reason))
        return False

    # -- elements ---------------------------------------------------------------------------------

    def element(self, wanted: Element, value: TensorMeta, match: Match) -> Iterator[Match]:
        """Yield the ways in which a value matches an element, given what is bound already."""
        match wanted:
            case Value(name=name, where=where):
                known = match.values.get(name)
                if known is None and (where is None or where(value)):
                    yield replace(match, values={**match.values, name: value})
                elif known is not None and self._origin(known) == self._origin(value):
                    yield match
            case Either(options=options):
                for option in options:
                    yield from self.element(option, value, match)
            case Through():
                yield from self._through(wanted, value, match)
            case Result(call=call, position=position):
                yield from self._made(call, position, value, match)
            case Call():
                yield from self._made(wanted, 0, value, match)

    def _origin(self, meta: TensorMeta) -> str:
        return (self.origins or {}).get(meta.name, meta).name

    def _through(self, wanted: Through, value: TensorMeta, match: Match) -> Iterator[Match]:
        for nodes, source in _chains(self.ir, wanted.op_types, value):
            chains = {**match.chains, wanted.name: nodes}
            yield from self.element(wanted.source, source, replace(match, chains=chains))

    def _made(
        self, wanted: Call, position: int, value: TensorMeta, match: Match
    ) -> Iterator[Match]:
        node = self.ir.producers.get(value.name)
        if node is not None and value.producer_output_idx == position:
            yield from self._node(wanted, node, match)
        elif node is None:
            self._refuse(match, f"%{value.name} is not made by {min(wanted.op_types)}")

    def _node(self, wanted: Call, node: OpNode, match: Match) -> Iterator[Match]:
        known = match.nodes.get(wanted.name)
        if known is not None:
            if known.name == node.name:
                yield match
            return
        if node.op_type not in wanted.op_types or node.operands is None:
            if self.explains:
                wish = min(wanted.op_types)
                self._refuse(match, f"%{node.name} is {node.op_type}, not {wish}")
            return
        if any(found.name == node.name for found in match.nodes.values()):
            return
        if wanted.where is not None and not wanted.where(node):
            self._refuse(match, f"the condition on %{node.name} does not hold")
            return
        attributes = self._attributes(wanted, node, match)
        made = {meta.producer_output_idx: meta for meta in node.outputs}
        if attributes is None or not all(index in made for index in wanted.results):
            return
        results = {name: made[index] for index, name in wanted.results.items()}
        started = replace(
            match,
            nodes={**match.nodes, wanted.name: node},
            values={**match.values, **results},
            attributes=attributes,
            shared=match.shared | ({node.name} if wanted.is_shared else set()),
        )
        pairings = list(_pairings(wanted, node))
        if not pairings:
            self._refuse(match, f"%{node.name} takes other tensors")
        for pairs in pairings:
            yield from self._operands(pairs, started)

    def _operands(
        self, pairs: Sequence[tuple[Element, TensorMeta]], match: Match
    ) -> Iterator[Match]:
        if not pairs:
            yield match
            return
        (wanted, value), *rest = pairs
        for found in self.element(wanted, value, match):
            yield from self._operands(rest, found)

    # -- attributes -------------------------------------------------------------------------------

    def _attributes(
        self, wanted: Call, node: OpNode, match: Match
    ) -> Mapping[str, Attribute] | None:
        if wanted.attributes is None:
            return match.attributes
        found = dict(match.attributes)
        schema = self.ir.schema_of(node.op_type)
        for name in {**wanted.attributes, **node.attrs}:
            expected = wanted.attributes.get(name, default_of(schema, name))
            got = attribute(schema, node, name)
            if self.origins is not None and name == "fill_value" and is_number(node):
                expected, got = [in_dtype(v, node.outputs[0].dtype) for v in (expected, got)]
            if not fits(expected, got, found):
                known = found[expected.name] if isinstance(expected, Wildcard) else expected
                shown = "a tensor" if name in wanted.operands else known
                reason = f"{_given(node, name, got)}, the pattern has {shown}"
                self._refuse(match, reason, half=0.5)
                return None
        return found


def _given(node: OpNode, name: str, value: Attribute) -> str:
    """What an argument is given, for a reason."""
    tensor = node.tensor(name)
    return f"{name} of %{node.name} is {value if tensor is None else f'the tensor %{tensor.name}'}"


def type_checks(ir: IR, pattern: Pattern, match: Match) -> tuple[OpNode, ...]:
    """Return the nodes that check the type of a value of a match which is no result of it.

    torch.export writes one before each cast; one that contradicts what is recorded stays.
    """
    outputs = {match.values[name].name for name in pattern.results}
    names = [meta.name for node in match.inside for meta in node.outputs]
    users = [user for name in names if name not in outputs for user in ir.users.get(name, ())]
    return tuple([user for user in users if checks_recorded_type(user)])


def written(memory: StorageGroups, match: Match) -> str:
    """Return the name of a value of a match to which something writes, or nothing."""
    made = [meta for node in match.nodes.values() for meta in node.outputs]
    made += [m for nodes in match.chains.values() for node in nodes for m in node.outputs]
    names = [meta.name for meta in (*match.values.values(), *made)]
    return next((name for name in names if memory.is_written(name)), "")


def _chains(
    ir: IR, op_types: frozenset[str], value: TensorMeta
) -> Iterator[tuple[tuple[OpNode, ...], TensorMeta]]:
    """Yield each chain of nodes that makes a value, from the empty one, with where it begins."""
    found: list[OpNode] = []
    while True:
        yield tuple(found), value
        node = ir.producers.get(value.name)
        if node is None or node.op_type not in op_types:
            return
        if (len(node.inputs), len(node.outputs)) != (1, 1):
            return
        found.append(node)
        value = node.inputs[0]


def attribute(schema: Schema | None, node: OpNode, name: str) -> Attribute:
    """Return an attribute of a node in the type of the schema, or the schema's default."""
    if name not in node.attrs:
        return default_of(schema, name)
    argument = schema.argument(name) if schema is not None else None
    return node.attrs[name] if argument is None else typed(argument.type, node.attrs[name])


def default_of(schema: Schema | None, name: str) -> Attribute:
    """Return what an argument is where a call leaves it out."""
    argument = schema.argument(name) if schema is not None else None
    return None if argument is None else default_attribute(argument)


def fits(wanted: Spot, got: Attribute, found: dict[str, Attribute]) -> bool:
    """Return whether an attribute is what a pattern says; ``found`` gets what wildcards are."""
    if isinstance(wanted, Wildcard):
        return wanted is ANYTHING or identical(found.setdefault(wanted.name, got), got)
    if isinstance(wanted, tuple) and isinstance(got, tuple):
        return len(wanted) == len(got) and all(
            fits(a, b, found) for a, b in zip(wanted, got, strict=True)
        )
    if isinstance(wanted, FrozenDict) or isinstance(got, FrozenDict):
        return wanted == got
    return identical(wanted, got)


# -- operands -------------------------------------------------------------------------------------


def _pairings(wanted: Call, node: OpNode) -> Iterator[Sequence[tuple[Element, TensorMeta]]]:
    """The ways in which the operands of a call may correspond."""
    given = operands_of(node)
    pairs = _paired(wanted.operands, given)
    if pairs is not None:
        yield pairs
    is_plain = (wanted.attributes or {}).get("alpha", 1) == 1
    if node.op_type in COMMUTATIVE and is_plain and wanted.operands.keys() >= {"self", "other"}:
        swapped = {**given, "self": given.get("other", ()), "other": given.get("self", ())}
        pairs = _paired(wanted.operands, {k: metas for k, metas in swapped.items() if metas})
        if pairs is not None:
            yield pairs


def _paired(
    wanted: Mapping[str, Element | tuple[Element | None, ...]],
    given: Mapping[str, tuple[TensorMeta | None, ...]],
) -> list[tuple[Element, TensorMeta]] | None:
    if not given.keys() <= wanted.keys():
        return None
    pairs: list[tuple[Element, TensorMeta]] = []
    for name, element in wanted.items():
        listed = element if isinstance(element, tuple) else (element,)
        metas = given.get(name, ())
        if not metas and isinstance(element, Value) and element.is_optional:
            continue
        if len(listed) != len(metas):
            return None
        for part, meta in zip(listed, metas, strict=True):
            if (part is None) != (meta is None):
                return None
            if part is not None and meta is not None:
                pairs.append((part, meta))
    return pairs


def operands_of(node: OpNode) -> dict[str, tuple[TensorMeta | None, ...]]:
    """Return the tensors of each argument of a node that has any; None for those left out."""
    found: dict[str, tuple[TensorMeta | None, ...]] = {}
    for name, slots in node.slots.items():
        listed: Any = slots if isinstance(slots, tuple) else (slots,)
        metas = tuple([None if slot is None else node.inputs[slot] for slot in listed])
        if any(meta is not None for meta in metas):
            found[name] = metas
    return found
