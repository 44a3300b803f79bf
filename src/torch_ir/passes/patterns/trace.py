"""Python functions as graphs whose attributes may be wildcards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn

from torch_ir.dialects.backend.binding import bindings, kept_whole
from torch_ir.errors import PassError, TorchIRError
from torch_ir.frontend import extract_ir
from torch_ir.frozen import identical
from torch_ir.ir import IR, Attribute, OpNode
from torch_ir.ir.queries import kept_values
from torch_ir.passes.decomposition import decomposed
from torch_ir.passes.edge.lower import lower
from torch_ir.passes.functionalization import without_writes
from torch_ir.passes.patterns.elements import (
    ANYTHING,
    Call,
    Element,
    Pattern,
    Result,
    Spot,
    Value,
    Wildcard,
)
from torch_ir.passes.patterns.matcher import attribute, operands_of
from torch_ir.passes.patterns.numbers import is_number, numbers_apart
from torch_ir.quiet import silent_log

LEVELS = ("export", "aten", "core_aten", "edge")
"""The forms in which a function may be wanted, by the dialect of the program."""


def level_of(dialect: str) -> str:
    """Return the form that patterns have in a dialect's programs."""
    return dialect if dialect in LEVELS else "edge"


@dataclass(frozen=True, slots=True)
class Template:
    """A graph in which wildcards stand for attributes.

    Attributes:
        ir: The graph with the values of the example.
        spots: What each attribute of a node has to be, by the names of node and attribute;
            defaults of the schema are filled in.
    """

    ir: IR
    spots: Mapping[str, Mapping[str, Spot]]

    @property
    def wildcards(self) -> frozenset[str]:
        """The names of the wildcards in it."""
        names: set[str] = set()
        stack: list[Any] = [spot for spots in self.spots.values() for spot in spots.values()]
        while stack:
            spot = stack.pop()
            stack.extend(cast(Any, spot) if isinstance(spot, tuple) else ())
            names |= {spot.name} if isinstance(spot, Wildcard) else set()
        return frozenset(names)

    def filled(self, known: Mapping[str, Attribute]) -> IR:
        """Return the graph with what the wildcards stand for."""
        nodes: list[OpNode] = []
        for node in self.ir.nodes:
            given = self.spots.get(node.name, {})
            holes = {name: spot for name, spot in given.items() if _has_wildcard(spot)}
            filled = {name: _filled(spot, known) for name, spot in holes.items()}
            nodes.append(node.replace(attrs={**node.attrs, **filled}) if filled else node)
        return self.ir.replace(nodes=nodes)

    def pattern(self) -> Pattern:
        """Return the graph as what to look for."""
        elements: dict[str, Element] = {m.name: Value(m.name) for m in self.ir.graph_inputs}
        for node in self.ir.nodes:
            operands: dict[str, Element | tuple[Element | None, ...]] = {}
            for name, metas in operands_of(node).items():
                listed = tuple([None if m is None else elements[m.name] for m in metas])
                is_list = isinstance(node.slots[name], tuple)
                operands[name] = listed if is_list else cast(Element, listed[0])
            results = {meta.producer_output_idx: meta.name for meta in node.outputs}
            spots = self.spots[node.name]
            call = Call(node.name, frozenset({node.op_type}), operands, spots, results=results)
            elements.update({name: Result(call, index) for index, name in results.items()})
        outputs = {meta.name: elements[meta.name] for meta in self.ir.graph_outputs}
        return Pattern(outputs, self.ir.input_names)


def _has_wildcard(spot: Spot) -> bool:
    if isinstance(spot, tuple):
        return any(map(_has_wildcard, cast(tuple[Spot, ...], spot)))
    return isinstance(spot, Wildcard) and spot is not ANYTHING


def _filled(spot: Spot, known: Mapping[str, Attribute]) -> Attribute:
    if isinstance(spot, tuple):
        return tuple([_filled(part, known) for part in cast(tuple[Spot, ...], spot)])
    return known[spot.name] if isinstance(spot, Wildcard) else spot


