"""The exact torch operator of a node, and its attribute values as torch's."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, TypeAlias, cast

import torch

from torch_ir.errors import ExecutionError, InvalidIRError, did_you_mean
from torch_ir.ir import (
    IR,
    Attribute,
    Device,
    DType,
    FrozenDict,
    FunctionRef,
    Layout,
    MemoryFormat,
    OperatorRef,
    OpNode,
    SymExpr,
)
from torch_ir.ir.check.operators import OperatorCall, forbidden, forbidden_calls
from torch_ir.ir.diagnostics import Diagnostic, DiagnosticError, compile_error
from torch_ir.ir.expressions import Number
from torch_ir.ir.symbols import value_at
from torch_ir.ir.values import RUN_DEVICE, attribute_leaves
from torch_ir.ops.extensions import OPERATORS, import_for, import_hint
from torch_ir.ops.rules import OperatorRule, as_the_caller_says, computes_tensors, judged
from torch_ir.ops.schema import known_operators, lookup
from torch_ir.torch_api import (
    HigherOrderOperator,
    OpOverload,
    higher_order_operator,
    library_operators,
    operator_schema,
    overload,
)
from torch_ir.torch_versions import RECORDED

# Libraries that register the operators of a namespace when they are imported.
_REGISTERED_BY = {
    "higher_order": "torch_ir.frontend.gradients.autograd_function",
    "dim_order_ops": "torch_ir.dialects.edge.dim_order_kernels",
    "executorch_prims": "torch_ir.dialects.backend.kernels",
    "quantized_decomposed": "torch_ir.dialects.backend.kernels",
    "torch_nn": "torch.nn.modules.linear_cross_entropy",
    "flex_lib": "torch._dynamo._trace_wrapped_higher_order_op",
}


Operator: TypeAlias = OpOverload | HigherOrderOperator


def resolve_operator(op_type: str) -> Operator:
    """Look up the operator of exactly that name, if programs may call it.

    This is the one gate: whatever a program calls comes from here.

    Raises:
        CompileError: ``forbidden-operator``: the rules refuse it.
        ExecutionError: torch has no such overload; the message names the closest, or what to
            import.
    """
    operator = _find(op_type)
    rule = as_the_caller_says(_rule(operator))
    if not rule.allowed:
        raise compile_error([forbidden(rule).at(None)], None)
    return operator


def operator_of(node: OperatorCall) -> Operator:
    """Look up the operator of a node, if programs may make that call.

    Raises:
        CompileError: ``forbidden-operator``: the rules refuse it, what it is asked to do, or an
            operator that is handed to it.
        ExecutionError: As :func:`resolve_operator`.
    """
    try:
        return permitted(node)
    except DiagnosticError:
        faults = forbidden_calls(node, registered_rule)
    whole = node if isinstance(node, OpNode) else None
    raise compile_error([fault.at(whole) for fault in faults], whole)


def permitted(node: OperatorCall) -> Operator:
    """Look up the operator of a node, if programs may make that call.

    Raises:
        DiagnosticError: ``forbidden-operator``, as :func:`operator_of`.
        ExecutionError: As :func:`resolve_operator`.
    """
    operator = _that_computes_tensors(node.op_type)
    if operator is None or "unsafe" in node.attrs:
        operator = _find(node.op_type)
        for fault in forbidden_calls(node, registered_rule):
            raise fault
    return operator


@lru_cache(maxsize=4096)
def _that_computes_tensors(op_type: str) -> Operator | None:
    """An operator that rule 5 allows as torch itself has it registered, which never changes."""
    if not op_type.startswith("aten.") or not computes_tensors(op_type):
        return None
    rule = registered_rule(op_type)
    return _find(op_type) if rule is not None and rule.allowed else None


def require_allowed(ir: IR) -> None:
    """Refuse a program that calls what a program may not call, here or in a function.

    Raises:
        CompileError: ``forbidden-operator``; the findings are all such calls.
    """
    found: list[tuple[OpNode, Diagnostic]] = []
    for path, _, node in ir.walk():
        faults = forbidden_calls(node, registered_rule)
        found += [(node, fault.at(node, path)) for fault in faults]
    if found:
        raise compile_error([finding for _, finding in found], found[0][0])


def registered_rule(op_type: str) -> OperatorRule | None:
    """Return the verdict on an operator as torch has it registered; None if it has none."""
    operator = _registered(op_type)
    return None if operator is None else as_the_caller_says(_rule(operator))


def required_rule(op_type: str) -> OperatorRule:
    """Return the verdict on an operator as torch has it registered.

    Raises:
        ExecutionError: torch has no such overload.
    """
    return as_the_caller_says(_rule(_find(op_type)))


@lru_cache(maxsize=4096)
def _rule(operator: Operator) -> OperatorRule:
    if isinstance(operator, HigherOrderOperator):
        return judged(f"higher_order.{operator.name()}", None)
    try:
        schema = operator_schema(operator)
    except InvalidIRError:
        schema = None
    return judged(str(operator), schema)


def _find(op_type: str) -> Operator:
    operator = _registered(op_type)
    if operator is None and op_type.startswith("aten.") and lookup(op_type) is not None:
        raise ExecutionError(
            f"torch {torch.__version__} has no operator {op_type!r}, which torch {RECORDED} has",
            remedy=f"Extract the model anew with this torch, or run it with torch {RECORDED}.",
        )
    if operator is None:
        raise ExecutionError(
            f"torch has no operator {op_type!r}",
            remedy=_remedy(op_type.partition(".")[0], op_type),
        )
    return operator


def _registered(op_type: str) -> Operator | None:
    namespace, _, rest = op_type.partition(".")
    packet, _, name = rest.partition(".")
    if namespace in _REGISTERED_BY:
        with suppress(ModuleNotFoundError):  # torch 2.11 has no operators of torch_nn
            importlib.import_module(_REGISTERED_BY[namespace])
    elif namespace != "aten":
        import_for(OPERATORS, namespace)
    if namespace == "higher_order":
        return higher_order_operator(rest)
    return _of_torch(rest) if namespace == "aten" else overload(namespace, packet, name)


def _of_torch(name: str) -> OpOverload | None:
    """An operator of torch itself, which, unlike one of a library, never goes."""
    try:
        return _found(name)
    except LookupError:
        return None


@lru_cache(maxsize=4096)
def _found(name: str) -> OpOverload:
    operator = overload("aten", *name.partition(".")[::2])
    if operator is None:
        raise LookupError(name)  # which is not remembered: a library may still define it
    return operator


def _remedy(namespace: str, op_type: str) -> str:
    if namespace in ("aten", "prims", *_REGISTERED_BY):
        return did_you_mean(op_type, known_operators()) or "Check the name and the overload."
    name = op_type.partition(".")[2].partition(".")[0]
    loaded = [n for n in library_operators([namespace]) if n.partition(".")[0] == namespace]
    if overloads := [known for known in loaded if known.split(".")[1] == name]:
        return f"It is {' or '.join(overloads)}."
    closest = did_you_mean(name, {known.split(".")[1] for known in loaded})
    return closest or import_hint(namespace)


def to_torch(
    value: Attribute, run_device: torch.device, function: Callable[[str], Callable[..., Any]]
) -> Any:
    """Convert an attribute to the argument that torch takes; expressions stay unchanged.

    Args:
        value: The attribute.
        run_device: What ``Device("run")`` and the meta device stand for.
        function: Gives the callable of an entry of ``IR.functions``.
    """
    match value:
        case DType(name=name) | Layout(name=name) | MemoryFormat(name=name):
            return getattr(torch, name)
        case Device(name=name):
            return run_device if name in (RUN_DEVICE, "meta") else torch.device(name)
        case FunctionRef(name=name):
            return function(name)
        case OperatorRef(name=name):
            return resolve_operator(name)
        case tuple():
            return [to_torch(item, run_device, function) for item in value]
        case FrozenDict():
            return {key: to_torch(item, run_device, function) for key, item in value.items()}
        case _:
            return value


def has_expression(value: Attribute) -> bool:
    """Return whether a value depends on symbols."""
    return any(isinstance(leaf, SymExpr) for leaf in attribute_leaves(value))


def map_argument(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return an argument of torch with each leaf changed, in lists and dicts."""
    if isinstance(value, list | tuple):
        return [map_argument(item, change) for item in cast(Sequence[Any], value)]
    if isinstance(value, dict):
        items = cast(dict[str, Any], value).items()
        return {key: map_argument(item, change) for key, item in items}
    return change(value)


def evaluate(value: Any, bindings: Mapping[str, Number]) -> Any:
    """Evaluate every expression in a value."""
    return map_argument(value, lambda leaf: value_at(leaf, bindings))
