"""Orders of dimensions as the memory formats of ATen: what a program of torch has for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch_ir.dialects.edge.dim_order import DIM_ORDER_OPS, memory_format_of
from torch_ir.ir import IR, OpNode, TensorMeta
from torch_ir.ir.edit import Names

_ATEN = {by_order: op_type for op_type, by_order in DIM_ORDER_OPS.items()}
_EMPTY = "aten.empty.memory_format"


def with_memory_formats(ir: IR) -> IR:
    """The program with operators of ATen for those of ``dim_order_ops``.

    An order that no memory format is the name of becomes a copy of the permuted tensor, permuted
    back.

    Example:
        >>> from torch_ir.ir import OpNode, TensorMeta
        >>> x, y = TensorMeta("x", (2, 3), "float32"), TensorMeta("y", (2, 3), "float32", "y")
        >>> op_type, attrs = "dim_order_ops._clone_dim_order.default", {"dim_order": [0, 1]}
        >>> copy = OpNode("y", op_type, [x], [y], attrs, {"self": 0})
        >>> print(with_memory_formats(IR([copy], [x], [y], [])).nodes[0])
        %y: f32[2, 3] = aten.clone.default(%x, memory_format=torch.contiguous_format)
    """
    names = Names.of(ir)
    nodes = [made for node in ir.nodes for made in _in_aten(node, names)]
    functions = {name: with_memory_formats(function) for name, function in ir.functions.items()}
    return ir.replace(nodes=nodes, functions=functions)


def _in_aten(node: OpNode, names: Names) -> Iterator[OpNode]:
    if node.op_type not in _ATEN:
        yield node
        return
    order: Any = node.attrs.get("dim_order")
    attrs = {name: value for name, value in node.attrs.items() if name != "dim_order"}
    op_type = _ATEN[node.op_type]
    memory_format = memory_format_of(order)
    if memory_format is not None:
        if order is not None:
            attrs["memory_format"] = memory_format
        yield node.replace(op_type=op_type, attrs=attrs)
    elif op_type == _EMPTY:
        yield node.replace(
            op_type="aten.empty_permuted.default", attrs={**attrs, "physical_layout": order}
        )
    else:
        yield from _permuted(node, op_type, attrs, order, names)


def _permuted(
    node: OpNode, op_type: str, attrs: dict[str, Any], order: tuple[int, ...], names: Names
) -> Iterator[OpNode]:
    """A copy whose dimensions lie in an order: that of the permuted tensor, permuted back."""
    (given,), (result,) = node.inputs, node.outputs
    turned = names.fresh(f"{node.name}_permute")
    there = TensorMeta(turned, tuple([given.shape[dim] for dim in order]), given.dtype, turned)
    yield OpNode(
        turned, "aten.permute.default", (given,), (there,), {"dims": order}, None, node.location
    )
    copied = names.fresh(f"{node.name}_copy")
    copy = TensorMeta(copied, there.shape, result.dtype, copied)
    attrs = {**attrs, "memory_format": memory_format_of(range(len(order)))}
    yield OpNode(copied, op_type, (there,), (copy,), attrs, {"self": 0}, node.location)
    back = tuple([order.index(dim) for dim in range(len(order))])
    attrs = {"dims": back}
    yield OpNode(node.name, "aten.permute.default", (copy,), (result,), attrs, None, node.location)
