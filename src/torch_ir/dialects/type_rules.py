"""Recorded shapes and dtypes against what each call gives, inferred without data.

Each call is inferred from the types that its inputs are recorded with, so a lie is found where it
is told and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TypeAlias, cast

from torch_ir.dialects.rules import is_custom, namespace_of
from torch_ir.dialects.scope import VerifierScope
from torch_ir.errors import InvalidIRError
from torch_ir.infer.bindings import DataSizes
from torch_ir.infer.engine import call_at
from torch_ir.infer.hints import samplings
from torch_ir.infer.types import Outcome, TensorType
from torch_ir.ir import Dim, OpNode, TensorMeta
from torch_ir.ir.analysis.sparse import SparseValues
from torch_ir.ir.diagnostics import Diagnostic
from torch_ir.ir.expressions import Number
from torch_ir.ir.queries import takes_free_number
from torch_ir.ir.symbols import shape_at
from torch_ir.ir.tensor import type_text
from torch_ir.ir.values import row_major

Symbols: TypeAlias = Mapping[str, Number]


def type_violations(scope: VerifierScope, malformed: set[str]) -> Iterator[Diagnostic]:
    """Yield every call of a graph that torch refuses, or whose results are not as recorded.

    Args:
        scope: The graph.
        malformed: Names of nodes, with their path, that cannot be called as they are.
    """
    found = samplings(scope.ir)
    if not found:
        return  # no sizes were found that the conditions of the program allow
    samples = found[-1]  # where sizes that may differ do
    sparse = SparseValues(scope.ir)  # which operators on them do not take a dense one for
    for node in scope.ir.nodes:
        is_dense = not sparse.takes(node)
        sparse.keep(node)
        if is_dense and scope.named(node.name) not in malformed and not node.functions:
            yield from _of_node(scope, node, samples)


def _of_node(scope: VerifierScope, node: OpNode, symbols: Symbols) -> Iterator[Diagnostic]:
    if scope.spec(node) is None or namespace_of(node.op_type) == "higher_order":
        return
    try:
        inputs = [_type(_shape(meta, symbols), meta.dtype) for meta in node.inputs]
        recorded = [(meta, _shape(meta, symbols)) for meta in node.outputs]
    except InvalidIRError:
        return  # a size without a value at these samples
    outcome = call_at(node, inputs, symbols, scope.regions)
    match outcome.kind:
        case "no-fake-kernel":
            yield scope.violation(
                "no-meta-kernel",
                node,
                f"{node.op_type} cannot say what it gives without data",
                expected="an operator with a meta kernel",
                remedy=f"Register one: torch.library.register_fake({_qualified(node.op_type)}).",
            )
        case "refused" if takes_free_number(scope.ir, node):
            pass  # there are others than that of the sample
        case "refused":
            message = f"{node.op_type}: {outcome.refusal}"
            yield scope.violation("refused-arguments", node, message, remedy=outcome.remedy)
        case _:
            yield from _compared(scope, node, recorded, outcome)


def _compared(
    scope: VerifierScope,
    node: OpNode,
    recorded: Iterable[tuple[TensorMeta, tuple[int, ...]]],
    outcome: Outcome,
) -> Iterator[Diagnostic]:
    count = len(outcome.results)
    for meta, shape in recorded:
        made = outcome.result(meta)
        if count and meta.producer_output_idx >= count:
            index = meta.producer_output_idx
            message = f"%{meta.name} is result {index} of {node.op_type}, which gives {count}"
            yield scope.violation("wrong-type", node, message)
        elif made is not None and (made.shape, made.dtype) != (
            _bound_by(scope, node, meta, shape, made.shape),
            meta.dtype,
        ):
            yield scope.violation(
                "wrong-type",
                node,
                f"%{meta.name} is not what {node.op_type} gives",
                expected=type_text(made),
                found=type_text(meta),
            )
    if is_custom(node.op_type) and any(outcome.shares):
        yield scope.violation(
            "aliases-argument",
            node,
            f"{node.op_type} returns memory of its argument, and its schema does not say so",
            expected="an operator that returns new memory",
            remedy="Return a copy, or mark the alias in the schema.",
        )


def _bound_by(
    scope: VerifierScope,
    node: OpNode,
    meta: TensorMeta,
    shape: tuple[int, ...],
    made: tuple[Dim, ...],
) -> tuple[Dim, ...]:
    """The shape that is recorded, with what the call gives where it gives a symbol its value.

    A slice from one number to another, both from data, has a size that no sample of them tells.
    """
    if meta.is_static or len(made) != len(shape):
        return shape
    bound = scope.ir.view("data_sizes", lambda: DataSizes(scope.ir)).bound(node)
    triples = zip(meta.shape, shape, made, strict=True)
    return tuple([given if str(dim) in bound else size for dim, size, given in triples])


def _qualified(op_type: str) -> str:
    namespace, packet, overload = op_type.split(".", 2)
    suffix = "" if overload == "default" else f".{overload}"
    return f'"{namespace}::{packet}{suffix}"'


def _shape(meta: TensorMeta, symbols: Symbols) -> tuple[int, ...]:
    if meta.is_static:
        return cast(tuple[int, ...], meta.shape)
    sizes = shape_at(meta.shape, symbols)
    if any(size < 0 for size in sizes):
        raise InvalidIRError(f"{meta} has no size at these samples")
    return sizes


@lru_cache(maxsize=4096)
def _type(shape: tuple[int, ...], dtype: str) -> TensorType:
    return TensorType(shape, dtype, row_major(shape))
