"""Rules of Edge beyond core ATen: dtypes by the table, no numbers for tensors, one layout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch_ir.dialects.rules import is_custom
from torch_ir.dialects.scope import VerifierScope
from torch_ir.ir import DType, OpNode, SymExpr, TensorMeta, ValueLeaf
from torch_ir.ir.diagnostics import Diagnostic
from torch_ir.ir.expressions import kind_of
from torch_ir.ir.tree import leaves
from torch_ir.ir.values import Attribute
from torch_ir.ops.dtype_constraints import (
    EDGE_DTYPES,
    DTypeTable,
    constraint_of,
    is_registered,
    result_names,
)
from torch_ir.ops.schema import Schema

TO_EDGE = "Lower the program with to_edge."
NO_TENSOR = (
    "to_edge(..., strict=True) makes a tensor where one does the same; else leave strict out."
)
BY_STRIDES = frozenset({"aten._to_copy.default", "aten.clone.default", "aten.empty.memory_format"})
"""Operators whose layout follows from strides."""


def lowered(scope: VerifierScope) -> Iterator[Diagnostic]:
    """Require that the program says it is Edge; before, its operators are ATen's, of any dtype."""
    if not scope.path and scope.ir.dialect not in ("edge", "backend"):
        yield Diagnostic(
            "not-edge",
            f"the operators of the program are those of {scope.ir.dialect!r}, not of Edge",
            expected="edge",
            found=scope.ir.dialect,
            remedy=TO_EDGE,
        )


def dtype_rows(scope: VerifierScope, node: OpNode) -> Iterator[Diagnostic]:
    """Require that the dtypes of a call are among the operator's rows."""
    spec = scope.spec(node)
    if spec is None:
        return
    is_known = node.op_type not in scope.operators or is_registered(node.op_type)
    table = constraint_of(node.op_type) if is_known else None
    if table is None:
        yield from _supported(scope, node)
        return
    query = dtypes_of(node, spec.schema)
    if not table.validate(query, partial=True):
        yield _no_row(scope, node, table, query)


def _supported(scope: VerifierScope, node: OpNode) -> Iterator[Diagnostic]:
    """Without rows, a call may have every dtype that Edge has."""
    for meta in (*node.inputs, *node.outputs):
        if meta.dtype not in EDGE_DTYPES:
            yield scope.violation(
                "unsupported-dtype",
                node,
                f"Edge has no {meta.dtype}, which is the dtype of %{meta.name}",
                expected=_listed(EDGE_DTYPES),
                found=meta.dtype,
            )


def dtypes_of(node: OpNode, schema: Schema) -> dict[str, str | None]:
    """Return the dtype of each argument and result that has one, as rows name them.

    A list stands for its first tensor; a number for the dtype of its kind.
    """
    found: dict[str, str | None] = {}
    for argument in schema.arguments:
        metas = node.tensors(argument.name)
        if metas:
            found[argument.name] = metas[0].dtype
        elif argument.takes_tensor_list and node.slots.get(argument.name) == ():
            found[argument.name] = None
        elif argument.name in node.attrs:
            kind = kind_of_number(node.attrs[argument.name])
            if kind is not None and argument.type.startswith(("Scalar", "Tensor")):
                found[argument.name] = kind
    names = result_names(schema)
    for meta in node.outputs:
        if names:
            found.setdefault(names[min(meta.producer_output_idx, len(names) - 1)], meta.dtype)
    return found


def kind_of_number(value: Attribute) -> str | None:
    """Return the dtype that stands for a number's kind, or that a dtype argument names."""
    match value:
        case DType(name=name):
            return name
        case bool():
            return "bool"
        case int():
            return "int64"
        case float():
            return "float64"
        case complex():
            return "complex128"
        case SymExpr(text=text):
            kinds: dict[type, str] = {bool: "bool", int: "int64", float: "float64"}
            return kinds[kind_of(text)]
        case _:
            return None


def _no_row(
    scope: VerifierScope, node: OpNode, table: DTypeTable, query: Mapping[str, str | None]
) -> Diagnostic:
    arguments = {name: dtype for name, dtype in query.items() if name not in table.results}
    results = {name: dtype for name, dtype in query.items() if name in table.results}
    found = f"{_pairs(arguments)} -> {_pairs(results)}"
    for name, dtype in arguments.items():
        allowed = table.allowed_types(name)
        if dtype is not None and dtype not in allowed:
            return scope.violation(
                "dtype-constraint",
                node,
                f"{node.op_type} takes no {dtype} as {name!r}",
                expected=_listed(allowed),
                found=dtype,
            )
    if not table.validate(arguments, partial=True):
        return scope.violation(
            "dtype-constraint",
            node,
            f"{node.op_type} takes no such dtypes together",
            expected="a row of the operator's constraint",
            found=found,
            remedy="Convert the operands to one dtype; to_edge does so as eager promotes them.",
        )
    return scope.violation(
        "dtype-constraint",
        node,
        f"{node.op_type} does not give {_pairs(results)} for {_pairs(arguments)}",
        expected=_pairs(_given(table, arguments)),
        found=_pairs(results),
    )


