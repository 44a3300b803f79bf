"""Shapes and dtypes derived anew: what each call gives, by torch's fake tensors.

Each call is derived from the types that its inputs are recorded with, so a lie is found where it
is told and nowhere else. What torch said of a call is kept, since models repeat theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import torch  # noqa: TID253  # this module is imported where types are derived, and only there

from torch_ir.dialects.rules import is_custom, namespace_of
from torch_ir.dialects.scope import Region, VerifierScope
from torch_ir.errors import ExecutionError, InvalidIRError, first_line
from torch_ir.infer.hints import samplings
from torch_ir.infer.resolve import evaluate, resolve_operator
from torch_ir.ir import (
    Attribute,
    Device,
    DType,
    FrozenDict,
    Layout,
    MemoryFormat,
    OperatorRef,
    OpNode,
    SymExpr,
    TensorMeta,
)
from torch_ir.ir.diagnostics import Diagnostic
from torch_ir.ir.expressions import Number
from torch_ir.ir.tensor import type_text
from torch_ir.ir.values import dtype_name
from torch_ir.torch_api import (
    NO_FAKE_RESULT,
    FakeTensorMode,
    OpOverload,
    enable_python_dispatcher,
    operator_schema,
)

Type: TypeAlias = tuple[tuple[int, ...], str]
"""A shape without symbols, and a dtype."""

Symbols: TypeAlias = Mapping[str, Number]


@dataclass(frozen=True, slots=True)
class Derived:
    """What a call gives.

    Attributes:
        types: The type of each result, flattened; None for what is no tensor or cannot be known.
        refusal: Why torch does not take the call, or the empty string.
        remedy: What to do about that, if something is known.
        has_meta: Whether the operator can say what it gives.
        aliases: Whether a result shares memory with an argument.
    """

    types: tuple[Type | None, ...] = ()
    refusal: str = ""
    remedy: str = ""
    has_meta: bool = True
    aliases: bool = False


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
    for node in scope.ir.nodes:
        if scope.named(node.name) not in malformed and not node.functions:
            yield from _of_node(scope, node, samples)


def _of_node(scope: VerifierScope, node: OpNode, symbols: Symbols) -> Iterator[Diagnostic]:
    if scope.spec(node) is None or namespace_of(node.op_type) == "higher_order":
        return
    try:
        inputs = tuple([_type(meta, symbols) for meta in node.inputs])
        attrs = {name: _concrete(value, symbols) for name, value in node.attrs.items()}
        recorded = [(meta, _type(meta, symbols)) for meta in node.outputs]
    except InvalidIRError:
        return  # a size without a value at these samples
    derived = derive(node.op_type, inputs, node.slots, attrs, scope.regions)
    if not derived.has_meta:
        yield scope.violation(
            "no-meta-kernel",
            node,
            f"{node.op_type} cannot say what it gives without data",
            expected="an operator with a meta kernel",
            remedy=f'Register one: torch.library.register_fake("{_qualified(node.op_type)}").',
        )
    elif derived.refusal:
        message = f"{node.op_type}: {derived.refusal}"
        yield scope.violation("refused-arguments", node, message, remedy=derived.remedy)
    else:
        yield from _compared(scope, node, recorded, derived)


def _compared(
    scope: VerifierScope,
    node: OpNode,
    recorded: Iterable[tuple[TensorMeta, Type]],
    derived: Derived,
) -> Iterator[Diagnostic]:
    for meta, (shape, dtype) in recorded:
        index = meta.producer_output_idx
        made = derived.types[index] if index < len(derived.types) else None
        if derived.types and index >= len(derived.types):
            count = len(derived.types)
            message = f"%{meta.name} is result {index} of {node.op_type}, which gives {count}"
            yield scope.violation("wrong-type", node, message)
        elif made is not None and made != (shape, dtype):
            yield scope.violation(
                "wrong-type",
                node,
                f"%{meta.name} is not what {node.op_type} gives",
                expected=type_text(TensorMeta("", made[0], made[1])),
                found=type_text(meta),
            )
    if derived.aliases and is_custom(node.op_type):
        yield scope.violation(
            "aliases-argument",
            node,
            f"{node.op_type} returns memory of its argument, and its schema does not say so",
            expected="an operator that returns new memory",
            remedy="Return a copy, or mark the alias in the schema.",
        )


def _qualified(op_type: str) -> str:
    namespace, packet, overload = op_type.split(".", 2)
    return f"{namespace}::{packet}" + ("" if overload == "default" else f".{overload}")


# -- one call -------------------------------------------------------------------------------------

_KNOWN: dict[object, Derived] = {}
MAX_KNOWN = 100_000


def derive(
    op_type: str,
    inputs: tuple[Type, ...],
    operands: Mapping[str, Any],
    attrs: Mapping[str, Any],
    regions: tuple[Region, ...] = (),
) -> Derived:
    """Derive the types of a call's results.

    Args:
        op_type: The operator.
        inputs: The types of the tensors.
        operands: Which argument takes which of them.
        attrs: The other arguments, without symbols.
        regions: The autocast regions in which it is called.
    """
    key = (op_type, inputs, repr(operands), repr(attrs), regions)
    found = _KNOWN.get(key)
    if found is None or is_custom(op_type):  # a custom operator may be registered anew
        if len(_KNOWN) >= MAX_KNOWN:
            _KNOWN.clear()
        found = _KNOWN[key] = _derive(op_type, inputs, operands, attrs, regions)
    return found


def _derive(
    op_type: str,
    inputs: tuple[Type, ...],
    operands: Mapping[str, Any],
    attrs: Mapping[str, Any],
    regions: tuple[Region, ...],
) -> Derived:
    try:
        operator = resolve_operator(op_type)
    except ExecutionError as error:
        return Derived(refusal=error.message, remedy=error.remedy or "")
    if not isinstance(operator, OpOverload):
        return Derived()
    mode: Any = FakeTensorMode(allow_non_fake_inputs=True)
    # with torch's Python implementations, as torch.export traces: some kernels would read the data
    with ExitStack() as stack:
        for context in (
            mode,
            enable_python_dispatcher(),
            torch.no_grad(),
            *map(_autocast, regions),
        ):
            stack.enter_context(context)
        tensors = [torch.empty(shape, dtype=getattr(torch, dtype)) for shape, dtype in inputs]
        args, kwargs = _arguments(operator, tensors, operands, attrs)
        try:
            made = operator(*args, **kwargs)
        except NO_FAKE_RESULT as error:
            return Derived(has_meta=not _lacks_meta(operator, error))
        except Exception as error:  # noqa: BLE001  # kernels raise anything
            return Derived(refusal=first_line(error))
        flat = list(_flatten(made))
        return Derived(tuple([_made_type(item) for item in flat]), aliases=_shares(tensors, flat))


def _autocast(region: Region) -> Any:
    device, dtype, enabled = region
    kind = getattr(torch, dtype) if dtype else None
    return torch.autocast(device, dtype=kind, enabled=enabled, cache_enabled=False)


def _lacks_meta(operator: OpOverload, error: Exception) -> bool:
    """Whether the reason is that nobody wrote a meta kernel, not that the result needs data."""
    tags = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}
    data_dependent = bool(tags & {*operator.tags}) or "DataDependent" in type(error).__name__
    return not data_dependent and operator.namespace not in ("aten", "prims")


def _arguments(
    operator: OpOverload,
    tensors: list[torch.Tensor],
    operands: Mapping[str, Any],
    attrs: Mapping[str, Any],
) -> tuple[list[Any], dict[str, Any]]:
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    skipped = False
    for argument in operator_schema(operator).arguments:
        name = argument.name
        if name not in operands and name not in attrs:
            skipped = True
            continue
        slots = operands.get(name)
        rest = attrs.get(name)
        if isinstance(slots, int):
            value: Any = tensors[slots]
        elif slots is None:
            value = rest
        else:
            value = [
                tensors[slot] if slot is not None else (rest[i] if rest is not None else None)
                for i, slot in enumerate(slots)
            ]
        if argument.keyword_only or skipped:
            kwargs[name] = value
        else:
            args.append(value)
    return args, kwargs


def _flatten(made: object) -> Iterator[object]:
    if isinstance(made, list | tuple):
        for item in cast(list[object], made):
            yield from _flatten(item)
    else:
        yield made


def _made_type(made: object) -> Type | None:
    if not isinstance(made, torch.Tensor):
        return None
    shape = cast(tuple[Any, ...], tuple(made.shape))
    if any(isinstance(size, torch.SymInt) for size in shape):
        return None  # the size depends on data
    return tuple([int(size) for size in shape]), dtype_name(made.dtype, strict=False)


def _shares(tensors: list[torch.Tensor], made: list[object]) -> bool:
    given = {id(tensor) for tensor in tensors}
    storages = {tensor.untyped_storage()._cdata for tensor in tensors}  # pyright: ignore[reportPrivateUsage]  # torch has no public identity of a storage
    return any(
        id(item) in given or item.untyped_storage()._cdata in storages  # pyright: ignore[reportPrivateUsage]  # as above
        for item in made
        if isinstance(item, torch.Tensor)
    )


# -- without symbols ------------------------------------------------------------------------------


def _type(meta: TensorMeta, symbols: Symbols) -> Type:
    if meta.is_static:
        return cast(tuple[int, ...], meta.shape), meta.dtype
    sizes = [int(d.evaluate(symbols)) if isinstance(d, SymExpr) else d for d in meta.shape]
    if any(size < 0 for size in sizes):
        raise InvalidIRError(f"{meta} has no size at these samples")
    return tuple(sizes), meta.dtype


def _concrete(value: Attribute, symbols: Symbols) -> Any:
    """An attribute as the argument that torch takes."""
    match value:
        case DType(name=name) | Layout(name=name) | MemoryFormat(name=name):
            return getattr(torch, name)
        case Device():
            return torch.device("cpu")  # types are the same on every device
        case OperatorRef(name=name):
            return resolve_operator(name)
        case tuple():
            return [_concrete(item, symbols) for item in value]
        case FrozenDict():
            return {key: _concrete(item, symbols) for key, item in value.items()}
        case _:
            return evaluate(value, symbols)
