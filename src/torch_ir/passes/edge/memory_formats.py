"""Orders of dimensions as the memory formats of ATen: what a program of torch has for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch_ir.dialects.edge.dim_order import CHANNELS_LAST, DIM_ORDER_OPS, memory_format_of
from torch_ir.ir import IR, DType, MemoryFormat, OpNode, TensorMeta
from torch_ir.ir.builder import Builder, Names

_ATEN = {by_order: op_type for op_type, by_order in DIM_ORDER_OPS.items()}
_EMPTY = "aten.empty.memory_format"
_PERMUTE = "aten.permute.default"


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
        yield from permuted_copy(copy, order, names.beside)


def without_memory_formats(ir: IR) -> IR:
    r"""Replace calls that ask for channels last: permute, a call in row-major order, permute back.

    Values lie in memory as before, so that each later call computes the same bits and each view
    is possible as before. The same object if there is nothing to do.

    Args:
        ir: A functional program.

    Example:
        >>> from torch_ir import parse
        >>> print(*without_memory_formats(parse('''
        ... ir {
        ...   input %x: f32[2, 3, 4, 5]
        ...   %y: f32[2, 3, 4, 5] = aten.clone.default(%x, memory_format=torch.channels_last)
        ...   return %y
        ... }
        ... ''')).nodes, sep="\n")  # doctest: +ELLIPSIS
        %y_permute: f32[2, 4, 5, 3] = aten.permute.default(%x, dims=[0, 2, 3, 1])
        %y_copy: f32[2, 4, 5, 3] = aten.clone.default(%y_permute, ...)
        %y: f32[2, 3, 4, 5] = aten.permute.default(%y_copy, dims=[0, 3, 1, 2])
    """
    builder = Builder(ir)
    builder.map_functions(without_memory_formats)
    for node in ir.nodes:
        order = channels_order(node)
        copies = [node] if order is None else permuted_copy(node, order, builder.names.beside)
        for made in copies:
            builder.keep(made)
    return builder.finish()


def channels_order(node: OpNode) -> tuple[int, ...] | None:
    """Return the order of dimensions of a result in channels last; None for any other call."""
    asked = node.attrs.get("memory_format")
    order = CHANNELS_LAST.get(asked.name) if isinstance(asked, MemoryFormat) else None
    is_known = node.op_type != "aten.resize.default"  # which reads memory in its order
    fits = is_known and order and [len(m.shape) for m in node.outputs] == [len(order)]
    return order if fits else None


def permuted_copy(
    node: OpNode, order: Sequence[int], named: Callable[[str, str], str]
) -> list[OpNode]:
    """Make a result in an order of dimensions: permute, call, permute back.

    Args:
        node: A copy, or what fills a new tensor of the argument's or its own size.
        order: The order, outermost dimension first.
        named: Gives the name of a node beside it, from its name and what that does.
    """
    (result,) = node.outputs
    turned, copied = named(node.name, "permute"), named(node.name, "copy")
    shape = tuple([result.shape[dim] for dim in order])
    copy = TensorMeta(copied, shape, result.dtype, copied)
    attrs = {**node.attrs, "memory_format": MemoryFormat("contiguous_format")}
    attrs |= {"size": shape} if "size" in attrs else {}
    back = tuple([order.index(dim) for dim in range(len(order))])
    call = node.replace(name=copied, outputs=(copy,), attrs=attrs)
    last = node.replace(op_type=_PERMUTE, inputs=(copy,), attrs={"dims": back}, operands=None)
    if not node.inputs:
        return [item.derived_from(node) for item in (call, last)]
    given, *others = node.inputs
    there = TensorMeta(turned, shape, given.dtype, turned)
    dims = {"dims": tuple(order)}
    first = OpNode(turned, _PERMUTE, (given,), (there,), dims, None, node.location)
    made = first, _copying(call.replace(inputs=(there, *others))), last
    return [item.derived_from(node) for item in made]


def _copying(node: OpNode) -> OpNode:
    """The copy for a conversion, which would give back what it guesses to be in order."""
    if node.op_type.split(".")[1] not in ("to", "chalf"):
        return node
    kept = {name: node.attrs[name] for name in ("device", "memory_format") if name in node.attrs}
    attrs = {"dtype": DType(node.outputs[0].dtype), **kept}
    return node.replace(
        op_type="aten._to_copy.default", inputs=node.inputs[:1], attrs=attrs, operands=None
    )