def merged(
    traces: Sequence[IR], valuations: Sequence[Mapping[str, Attribute]], name: str
) -> Template:
    """Return the graph of which several traces are instances, one for each valuation.

    Where the traces differ, an attribute stands as it is given.

    Args:
        traces: The graphs of one function.
        valuations: The attributes that each was traced with.
        name: The function, for messages.

    Raises:
        PassError: The traces have other nodes, or hold what is computed from an attribute.
    """
    first, *others = traces
    for trace, valuation in zip(others, valuations[1:], strict=True):
        if _shape(trace) != _shape(first):
            changed = _difference(valuations[0], valuation)
            raise PassError(
                f"{name} calls other operators with {changed}",
                picture=f"{first}\n{trace}",
                remedy="Make a rewrite for each form.",
            )
    spots: dict[str, dict[str, Spot]] = {}
    for nodes in zip(*[trace.nodes for trace in traces], strict=True):
        schema = first.schema_of(nodes[0].op_type)
        names = {attr: None for node in nodes for attr in node.attrs}
        spots[nodes[0].name] = found = {}
        for attr in names:
            values = [attribute(schema, node, attr) for node in nodes]
            of_number = attr == "dtype" and first.dialect == "edge" and is_number(nodes[0])
            spot = ANYTHING if of_number else _spot(values, valuations)
            if spot is _COMPUTED:
                raise PassError(
                    _not_as_given(name, values, valuations),
                    picture=str(first),
                    remedy="Pass it to an operator without computing with it.",
                )
            found[attr] = spot
    return Template(first, spots)


def _shape(ir: IR) -> list[Any]:
    """What traces of a function have in common: all but attributes and types."""
    nodes = [
        (node.op_type, node.operands, [m.name for m in (*node.inputs, *node.outputs)])
        for node in ir.nodes
    ]
    return [*nodes, ir.output_names]


def _difference(base: Mapping[str, Attribute], other: Mapping[str, Attribute]) -> str:
    changed = [f"{name}={value!r}" for name, value in other.items() if value != base[name]]
    return ", ".join(changed) or "the shapes and dtypes of this place"


def _not_as_given(
    name: str, values: Sequence[Attribute], valuations: Sequence[Mapping[str, Attribute]]
) -> str:
    base = valuations[0]
    changed = [
        attr
        for value, valuation in zip(values, valuations, strict=True)
        if not identical(value, values[0])
        for attr, given in valuation.items()
        if not identical(given, base[attr])
    ]
    if not changed:
        return f"{name} computes with sizes or dtypes, which are others here"
    return f"{name} has no operator with the attribute {changed[0]!r} as it is given"


def _spot(values: Sequence[Any], valuations: Sequence[Mapping[str, Attribute]]) -> Spot:
    """What the values of one attribute in all traces are instances of."""
    if all(identical(value, values[0]) for value in values):
        return values[0]
    for name in valuations[0]:
        if all(_is_given(v, given[name]) for v, given in zip(values, valuations, strict=True)):
            return Wildcard(name)
    if all(isinstance(v, tuple) and len(v) == len(values[0]) for v in values):
        parts = [_spot(part, valuations) for part in zip(*values, strict=True)]
        return _COMPUTED if any(part is _COMPUTED for part in parts) else tuple(parts)
    return _COMPUTED


_COMPUTED: Spot = object()
"""What a function computes from its attributes."""


def _is_given(value: Attribute, given: Attribute) -> bool:
    """Whether an operator has a value that a function was given, be it as another number type."""
    if type(value) in (int, float) and type(given) in (int, float):
        return value == given
    return identical(value, given)


class _Function(nn.Module):
    def __init__(self, function: Callable[..., Any], attributes: Mapping[str, Any]):
        super().__init__()
        self._function = function
        self._attributes = dict(attributes)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self._function(*inputs, **self._attributes)


def traced(
    function: Callable[..., Any],
    inputs: Sequence[torch.Tensor],
    attributes: Mapping[str, Any],
    level: str,
    name: str,
) -> IR:
    """Trace a function of tensors to a graph; bound operators stay whole if it calls them.

    Raises:
        PassError: torch cannot trace it, it holds tensors of its own, or it has control flow.
    """
    try:
        with kept_whole(), silent_log():
            ir = extract_ir(_Function(function, attributes).eval(), tuple(inputs))
        ir = _lowered(ir, level)
    except TorchIRError as error:
        raise PassError(
            f"{name} cannot be traced: {error.message}", picture=error.picture
        ) from error
    if ir.constants or ir.weights or ir.functions or ir.mutations:
        raise PassError(
            f"{name} holds tensors of its own, writes to its inputs, or has control flow",
            picture=str(ir),
            remedy="Give it tensors as arguments, and let it only compute.",
        )
    used = kept_values(ir).union(ir.users)
    return ir.replace(
        nodes=[
            n for n in ir.nodes if n.outputs and (n.outputs[0].name in used or not is_number(n))
        ]
    )


def _lowered(ir: IR, level: str) -> IR:
    if level == "export":
        return ir
    if level == "aten":
        return without_writes(ir)
    core = decomposed(ir, preserve=[op for op in bindings() if op in ir.operators])
    if level == "core_aten":
        return core
    return numbers_apart(lower(core, is_body=True))[0]
