"""Copies for the operators whose kernels take dense tensors alone."""

from __future__ import annotations

from collections.abc import Mapping

from torch_ir.infer.types import TensorType, contiguous
from torch_ir.ir import MemoryFormat, OpNode, TensorMeta
from torch_ir.ir.builder import Builder
from torch_ir.ops.schema import lookup
from torch_ir.ops.spec import DENSE_OPERANDS, spec_of

_FOLLOWING = frozenset({"pointwise", "view"})
"""Traits of operators whose results are laid out as their arguments are."""

_COPIES = frozenset({"aten.clone.default", "aten._to_copy.default"})


def with_dense_operands(builder: Builder, types: Mapping[str, TensorType]) -> None:
    """Give operators that need dense tensors a copy of each that is not known to be dense.

    Eager copies them inside of the composite operator, by their strides. Those are unknown here
    for graph inputs, and where a dimension has one element.

    Args:
        builder: The graph, with all of its nodes.
        types: What is known of the layout of its values.
    """
    if not any(node.op_type in DENSE_OPERANDS for node in builder.nodes):
        return
    dense = {name for name in builder.ir.external_values() if _is_given_dense(name, types)}
    nodes, builder.nodes = builder.nodes, []
    for node in nodes:
        given = {
            name: node.inputs[slot]
            for name in DENSE_OPERANDS.get(node.op_type, ())
            if isinstance(slot := node.slots.get(name), int)
        }
        copies = {
            meta.name: _copied(builder, node, meta)
            for meta in given.values()
            if meta.name not in dense
        }
        inputs = [copies.get(meta.name, meta) for meta in node.inputs]
        builder.nodes.append(node.replace(inputs=inputs) if copies else node)
        dense |= {meta.name for meta in node.outputs if _is_dense(node, meta, types, dense)}


def _is_given_dense(name: str, types: Mapping[str, TensorType]) -> bool:
    known = types[name]
    return known.strides == contiguous(TensorMeta(name, known.shape, known.dtype)).strides


def _copied(builder: Builder, node: OpNode, meta: TensorMeta) -> TensorMeta:
    attrs = {"self": meta, "memory_format": MemoryFormat("contiguous_format")}
    types, name = [(meta.shape, meta.dtype)], f"{node.name}_dense"
    return builder.emit("aten.clone.default", attrs, like=node, results=types, name=name)[0]


def _is_dense(
    node: OpNode, meta: TensorMeta, types: Mapping[str, TensorType], dense: set[str]
) -> bool:
    """Return whether a result lies in row-major order whatever the layout of graph inputs is."""
    known = types.get(meta.name)
    if known is None or not _is_row_major(known, meta):
        return False
    if lookup(node.op_type) is None:
        return False
    follows = node.op_type in _COPIES and node.attrs.get("memory_format") is None
    if follows or spec_of(node.op_type).traits & _FOLLOWING:
        return all(given.name in dense for given in node.inputs if given.shape)
    return True


def _is_row_major(known: TensorType, meta: TensorMeta) -> bool:
    pairs = zip(meta.shape, known.strides, contiguous(meta).strides, strict=False)
    return all(size == 1 or a == b for size, a, b in pairs)
