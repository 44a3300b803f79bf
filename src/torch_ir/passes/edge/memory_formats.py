"""Orders of dimensions as the memory formats of ATen: what a program of torch has for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch_ir.dialects.edge.dim_order import CHANNELS_LAST, DIM_ORDER_OPS, memory_format_of
from torch_ir.ir import IR, MemoryFormat, OpNode, TensorMeta
from torch_ir.ir.builder import Names

_ATEN = {by_order: op_type for op_type, by_order in DIM_ORDER_OPS.items()}
_EMPTY = "aten.empty.memory_format"


def with_memory_formats(ir: IR) -> IR:
    """Replace operators of ``dim_order_ops`` by those of ATen.

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
        copy = node.replace(op_type=op_type, attrs=attrs)
        yield from permuted_copy(copy, order, lambda name, part: names.fresh(f"{name}_{part}"))


def channels_order(node: OpNode) -> tuple[int, ...] | None:
    """Return the order of dimensions of a copy to channels last; None for any other call."""
    asked = node.attrs.get("memory_format")
    if node.op_type not in DIM_ORDER_OPS or not isinstance(asked, MemoryFormat) or not node.inputs:
        return None
    return CHANNELS_LAST.get(asked.name)


def permuted_copy(
    node: OpNode, order: Sequence[int], named: Callable[[str, str], str]
) -> list[OpNode]:
    """Make a copy in an order of dimensions: permute, copy, permute back.

    Args:
        node: The copy.
        order: The order, outermost dimension first.
        named: Gives the name of a node beside it, from its name and what that does.
    """
    (given,), (result,) = node.inputs, node.outputs
    turned, copied = named(node.name, "permute"), named(node.name, "copy")
    there = TensorMeta(turned, tuple([given.shape[dim] for dim in order]), given.dtype, turned)
    copy = TensorMeta(copied, there.shape, result.dtype, copied)
    attrs = {**node.attrs, "memory_format": MemoryFormat("contiguous_format")}
    back = tuple([order.index(dim) for dim in range(len(order))])
    permute, place = "aten.permute.default", node.location
    made = [
        OpNode(turned, permute, (given,), (there,), {"dims": tuple(order)}, None, place),
        OpNode(copied, node.op_type, (there,), (copy,), attrs, {"self": 0}, place),
        OpNode(node.name, permute, (copy,), (result,), {"dims": back}, None, place),
    ]
    return [item.derived_from(node) for item in made]
