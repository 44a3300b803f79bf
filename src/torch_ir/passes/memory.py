"""The graph with changed nodes, values or functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch_ir.ir import IR, Mutation, OpNode, Signature, TensorMeta
from torch_ir.ir.builder import with_leaves


def rewired(
    ir: IR, nodes: Iterable[OpNode], values: Mapping[str, TensorMeta], **changes: Any
) -> IR:
    """Return the graph with these nodes, and other values for the results that are named."""
    signature = ir.signature
    if signature is not None:
        signature = Signature(signature.inputs, with_leaves(signature.outputs, values))
    return ir.replace(
        nodes=tuple(nodes),
        graph_outputs=[values.get(meta.name, meta) for meta in ir.graph_outputs],
        mutations=[Mutation(m.target, values.get(m.value.name, m.value)) for m in ir.mutations],
        signature=signature,
        **changes,
    )


def in_functions(ir: IR, change: Callable[[IR], IR]) -> IR:
    """Change each function of a graph; return the same object if none changes."""
    functions = {name: change(body) for name, body in ir.functions.items()}
    if all(functions[name] is body for name, body in ir.functions.items()):
        return ir
    return ir.replace(functions=functions)
