"""Autocast regions that torch traced as a begin and an end, as calls of a body.

torch turns most regions into ``wrap_with_autocast`` itself, but not those that hold control flow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from torch_ir.errors import InvalidIRError
from torch_ir.ir import IR, Attribute, FunctionRef, OpNode, Signature, SymbolRange, TensorMeta
from torch_ir.ir.builder import with_inputs
from torch_ir.ir.node import needs
from torch_ir.ops.bodies import AUTOCAST_REGION

AUTOCAST_ARGUMENTS = ("device_type", "dtype", "enabled", "cache_enabled")


@dataclass(frozen=True, slots=True)
class Begin:
    """The begin of an autocast region, with the arguments of ``wrap_with_autocast`` by name."""

    name: str
    arguments: Mapping[str, Attribute]


@dataclass(frozen=True, slots=True)
class End:
    """The end of the region that began under this name."""

    name: str


Item: TypeAlias = OpNode | Begin | End
Renamed: TypeAlias = dict[str, TensorMeta]
"""What became of each value that a region makes and something outside uses."""


@dataclass(slots=True)
class ScopeFolder:
    """Replaces the regions of one graph by calls.

    Attributes:
        functions: The functions of the graph; bodies are added.
        symbols: The symbols of the program.
    """

    functions: dict[str, IR]
    symbols: Mapping[str, SymbolRange] = field(default_factory=dict[str, SymbolRange])

    def fold(self, items: Sequence[Item], needed: set[str]) -> tuple[list[OpNode], Renamed]:
        """Replace each region of the nodes by one call.

        Args:
            items: The nodes of a graph and the marks of its regions, in program order.
            needed: Names of the values that are used after them.

        Raises:
            InvalidIRError: Regions overlap, or one has no end.
        """
        nodes: list[OpNode] = []
        renamed: Renamed = {}
        position = 0
        while position < len(items):
            item = items[position]
            if isinstance(item, OpNode):
                nodes.append(with_inputs(item, renamed))
                position += 1
                continue
            end = _end(items, position)
            later = needed | set(_used(items[end:]))
            inner, inside = self.fold(items[position + 1 : end], later)
            inner = [with_inputs(node, renamed) for node in inner]
            call, made = self._call(item, inner, inside, later)
            nodes.append(call)
            renamed.update(made)
            position = end + 1
        return nodes, renamed

    def _call(
        self, begin: Begin | End, inner: list[OpNode], inside: Renamed, later: set[str]
    ) -> tuple[OpNode, Renamed]:
        """The call of a region, and what became of the values that are used after it."""
        if not isinstance(begin, Begin):
            raise InvalidIRError(f"the autocast region {begin.name!r} ends before it begins")
        made = {meta.name: meta for node in inner for meta in node.outputs} | inside
        used = needs(inner)
        returned = {name: meta for name, meta in made.items() if name in later}
        outputs = {
            name: TensorMeta(f"{begin.name}.{index}", meta.shape, meta.dtype, begin.name, index)
            for index, (name, meta) in enumerate(returned.items())
        }
        self.functions[begin.name] = self._body(begin.name, inner, used, tuple(returned.values()))
        call = OpNode(
            name=begin.name,
            op_type=AUTOCAST_REGION,
            inputs=tuple(used.values()),
            outputs=tuple(outputs.values()),
            attrs={**begin.arguments, "wrapped_func": FunctionRef(begin.name)},
            operands={"args": tuple(range(len(used)))},
        )
        return call, outputs

    def _body(
        self, name: str, inner: list[OpNode], used: Renamed, returned: tuple[TensorMeta, ...]
    ) -> IR:
        given = {key: TensorMeta(key, meta.shape, meta.dtype) for key, meta in used.items()}
        taken = {reference for node in inner for reference in node.functions}
        return IR(
            nodes=[with_inputs(node, given) for node in inner],
            graph_inputs=tuple(given.values()),
            graph_outputs=returned,
            weights=(),
            model_name=name,
            symbols=self.symbols,
            functions={key: self.functions.pop(key) for key in sorted(taken)},
            signature=Signature.of(given, [meta.name for meta in returned]),
        )


def _end(items: Sequence[Item], begin: int) -> int:
    """The position of the end of the region that begins here."""
    name = items[begin].name
    for position in range(begin + 1, len(items)):
        item = items[position]
        if isinstance(item, End) and item.name == name:
            return position
    raise InvalidIRError(f"the autocast region {name!r} has no end of its own")


def _used(items: Sequence[Item]) -> Iterator[str]:
    for item in items:
        if isinstance(item, OpNode):
            yield from (meta.name for meta in item.inputs)
