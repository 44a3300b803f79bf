"""Replacement of view copies by views where no write can observe the difference."""

from __future__ import annotations

from torch_ir.ir import IR, OpNode
from torch_ir.ir.queries import kept_values
from torch_ir.ops.variants import view_of
from torch_ir.passes.functionalization.strided import strides_lost


def with_views(ir: IR) -> IR:
    """Replace view copies by views where no write can observe the difference.

    Where nothing writes, a view has the values of its copy and costs nothing. Kernels then see the
    strides that they see in eager, and round as they do there. What the program gives away is
    copied still. Another shape of the same elements is a ``reshape``, a view wherever there can be
    one: a kernel may lay its result out otherwise than torch says that it does. All copies stay,
    if a node reads memory by strides that views would change.

    Example:
        >>> from torch_ir.ir import OpNode, TensorMeta
        >>> x, t = TensorMeta("x", (2, 3), "float32"), TensorMeta("t", (3, 2), "float32", "t")
        >>> y = TensorMeta("y", (3, 2), "float32", "y")
        >>> copy = OpNode("t", "aten.permute_copy.default", [x], [t], {"dims": [1, 0]})
        >>> ir = IR([copy, OpNode("y", "aten.relu.default", [t], [y])], [x], [y], [])
        >>> print(with_views(ir).nodes[0])
        %t: f32[3, 2] = aten.permute.default(%x, dims=[1, 0])
    """
    given_away = kept_values(ir)
    nodes = [
        node if any(meta.name in given_away for meta in node.outputs) else _as_view(node)
        for node in ir.nodes
    ]
    functions = {name: with_views(function) for name, function in ir.functions.items()}
    made = ir.replace(nodes=nodes, functions=functions)
    return made if next(strides_lost(ir, made), None) is None else ir


def with_reshapes(ir: IR) -> IR:
    """Replace views by reshapes, so that the program runs whatever the strides.

    Example:
        >>> from torch_ir.ir import OpNode, TensorMeta
        >>> x, y = TensorMeta("x", (2, 3), "float32"), TensorMeta("y", (6,), "float32", "y")
        >>> view = OpNode("y", "aten.view.default", [x], [y], {"size": [6]})
        >>> print(with_reshapes(IR([view], [x], [y], [])).nodes[0])
        %y: f32[6] = aten.reshape.default(%x, shape=[6])
    """
    nodes = [_reshape(node) if node.op_type == _VIEW else node for node in ir.nodes]
    functions = {name: with_reshapes(function) for name, function in ir.functions.items()}
    return ir.replace(nodes=nodes, functions=functions)


_VIEW = "aten.view.default"


def _as_view(node: OpNode) -> OpNode:
    view = view_of(node.op_type)
    if view is None:
        return node
    return _reshape(node) if view == _VIEW else node.replace(op_type=view)


def _reshape(node: OpNode) -> OpNode:
    attrs = {"shape": node.attrs.get("size", ())}
    return node.replace(op_type="aten.reshape.default", attrs=attrs)
