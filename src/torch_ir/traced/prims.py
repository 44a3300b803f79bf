"""Functional programs in torch's primitive operators, by torch's own references."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch._decomp
import torch._prims as _registers_primitives  # pyright: ignore[reportUnusedImport]  # noqa: F401
import torch._refs as _registers_references  # pyright: ignore[reportUnusedImport]  # noqa: F401
import torch.fx.traceback as fx_traceback
from torch.fx.experimental.proxy_tensor import make_fx

from torch_ir.errors import InvalidIRError, TraceError, counted
from torch_ir.frontend.graphs import Context, GraphTranslator
from torch_ir.ir import IR, Mutation, OpNode, Signature, TensorMeta
from torch_ir.ir.edit import with_leaves
from torch_ir.passes.fake import Fakes, contiguous, external_layouts
from torch_ir.torch_api import OpOverload, pytree


def to_prims(ir: IR) -> IR:
    """The program in primitive operators; operators that torch has no reference for stay.

    Args:
        ir: A functional program.

    Raises:
        TraceError: It holds what torch's references do not take: control flow, sizes from data.
    """
    refused = [node for node in ir.nodes if node.op_type.startswith("higher_order.") or node.binds]
    if refused or ir.symbols:
        names = ", ".join(dict.fromkeys(node.op_type for node in refused)) or "symbolic sizes"
        raise TraceError(
            f"torch has no primitives for {names}",
            remedy='Take the dialect "core_aten".',
        )
    fakes = Fakes(ir)
    inputs = [*ir.graph_inputs, *_external(ir)]
    ends = [*ir.graph_outputs, *(mutation.value for mutation in ir.mutations)]

    def call(tensors: list[torch.Tensor]) -> list[Any]:
        values = dict(zip([meta.name for meta in inputs], tensors, strict=True))
        for node in ir.nodes:
            _set_location(node)
            made = fakes.call(node, [values[meta.name] for meta in node.inputs])
            results = pytree.tree_leaves(made)
            for output in node.outputs:
                values[output.name] = results[output.producer_output_idx]
        return [values[meta.name] for meta in ends]

    with fakes.tracing(), fx_traceback.preserve_node_meta():
        layouts = external_layouts(ir)
        tensors = [fakes.tensor(layouts.get(meta.name) or contiguous(meta)) for meta in inputs]
        traced = make_fx(call, decomposition_table=_table())(tensors)
    traced.graph.eliminate_dead_code()
    return _program(ir, traced, inputs, ends)


def _program(ir: IR, traced: Any, inputs: list[TensorMeta], ends: list[TensorMeta]) -> IR:
    context = Context(None)
    body = GraphTranslator(traced, context)
    taken = {meta.name for meta in inputs}
    for node in list(traced.graph.nodes):
        if node.op != "placeholder" and node.name in taken:
            node.name = f"{node.name}_prim"
    for node, meta in zip(traced.graph.find_nodes(op="placeholder"), inputs, strict=True):
        body.values[node] = meta
    try:
        body.run()
    except InvalidIRError as error:
        raise TraceError(error.message) from error
    if context.reasons:
        raise TraceError(
            f"torch's references do {counted(len(context.reasons), 'thing')} that no program "
            "can say",
            picture="\n".join(f"- {reason}" for reason in context.reasons),
        )
    made = [body.values[item] for item in traced.graph.output_node().args[0]]
    outputs, written = made[: len(ir.graph_outputs)], made[len(ir.graph_outputs) :]
    values = {old.name: new for old, new in zip(ends, made, strict=True)}
    signature = ir.signature and Signature(
        ir.signature.inputs, with_leaves(ir.signature.outputs, values)
    )
    return ir.replace(
        nodes=tuple(body.nodes),
        graph_outputs=tuple(outputs),
        mutations=[
            Mutation(mutation.target, value)
            for mutation, value in zip(ir.mutations, written, strict=True)
        ],
        functions=body.functions,
        operators=body.operators,
        signature=signature,
        dialect="prims",
    )


def _external(ir: IR) -> list[TensorMeta]:
    return [TensorMeta(n, v.shape, v.dtype) for n, (_, v) in ir.external_values().items()]


def _set_location(node: OpNode) -> None:
    """Tell torch the line that the operators of a node come from."""
    at = node.location
    text = "" if at is None else f'File "{at.file}", line {at.line}, in -\n    {at.code}\n'
    fx_traceback.current_meta["stack_trace"] = text


@cache
def _table() -> dict[Any, Callable[..., Any]]:
    """torch's references and decompositions, but for operators that draw random numbers."""
    found: dict[Any, Callable[..., Any]] = torch._decomp.decomposition_table  # pyright: ignore[reportPrivateUsage]  # torch has no public name
    seeded = torch.Tag.nondeterministic_seeded
    return {
        operator: function
        for operator, function in found.items()
        if isinstance(operator, OpOverload) and seeded not in operator.tags
    }
