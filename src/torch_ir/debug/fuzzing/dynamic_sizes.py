"""A program whose sizes are known, made one whose sizes are symbols."""

from __future__ import annotations

from typing import Any

from torch_ir.errors import TorchIRError
from torch_ir.infer.fake import Fakes, call_on
from torch_ir.infer.meta import evaluate_meta
from torch_ir.infer.types import CallSignature, TensorType, contiguous
from torch_ir.ir import IR, OpNode, SymbolRange, SymExpr, TensorMeta
from torch_ir.ir.builder import with_inputs
from torch_ir.ir.symbols import as_dim, shape_at

SIZE = 7
"""The size that becomes a symbol."""
SYMBOL = "s0"
LARGEST = 64
OTHER = 11
"""A size for which each call is tried too: rules of kernels ask for sizes, and set no guard."""


def with_dynamic_size(ir: IR) -> IR | None:
    """Return a program that takes any size where this one takes 7; None where it cannot be told.

    Types of values follow from those of the inputs; multiples of 7 in attributes are taken to be
    multiples of the size.
    """
    inputs = [_dynamic(meta) for meta in ir.graph_inputs]
    if inputs == list(ir.graph_inputs) or ir.functions:
        return None
    values = {meta.name: meta for meta in (*inputs, *ir.weights)}
    types = {name: contiguous(meta) for name, meta in values.items()}
    base = IR([], inputs, [], ir.weights, symbols={SYMBOL: SymbolRange(2, LARGEST)})
    nodes: list[OpNode] = []
    for old in ir.nodes:
        attrs = {name: _scaled(value) for name, value in old.attrs.items()}
        node = with_inputs(old, values).replace(attrs=attrs)
        made = _typed(base, node, types)
        if made is None:
            return None
        nodes.append(made)
        values |= {meta.name: meta for meta in made.outputs}
    outputs = [values[meta.name] for meta in ir.graph_outputs]
    found = base.replace(nodes=nodes, graph_outputs=outputs)
    fakes = base.view("fakes", lambda: Fakes(base))
    return None if found.check() or not all(map(_holds, fakes.new_guards())) else found


def _holds(guard: SymExpr) -> bool:
    """Whether a guard that a call set holds for every size."""
    return all(guard.evaluate({SYMBOL: size}) for size in range(2, LARGEST + 1))


def _typed(base: IR, node: OpNode, types: dict[str, TensorType]) -> OpNode | None:
    """The node with the types of its results, which are noted."""
    try:
        outcome = call_on(base, node, [types[meta.name] for meta in node.inputs])
    except (TorchIRError, RuntimeError):
        return None
    if outcome.kind != "ok":
        return None
    given = tuple([_at_other_size(types[meta.name]) for meta in node.inputs])
    if evaluate_meta(CallSignature.of(node, given, {SYMBOL: OTHER})).kind != "ok":
        return None
    outputs: list[TensorMeta] = []
    for meta in node.outputs:
        result = outcome.results[meta.producer_output_idx]
        if result is None or result.dtype != meta.dtype:
            return None
        if shape_at(result.shape, {SYMBOL: SIZE}) != meta.shape:
            return None
        types[meta.name] = result
        outputs.append(meta.replace(shape=result.shape))
    return node.replace(outputs=outputs)


def _at_other_size(kind: TensorType) -> TensorType:
    other = {SYMBOL: OTHER}
    return kind._replace(shape=shape_at(kind.shape, other), strides=shape_at(kind.strides, other))


def _dynamic(meta: TensorMeta) -> TensorMeta:
    shape = [as_dim(SymExpr(SYMBOL)) if dim == SIZE else dim for dim in meta.shape]
    return meta.replace(shape=tuple(shape))


def _scaled(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple([_scaled(item) for item in value])  # pyright: ignore[reportUnknownVariableType]  # plain
    if type(value) is int and value and value % SIZE == 0:
        times = value // SIZE
        return SymExpr(SYMBOL if times == 1 else f"{times}*{SYMBOL}")
    return value
