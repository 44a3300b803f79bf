"""Where a pattern occurs in a program."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch_ir.frozen import identical
from torch_ir.ir import IR, Attribute, FrozenDict, OpNode, TensorMeta
from torch_ir.passes.memory import Memory
from torch_ir.passes.patterns.trace import Wildcards

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


@dataclass(frozen=True, slots=True)
class Match:
    """One place where a pattern occurs.

    Attributes:
        nodes: The program's node for each of the pattern's, by the pattern's name.
        values: The program's value for each of the pattern's, by the pattern's name; those of
            its arguments have the names of the arguments.
        attributes: What each wildcard stands for.
    """

    nodes: Mapping[str, OpNode]
    values: Mapping[str, TensorMeta]
    attributes: Mapping[str, Any]


_EMPTY = Match({}, {}, {})


def find_matches(pattern: IR, ir: IR, wildcards: Wildcards) -> Iterator[Match]:
    """Every place where a pattern occurs, in program order; no two share a node.

    What is inside of a match is used nowhere else, and nothing writes to any of its values.
    """
    matcher = _Matcher(pattern, ir, wildcards)
    taken: set[str] = set()
    for node in ir.nodes:
        for match in matcher.at(node):
            names = {found.name for found in match.nodes.values()}
            if names.isdisjoint(taken) and matcher.is_whole(match):
                taken |= names
                yield match
                break


class _Matcher:
    def __init__(self, pattern: IR, ir: IR, wildcards: Wildcards):
        self.pattern = pattern
        self.ir = ir
        self.wildcards = wildcards
        self.memory = Memory(ir)
        names = [meta.name for meta in pattern.graph_outputs]
        self.roots = list(
            {pattern.producers[n].name: pattern.producers[n] for n in names}.values()
        )
        self.returned = {meta.name for meta in ir.graph_outputs}
        self.returned |= {mutation.value.name for mutation in ir.mutations}

    def at(self, node: OpNode) -> Iterator[Match]:
        """The matches in which a node is the pattern's first result."""
        first, *others = self.roots
        if node.op_type == first.op_type:
            for match in self._node(first, node, _EMPTY):
                yield from self._others(others, match)

    def _others(self, roots: Sequence[OpNode], match: Match) -> Iterator[Match]:
        if not roots:
            yield match
            return
        root, *rest = roots
        for node in self.ir.nodes if root.name not in match.nodes else ():
            if node.op_type == root.op_type:
                for found in self._node(root, node, match):
                    yield from self._others(rest, found)
        if root.name in match.nodes:
            yield from self._others(rest, match)

    def is_whole(self, match: Match) -> bool:
        """Whether a match can be taken out: nothing else uses, writes or gives what is inside."""
        inside = {node.name for node in match.nodes.values()}
        outputs = {match.values[meta.name].name for meta in self.pattern.graph_outputs}
        for meta in self.pattern.graph_inputs:
            value = match.values.get(meta.name)
            if value is not None and value.producer_node in inside:
                return False
        for node in match.nodes.values():
            for meta in node.outputs:
                users = self.ir.users.get(meta.name, ())
                leaks = meta.name in self.returned or any(u.name not in inside for u in users)
                if leaks and meta.name not in outputs:
                    return False
        return not any(self.memory.is_written(meta.name) for meta in match.values.values())

    # -- one node ---------------------------------------------------------------------------------

    def _node(self, wanted: OpNode, node: OpNode, match: Match) -> Iterator[Match]:
        known = match.nodes.get(wanted.name)
        if known is not None:
            if known.name == node.name:
                yield match
            return
        if wanted.op_type != node.op_type or node.operands is None or wanted.operands is None:
            return
        if any(found.name == node.name for found in match.nodes.values()):
            return
        attributes = self._attributes(wanted, node, match.attributes)
        outputs = self._outputs(wanted, node)
        if attributes is None or outputs is None:
            return
        started = Match(
            {**match.nodes, wanted.name: node}, {**match.values, **outputs}, attributes
        )
        for pairs in _pairings(wanted, node):
            yield from self._values(pairs, started)

    def _outputs(self, wanted: OpNode, node: OpNode) -> Mapping[str, TensorMeta] | None:
        made = {meta.producer_output_idx: meta for meta in node.outputs}
        if not all(meta.producer_output_idx in made for meta in wanted.outputs):
            return None
        return {meta.name: made[meta.producer_output_idx] for meta in wanted.outputs}

    def _values(
        self, pairs: Sequence[tuple[TensorMeta, TensorMeta]], match: Match
    ) -> Iterator[Match]:
        if not pairs:
            yield match
            return
        (wanted, value), *rest = pairs
        for found in self._value(wanted, value, match):
            yield from self._values(rest, found)

    def _value(self, wanted: TensorMeta, value: TensorMeta, match: Match) -> Iterator[Match]:
        known = match.values.get(wanted.name)
        if known is not None:
            if known.name == value.name:
                yield match
            return
        producer = self.pattern.producers.get(wanted.name)
        if producer is None:
            yield replace(match, values={**match.values, wanted.name: value})
            return
        made = self.ir.producers.get(value.name)
        if made is not None and value.producer_output_idx == wanted.producer_output_idx:
            yield from self._node(producer, made, match)

    # -- attributes -------------------------------------------------------------------------------

    def _attributes(
        self, wanted: OpNode, node: OpNode, known: Mapping[str, Attribute]
    ) -> Mapping[str, Attribute] | None:
        found = dict(known)
        for name in {**wanted.attrs, **node.attrs}:
            expected = self._attribute(wanted, name)
            got = self._attribute(node, name)
            if not self._fits(expected, got, found):
                return None
        return found

    def _attribute(self, node: OpNode, name: str) -> Attribute:
        if name in node.attrs:
            return node.attrs[name]
        schema = self.ir.schema_of(node.op_type) or self.pattern.schema_of(node.op_type)
        argument = schema.argument(name) if schema is not None else None
        return _literal(argument.default if argument is not None else None)

    def _fits(self, wanted: Attribute, got: Attribute, found: dict[str, Attribute]) -> bool:
        name = self.wildcards.name(wanted)
        if name is not None:
            return identical(found.setdefault(name, got), got)
        if isinstance(wanted, tuple) and isinstance(got, tuple):
            return len(wanted) == len(got) and all(
                self._fits(a, b, found) for a, b in zip(wanted, got, strict=True)
            )
        if isinstance(wanted, FrozenDict) or isinstance(got, FrozenDict):
            return wanted == got
        return identical(wanted, got)


def _literal(text: str | None) -> Attribute:
    try:
        return None if text is None else ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text  # an enumeration: equal to no attribute, so that the match is refused


def _pairings(wanted: OpNode, node: OpNode) -> Iterator[Sequence[tuple[TensorMeta, TensorMeta]]]:
    """The ways in which the inputs of two calls may correspond."""
    one, other = _operands(wanted), _operands(node)
    if one.keys() == other.keys() and all(len(one[k]) == len(other[k]) for k in one):
        yield [pair for name in one for pair in zip(one[name], other[name], strict=True)]
    is_plain = wanted.attrs.get("alpha", 1) == 1
    if wanted.op_type in COMMUTATIVE and is_plain and one.keys() >= {"self", "other"}:
        swapped = {**other, "self": other.get("other", ()), "other": other.get("self", ())}
        if all(len(one[k]) == len(swapped[k]) for k in ("self", "other")):
            yield [
                pair
                for name in ("self", "other")
                for pair in zip(one[name], swapped[name], strict=True)
            ]


def _operands(node: OpNode) -> dict[str, tuple[TensorMeta, ...]]:
    found = {name: node.tensors(name) for name in node.slots}
    return {name: metas for name, metas in found.items() if metas}
