"""A program as a graph module of torch, for tools that take nothing else."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch.fx import Graph, GraphModule
from torch.fx import Node as FxNode

from torch_ir.errors import CompileError
from torch_ir.infer.binder import bind
from torch_ir.infer.resolve import operator_of, resolve_operator
from torch_ir.ir import IR, OpNode, SymExpr
from torch_ir.ir.diagnostics import Diagnostic, about
from torch_ir.torch_api import operator_schema, pytree


def graph_module(ir: IR, payload: Mapping[str, torch.Tensor] | None = None) -> GraphModule:
    """Convert a program to a ``GraphModule`` of the same operators.

    Args:
        ir: A functional program of static shapes, without weights of its own.
        payload: The tensors that stand for some of its inputs, or constants, by name: they
            become buffers of the module.

    Returns:
        A module that takes the other inputs in order, and gives a tuple of the outputs.

    Raises:
        CompileError: The program has sizes that vary, or calls functions.

    Example:
        >>> from torch_ir import parse
        >>> module = graph_module(parse('''ir {
        ...   input %x: f32[2]
        ...   %a: f32[2] = aten.relu.default(%x)
        ...   return %a
        ... }'''))
        >>> print(module.code.strip())
        def forward(self, x):
            relu_default = torch.ops.aten.relu.default(x);  x = None
            return (relu_default,)
    """
    for node in ir.nodes:
        if (reason := unsuitable(node)) is not None:
            found = about(Diagnostic(CompileError.code, f"{node.op_type}: {reason}"), node)
            raise CompileError(found.sentence, node=node.name, diagnostics=(found,))
    held = dict(payload or {})
    graph = Graph()
    values: dict[str, Any] = {}
    for meta in ir.graph_inputs:
        if meta.name not in held:
            values[meta.name] = graph.placeholder(meta.name)
    for number, name in enumerate(held):
        values[name] = graph.get_attr(f"held_{number}")
    root = torch.nn.Module()
    for number, tensor in enumerate(held.values()):
        root.register_buffer(f"held_{number}", tensor)
    for node in ir.nodes:
        args, kwargs = bind(node, [values[meta.name] for meta in node.inputs])
        made = graph.call_function(cast(Any, operator_of(node)), tuple(args), kwargs)
        values.update(_results(graph, node, made))
    graph.output(tuple([values[meta.name] for meta in ir.graph_outputs]))
    return GraphModule(root, graph)


def uncallable(node: OpNode) -> str | None:
    """Return why a node is no plain call from tensors to tensors, or None if it is."""
    if node.op_type.startswith("higher_order.") or node.functions:
        return "it calls a function of the program"
    return "it reads a number from a tensor" if node.binds else None


def unsuitable(node: OpNode) -> str | None:
    """Return why a node does not go into a graph module, or None if it does."""
    if (reason := uncallable(node)) is not None:
        return reason
    dims = [dim for meta in (*node.inputs, *node.outputs) for dim in meta.shape]
    values = pytree.tree_leaves([*node.attrs.values(), *dims])
    if any(isinstance(value, SymExpr) for value in values):
        return "it has sizes that vary"
    return None


def _results(graph: Graph, node: OpNode, made: FxNode) -> dict[str, FxNode]:
    """Each result of a node, as the graph gives it."""
    returns = operator_schema(cast(Any, resolve_operator(node.op_type))).returns
    if len(returns) == 1 and returns[0].type == "Tensor":
        return {meta.name: made for meta in node.outputs}
    return {
        meta.name: graph.call_function(operator.getitem, (made, meta.producer_output_idx))
        for meta in node.outputs
    }
