"""Copies that nobody can tell from views, as views: what a program runs as."""

from __future__ import annotations

from functools import cache

from torch_ir.ir import IR
from torch_ir.ir.schema import lookup


def with_views(ir: IR) -> IR:
    """A functional program with a view for each copy of a view that stays inside.

    Where nothing writes, a view has the values of its copy and costs nothing. Kernels then see the
    strides that they see in eager, and round as they do there. What the program gives away is
    copied still.

    Example:
        >>> from torch_ir.ir import OpNode, TensorMeta
        >>> x, t = TensorMeta("x", (2, 3), "float32"), TensorMeta("t", (3, 2), "float32", "t")
        >>> y = TensorMeta("y", (3, 2), "float32", "y")
        >>> copy = OpNode("t", "aten.permute_copy.default", [x], [t], {"dims": [1, 0]})
        >>> ir = IR([copy, OpNode("y", "aten.relu.default", [t], [y])], [x], [y], [])
        >>> print(with_views(ir).nodes[0])
        %t: f32[3, 2] = aten.permute.default(%x, dims=[1, 0])
    """
    given_away = {meta.name for meta in ir.graph_outputs}
    given_away |= {mutation.value.name for mutation in ir.mutations}
    nodes = [
        node
        if view is None or any(meta.name in given_away for meta in node.outputs)
        else node.replace(op_type=view)
        for node in ir.nodes
        for view in (view_of(node.op_type),)
    ]
    functions = {name: with_views(function) for name, function in ir.functions.items()}
    return ir.replace(nodes=nodes, functions=functions)


@cache
def view_of(op_type: str) -> str | None:
    """The view that an operator copies, with the same arguments; None if it copies none.

    Example:
        >>> view_of("aten.slice_copy.Tensor"), view_of("aten.copy.default")
        ('aten.slice.Tensor', None)
    """
    namespace, _, rest = op_type.partition(".")
    packet, _, overload = rest.partition(".")
    if not packet.endswith("_copy"):
        return None
    view = lookup(f"{namespace}.{packet.removesuffix('_copy')}.{overload}")
    copy = lookup(op_type)
    if view is None or copy is None or not any(result.alias for result in view.returns):
        return None
    same = [a.name for a in view.arguments] == [a.name for a in copy.arguments]
    return view.op_type if same else None
