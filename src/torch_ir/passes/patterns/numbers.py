"""Numbers of Edge programs as nodes, one for each use, which patterns can name."""

from __future__ import annotations

from collections.abc import Mapping

from torch_ir.ir import IR, Attribute, Constant, DType, OpNode, TensorMeta
from torch_ir.ir.aliases import StorageGroups
from torch_ir.ir.builder import Builder, without_unused
from torch_ir.ir.queries import constant_of, kept_values
from torch_ir.passes.edge.promotion import cast_number

_NUMBER = "aten.full.default"
Origins = Mapping[str, TensorMeta]
"""The constant or node that each number of :func:`numbers_apart` copies, by the copy's name."""


def is_number(node: OpNode) -> bool:
    """Return whether a node makes a tensor of one number without dimensions."""
    return node.op_type == _NUMBER and node.attrs.get("size") == ()


def in_dtype(value: Attribute, dtype: str) -> Attribute:
    """Return a number as a tensor of a dtype holds it; other attributes as they are."""
    return cast_number(value, dtype).item() if isinstance(value, bool | int | float) else value


def numbers_apart(ir: IR) -> tuple[IR, Origins]:
    """Return a graph in which each use of a number is a node of its own, and what that copies.

    Its functions are as they were.
    """
    return ir.view("numbers apart", lambda: _apart(ir))


def _apart(ir: IR) -> tuple[IR, Origins]:
    memory = StorageGroups(ir)
    names = Builder(ir).names
    nodes: list[OpNode] = []
    origins: dict[str, TensorMeta] = {}
    for node in ir.nodes:
        inputs: list[TensorMeta] = []
        for meta in node.inputs:
            value = None if memory.is_written(meta.name) else _value(ir, meta)
            if type(value) not in (bool, int, float):
                inputs.append(meta)
                continue
            own = names.fresh("number")
            copy = TensorMeta(own, (), meta.dtype, own)
            attrs = {"size": (), "fill_value": value, "dtype": DType(meta.dtype)}
            nodes.append(OpNode(own, _NUMBER, (), (copy,), attrs, {}))
            origins[own] = meta
            inputs.append(copy)
        nodes.append(node.replace(inputs=inputs) if inputs != [*node.inputs] else node)
    return (ir.replace(nodes=nodes) if origins else ir), origins


def _value(ir: IR, meta: TensorMeta) -> Attribute:
    """The number that a value is; None for another value."""
    if meta.shape:
        return None
    producer = ir.producers.get(meta.name)
    if producer is not None:
        return producer.attrs.get("fill_value") if is_number(producer) else None
    held = constant_of(ir, meta.name)
    return None if held is None or held.view is not None else held.tolist()


def numbers_together(ir: IR, origins: Origins, changed: IR, *, is_body: bool) -> IR:
    """Return what :func:`numbers_apart` was changed to, with the numbers as the graph had them.

    Args:
        ir: The graph as it was.
        origins: What the numbers copy.
        changed: The changed graph.
        is_body: Whether it is a function, in which new numbers stay nodes.
    """
    builder = Builder(changed)
    for node in changed.nodes:
        old = origins.get(node.name)
        if old is None and is_number(node) and not is_body and node.name not in ir.by_name:
            value = cast_number(node.attrs["fill_value"], node.outputs[0].dtype)
            old = builder.constant(Constant.from_torch(value), "number")
        if old is None:
            builder.keep(node)
        else:
            builder.replace(node.outputs[0], old)
    made = builder.finish()
    used = kept_values(made).union(made.users)
    gone = {meta.producer_node for meta in origins.values()} - {None}
    nodes = [n for n in made.nodes if n.name not in gone or n.outputs[0].name in used]
    return without_unused(ir, made if len(nodes) == len(made.nodes) else made.replace(nodes=nodes))
