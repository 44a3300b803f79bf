"""The call of the functional variant of an operator that writes."""

from __future__ import annotations

from torch_ir.ir import DType, OpNode, TensorMeta
from torch_ir.ops.schema import Schema, Slots, default_of
from torch_ir.ops.variants import Variant


def _attributes(
    variant: Variant, node: OpNode, schema: Schema, target: Schema
) -> dict[str, object]:
    """The attributes of the variant's call, with the defaults that only the original has."""
    defaults = {a.name: default_of(a) for a in schema.arguments}
    attrs: dict[str, object] = {}
    for argument in target.arguments:
        name = variant.arguments[argument.name]
        if name in node.attrs:
            attrs[argument.name] = node.attrs[name]
        elif name not in node.slots and argument.default is None:
            attrs[argument.name] = defaults[name]
    return attrs


def _operands(variant: Variant, node: OpNode) -> dict[str, Slots]:
    """The operands of the variant's call; its inputs are those of the original."""
    given = node.slots
    return {name: given[own] for name, own in variant.arguments.items() if own in given}


def functional_call(
    node: OpNode, variant: Variant, schema: Schema, target: Schema, written: TensorMeta
) -> OpNode:
    """Return the functional operator's call, under the name and outputs of the original."""
    slots = _operands(variant, node)
    attrs = _attributes(variant, node, schema, target)
    factory = target.argument("dtype")
    keeps_type = schema.argument("dtype") is None or not variant.dropped  # written in place
    if factory is not None and keeps_type and attrs.get("dtype") is None:
        attrs["dtype"] = DType(written.dtype)
    used = sorted({slot for item in slots.values() for slot in _flat_slots(item)})
    place = {slot: position for position, slot in enumerate(used)}
    return node.replace(
        op_type=variant.op_type,
        inputs=tuple([node.inputs[slot] for slot in used]),
        attrs=attrs,
        operands={
            name: tuple([None if slot is None else place[slot] for slot in item])
            if isinstance(item, tuple)
            else (None if item is None else place[item])
            for name, item in slots.items()
        },
    )


def _flat_slots(slots: Slots) -> list[int]:
    return [s for s in (slots if isinstance(slots, tuple) else (slots,)) if s is not None]


def fresh_results(schema: Schema) -> list[int]:
    """Return the positions of the results that are none of the written arguments."""
    return [position for position, result in enumerate(schema.returns) if not result.alias]
