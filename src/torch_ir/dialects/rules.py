"""Rules that dialects share: which operators may be called, and that calls change nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from torch_ir.dialects.scope import VerifierScope
from torch_ir.ir import MemoryFormat, OpNode, TensorMeta
from torch_ir.ir.diagnostics import Diagnostic
from torch_ir.ops.spec import OpSpec
from torch_ir.ops.variants import copy_of

NodeRule: TypeAlias = Callable[[VerifierScope, OpNode], Iterator[Diagnostic]]
GraphRule: TypeAlias = Callable[[VerifierScope], Iterator[Diagnostic]]

TORCH_NAMESPACES = frozenset({"aten", "prims", "higher_order"})
LATER_NAMESPACES = frozenset({"dim_order_ops", "executorch_prims", "edge"})
"""Namespaces that only come in with a later dialect."""

_OPTIONS = (
    "ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None"
)

DIM_ORDER_SCHEMAS = {
    "dim_order_ops._to_dim_order_copy.default": "dim_order_ops::_to_dim_order_copy(Tensor self, "
    f"*, {_OPTIONS}, bool non_blocking=False, int[]? dim_order=None) -> Tensor",
    "dim_order_ops._clone_dim_order.default": "dim_order_ops::_clone_dim_order(Tensor self, *, "
    "bool non_blocking=False, int[]? dim_order=None) -> Tensor",
    "dim_order_ops._empty_dim_order.default": "dim_order_ops::_empty_dim_order(SymInt[] size, *, "
    f"{_OPTIONS}, int[]? dim_order=None) -> Tensor",
}
"""The operators of Edge that say the order of dimensions, with executorch's schemas."""

FUNCTIONALIZE = "Run the pass functionalize."


def namespace_of(op_type: str) -> str:
    """Return the library of an operator: ``aten`` of ``aten.add.Tensor``."""
    return op_type.partition(".")[0]


def is_custom(op_type: str) -> bool:
    """Return whether the operator is one that a library registered."""
    return namespace_of(op_type) not in TORCH_NAMESPACES | LATER_NAMESPACES


def known_operator(scope: VerifierScope, node: OpNode) -> Iterator[Diagnostic]:
    """Require a schema of custom operators: recorded by the program, or registered with torch."""
    if namespace_of(node.op_type) == "higher_order" or scope.spec(node) is not None:
        return
    if namespace_of(node.op_type) in ("aten", "prims", "quantized_decomposed"):
        return  # reported as unknown-operator by the structural check
    yield scope.violation(
        "unregistered-operator",
        node,
        f"{node.op_type} is no operator: nobody registered a schema for it",
        remedy="Register it with torch.library, or record its schema in IR.operators.",
    )


def functional(scope: VerifierScope, node: OpNode) -> Iterator[Diagnostic]:
    """Refuse calls that write an argument or return a view of one."""
    spec = scope.spec(node)
    if spec is None:
        return
    if "writes" in spec.traits:
        written = [a.name for a in spec.schema.arguments if a.is_written]
        yield scope.violation(
            "writes-argument",
            node,
            f"{node.op_type} writes its argument {written[0]!r}",
            expected="a functional operator",
            found=str(spec.schema),
            remedy=FUNCTIONALIZE,
        )
    elif "view" in spec.traits:
        yield _aliasing(scope, node, spec)


def own_results(scope: VerifierScope, node: OpNode) -> Iterator[Diagnostic]:
    """Refuse calls that write an argument, and graph outputs that alias what others see.

    Inside a graph that writes nothing, a view and a copy have the same effect.
    """
    spec = scope.spec(node)
    if spec is None:
        return
    if "writes" in spec.traits or ("view" in spec.traits and is_custom(node.op_type)):
        yield from functional(scope, node)
        return
    for meta in node.outputs:
        other = scope.ir.aliases.shared_results.get(meta.name)
        if other is not None:
            yield _shown(scope, node, meta, other)


def _aliasing(scope: VerifierScope, node: OpNode, spec: OpSpec) -> Diagnostic:
    return scope.violation(
        "aliases-argument",
        node,
        f"{node.op_type} returns a view of its argument",
        expected="an operator that returns new memory",
        found=str(spec.schema),
        remedy=FUNCTIONALIZE,
    )


def _shown(scope: VerifierScope, node: OpNode, meta: TensorMeta, other: str) -> Diagnostic:
    copy = copy_of(node.op_type) or "aten.clone.default"
    return scope.violation(
        "aliases-argument",
        node,
        f"the result %{meta.name} is a view of %{other}: {node.op_type} returns memory of its "
        "argument",
        expected="a result with memory of its own",
        found=str(node.op_type),
        remedy=f"Give away a copy ({copy}), as the pass functionalize does.",
    )


def core(scope: VerifierScope, node: OpNode) -> Iterator[Diagnostic]:
    """Require that calls of ATen are of its core set, or of an operator that the caller allows."""
    spec = scope.spec(node)
    if spec is None or namespace_of(node.op_type) != "aten" or node.op_type in scope.allow:
        return
    if not spec.is_core:
        yield scope.violation(
            "not-core",
            node,
            f"{node.op_type} is not in the core ATen set",
            remedy="Decompose it with the pass decompose, keep it there with preserve=, or "
            f"allow it: verify(..., allow=({node.op_type!r},)).",
        )


def namespaces(*allowed: str, custom: bool) -> NodeRule:
    """Return the rule that operators come from these libraries, or are custom ones."""

    def rule(scope: VerifierScope, node: OpNode) -> Iterator[Diagnostic]:
        namespace = namespace_of(node.op_type)
        if namespace in allowed or (custom and is_custom(node.op_type)):
            return
        named = ", ".join(sorted(allowed))
        yield scope.violation(
            "foreign-operator",
            node,
            f"operators of {namespace!r} do not belong to this dialect",
            expected=f"{named} or a custom operator" if custom else named,
            found=node.op_type,
        )

    return rule


def contiguous(scope: VerifierScope, node: OpNode) -> Iterator[Diagnostic]:
    """Refuse calls that ask for another memory format than the contiguous one."""
    asked = node.attrs.get("memory_format")
    allowed = ("contiguous_format", "preserve_format")
    if isinstance(asked, MemoryFormat) and asked.name not in allowed:
        yield scope.violation(
            "not-contiguous",
            node,
            f"{node.op_type} asks for {asked}",
            expected="torch.contiguous_format",
            found=str(asked),
            remedy="Lower to Edge, where the order of dimensions is explicit.",
        )


def results(scope: VerifierScope, node: OpNode) -> Iterator[Diagnostic]:
    """Require that a call of an operator that returns one tensor outputs it, with its type."""
    spec = scope.spec(node)
    if spec is None or node.functions:
        return
    returns = spec.schema.returns
    if len(returns) == 1 and returns[0].type == "Tensor" and len(node.outputs) != 1:
        yield scope.violation(
            "missing-result",
            node,
            f"{node.op_type} returns a tensor, and the node records {len(node.outputs)}",
            expected="one output with its shape and dtype",
            found=str(len(node.outputs)),
        )