def _given(table: DTypeTable, arguments: Mapping[str, str | None]) -> dict[str, str | None]:
    """The dtypes of the results that some row gives for these arguments."""
    found: dict[str, str | None] = {}
    for name in table.names:
        if name in table.results:
            fitting = [
                dtype
                for dtype in sorted(table.allowed_types(name))
                if table.validate({**arguments, name: dtype}, partial=True)
            ]
            found[name] = " or ".join(fitting)
    return found


def _pairs(dtypes: Mapping[str, str | None]) -> str:
    return ", ".join([f"{name}: {dtype}" for name, dtype in dtypes.items()]) or "nothing"


def _listed(dtypes: frozenset[str]) -> str:
    return " or ".join(sorted(dtypes)) or "nothing"


def one_dtype_in_lists(scope: VerifierScope, node: OpNode) -> Iterator[Diagnostic]:
    """Require that the tensors of a list, given or returned, have one dtype."""
    spec = scope.spec(node)
    if spec is None or node.op_type in scope.operators:
        return
    for argument in spec.schema.arguments:
        if argument.takes_tensor_list and "?" not in argument.type:
            yield from _one_dtype(scope, node, argument.name, node.tensors(argument.name))
    if [r.type for r in spec.schema.returns] == ["Tensor[]"]:
        yield from _one_dtype(scope, node, "the result", tuple(node.outputs))


def _one_dtype(
    scope: VerifierScope, node: OpNode, name: str, metas: tuple[TensorMeta, ...]
) -> Iterator[Diagnostic]:
    dtypes = list(dict.fromkeys(meta.dtype for meta in metas))
    if len(dtypes) > 1:
        yield scope.violation(
            "mixed-dtypes",
            node,
            f"the tensors of {name!r} of {node.op_type} have different dtypes",
            expected="one dtype",
            found=", ".join(dtypes),
            remedy="Convert them to one dtype; to_edge does so as eager promotes them.",
        )


def no_number_for_tensor(scope: VerifierScope, node: OpNode) -> Iterator[Diagnostic]:
    """Refuse numbers where the schema has a tensor."""
    spec = scope.spec(node)
    if spec is None:
        return
    for argument in spec.schema.arguments:
        value = node.attrs.get(argument.name)
        if argument.takes_tensor and isinstance(value, bool | int | float | complex | SymExpr):
            yield scope.violation(
                "number-for-tensor",
                node,
                f"the argument {argument.name!r} of {node.op_type} is a number",
                expected="a tensor",
                found=str(value),
                remedy=f"{TO_EDGE} It makes the constant that eager computes with.",
            )


def no_number_results(scope: VerifierScope, node: OpNode) -> Iterator[Diagnostic]:
    """Refuse custom operators that return a number."""
    spec = scope.spec(node)
    if spec is not None and is_custom(node.op_type) and "scalar-result" in spec.traits:
        yield scope.violation(
            "number-result",
            node,
            f"{node.op_type} returns what is no tensor",
            expected="tensors",
            found=", ".join([result.type for result in spec.schema.returns]),
        )


def layout_by_dim_order(scope: VerifierScope, node: OpNode) -> Iterator[Diagnostic]:
    """Require the order of dimensions for layouts; refuse strides and memory formats."""
    if node.op_type in BY_STRIDES:
        yield scope.violation(
            "implicit-layout",
            node,
            f"the layout of what {node.op_type} returns follows from strides",
            expected="an operator of dim_order_ops",
            found=node.op_type,
            remedy=TO_EDGE,
        )


def layout_by_strides(scope: VerifierScope, node: OpNode) -> Iterator[Diagnostic]:
    """Require memory formats for layouts; refuse the order of dimensions."""
    if node.op_type.startswith("dim_order_ops."):
        yield scope.violation(
            "dim-order-operator",
            node,
            f"{node.op_type} says the order of dimensions, which this dialect does not have",
            expected="an operator of aten",
            found=node.op_type,
        )


# -- the strict reading: no number anywhere -------------------------------------------------------


def no_numbers(scope: VerifierScope, node: OpNode) -> Iterator[Diagnostic]:
    """Refuse number arguments that a tensor could replace."""
    spec = scope.spec(node)
    if spec is None:
        return
    for argument in spec.schema.arguments:
        value = node.attrs.get(argument.name)
        if argument.type in ("Scalar", "Scalar?") and value is not None:
            yield scope.violation(
                "number-argument",
                node,
                f"the argument {argument.name!r} of {node.op_type} is a number",
                expected="a tensor",
                found=str(value),
                remedy=NO_TENSOR,
            )
    if "scalar-result" in spec.traits:
        yield scope.violation(
            "number-result",
            node,
            f"{node.op_type} returns what is no tensor",
            expected="tensors",
            remedy=NO_TENSOR,
        )


def tensors_in_and_out(scope: VerifierScope) -> Iterator[Diagnostic]:
    """Require that the program takes and returns tensors only."""
    if scope.ir.signature is None or scope.path:
        return
    for word, tree in (
        ("takes", scope.ir.signature.inputs),
        ("gives", scope.ir.signature.outputs),
    ):
        for leaf in leaves(tree):
            if isinstance(leaf, ValueLeaf) and leaf.value is not None:
                yield Diagnostic(
                    "number-in-signature",
                    f"the program {word} {leaf.value!s}, which is no tensor",
                    expected="tensors",
                    found=str(leaf.value),
                    remedy=NO_TENSOR,
                )
