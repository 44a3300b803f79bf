"""Operators of a target that stand for a pattern: it is their kernel and their decomposition."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch  # noqa: TID253  # operators are bound where torch is
from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode  # noqa: TID253  # as above

from torch_ir.dialects.backend.sampling import close, samples
from torch_ir.errors import InvalidIRError, PassError, counted, did_you_mean, short
from torch_ir.ops.rules import note_registered
from torch_ir.ops.schema import Argument, Schema, default_of, parse_schema
from torch_ir.torch_api import operator_schema, overload, overload_name, pytree
from torch_ir.torch_memory import fresh

Pattern = TypeVar("Pattern", bound=Callable[..., Any])

_NAME = re.compile(r"(?:(\w+)::)?(\w+)(?:\.(\w+))?\s*(\(.*)?", re.DOTALL)
_KERNEL_KEYS = ("CompositeExplicitAutograd", "CompositeImplicitAutograd", "Meta", "CPU", "CUDA")


@dataclass(frozen=True, slots=True)
class PatternBinding:
    """An operator and what it stands for.

    Attributes:
        schema: The operator's schema.
        pattern: The function that computes the same with other operators, in the order of the
            schema's arguments.
        has_kernel: Whether the operator has a kernel of its own; it is never decomposed then.
        tolerance: How far results of that kernel may be from the pattern's.
    """

    schema: Schema
    pattern: Callable[..., Any]
    has_kernel: bool
    tolerance: float = 0.0

    @property
    def is_meaning(self) -> bool:
        """Whether the operator means what the pattern computes, no more and no less."""
        return self.tolerance == 0


_BINDINGS: dict[str, PatternBinding] = {}


def bindings() -> Mapping[str, PatternBinding]:
    """Return every bound operator by overload; those of unloaded libraries are gone."""
    return {name: bound for name, bound in _BINDINGS.items() if _is_there(name)}


def _is_there(op_type: str) -> bool:
    namespace, packet, name = op_type.split(".")
    return overload(namespace, packet, name) is not None


def bind_pattern_to_op(
    library: torch.library.Library,
    schema_or_name: str,
    *,
    example_inputs: Sequence[Any] | None = None,
    tolerance: float = 0.0,
) -> Callable[[Pattern], Pattern]:
    """Let an operator of a library stand for the decorated function.

    An operator without a kernel runs the function, on real, fake and meta tensors; whatever
    traces it (``torch.export``, ``make_fx``, ``decompose``) sees the function's operators. One
    with a kernel of its own keeps it, and stays whole.

    Args:
        library: Where the operator belongs.
        schema_or_name: Its schema, which is defined, or the name of one that is already defined:
            ``"linrelu(Tensor x, Tensor w) -> Tensor"``, ``"linrelu"``, ``"add.int"``. The
            namespace may stand before it.
        example_inputs: Arguments to try it with; made up from the schema if not given.
        tolerance: How far the results of a kernel of its own may be from the function's,
            relative to the largest of the function's; 0 asks for the same bits.

    Returns:
        The decorator; it returns the function unchanged.

    Raises:
        PassError: The function does not fit the schema, its result is not what the schema says,
            or the operator's kernel computes something else. Nothing is registered then.

    Example:
        >>> library = torch.library.Library("docs_example", "FRAGMENT")
        >>> @bind_pattern_to_op(library, "linrelu(Tensor x, Tensor w) -> Tensor")
        ... def linrelu(x, w):
        ...     return torch.relu(x @ w)
        >>> torch.ops.docs_example.linrelu(-torch.ones(1, 2), torch.ones(2, 1))
        tensor([[0.]])
    """

    def decorate(function: Pattern) -> Pattern:
        schema, operator = _target(library, schema_or_name)
        if schema.op_type in bindings():
            raise PassError(
                f"{schema.op_type} already stands for a pattern",
                remedy="Bind each pattern to an operator or overload of its own.",
            )
        _require_arity(schema, function)
        pattern = _in_order(schema, function)
        tried = samples(schema, pattern, example_inputs)
        for arguments in tried:
            _require_results(schema, pattern(*fresh(arguments)))
        is_whole = operator is not None and has_kernel(operator)
        if is_whole:
            _require_equal(schema, cast(Any, operator), pattern, tried, tolerance)
        else:
            _register(library, schema, pattern, define=operator is None)
        _BINDINGS[schema.op_type] = PatternBinding(schema, pattern, is_whole, tolerance)
        note_registered(schema.op_type)
        return function

    return decorate


# -- the operator ---------------------------------------------------------------------------------


def _target(library: torch.library.Library, text: str) -> tuple[Schema, Any]:
    """The schema that is asked for, and the operator if it is defined already."""
    found = _NAME.fullmatch(text.strip())
    if found is None:
        raise PassError(f"{text!r:.80} is neither the name of an operator nor a schema")
    namespace, name, kind, rest = found.groups()
    if namespace not in (None, library.ns):
        raise PassError(
            f"{text.split('(')[0]!r} is not in the library {library.ns!r}",
            remedy=f"Leave the namespace out, or give a library of {namespace!r}.",
        )
    operator = overload(library.ns, name, kind or "default")
    full = f"{library.ns}.{name}.{kind or 'default'}"
    if rest is None:
        if operator is None:
            raise PassError(
                f"there is no operator {full!r}",
                remedy=_closest(library.ns, full) or "Give its schema, and it is defined.",
            )
        return operator_schema(operator), operator
    if operator is not None:
        raise PassError(
            f"{full} is already defined: {operator_schema(operator)}",
            remedy="Give its name without the schema.",
        )
    try:
        return parse_schema(f"{library.ns}::{name}{'.' + kind if kind else ''}{rest}"), None
    except InvalidIRError as error:
        raise PassError(error.message) from None


def _closest(namespace: str, wanted: str) -> str:
    names = torch._C._dispatch_get_all_op_names()  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue, reportUnknownVariableType]  # torch has no public list
    known: list[str] = []
    for name in names:
        if name.startswith(f"{namespace}::"):
            known.append(overload_name(name))
    return did_you_mean(wanted, known)


def has_kernel(operator: Any) -> bool:
    """Return whether an operator that is registered with torch has a kernel."""
    has: Any = torch._C._dispatch_has_kernel_for_dispatch_key  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue, reportUnknownVariableType, reportUnknownMemberType]  # torch has no public name
    return any(has(operator.name(), key) for key in _KERNEL_KEYS)


# -- checks ---------------------------------------------------------------------------------------


def _require_arity(schema: Schema, function: Callable[..., Any]) -> None:
    try:
        inspect.signature(function).bind(*schema.arguments)
    except TypeError:
        taken = len(inspect.signature(function).parameters)
        raise PassError(
            f"{_name(function)} takes {counted(taken, 'argument')}, {schema.op_type} "
            f"{counted(len(schema.arguments), 'argument')}",
            picture=f"{_name(function)}{inspect.signature(function)}\n{schema}",
            remedy="Give the function the arguments of the schema, in its order.",
        ) from None


def _in_order(schema: Schema, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function for calls as the operator takes them, keywords by the schema's names."""
    names = [argument.name for argument in schema.arguments]
    defaults = {a.name: _default(a) for a in schema.arguments if a.default is not None}

    def call(*args: Any, **kwargs: Any) -> Any:
        given = {**defaults, **dict(zip(names, args, strict=False)), **kwargs}
        return function(*[given[name] for name in names])

    call.__name__ = _name(function)
    return call


def _default(argument: Argument) -> Any:
    value = default_of(argument)
    is_enumeration = isinstance(value, str) and not argument.type.startswith("str")
    return None if is_enumeration else value  # torch fills these in itself


_RESULT_TYPES: dict[str, type[Any] | tuple[type[Any], ...]] = {
    "Tensor": torch.Tensor,
    "int": int,
    "SymInt": (int, torch.SymInt),
    "float": float,
    "SymFloat": (float, torch.SymFloat),
    "bool": (bool, torch.SymBool),
    "SymBool": (bool, torch.SymBool),
    "Scalar": (int, float, bool, complex),
}


def _require_results(schema: Schema, result: Any) -> None:
    results = _as_results(schema, result)
    if len(results) != len(schema.returns):
        raise PassError(
            f"the pattern of {schema.op_type} returns {counted(len(results), 'value')}, its "
            f"schema {counted(len(schema.returns), 'value')}",
            picture=str(schema),
        )
    for position, (value, returned) in enumerate(zip(results, schema.returns, strict=True)):
        kind = _RESULT_TYPES.get(returned.type, (list, tuple))
        if returned.type.endswith("?") and value is None:
            continue
        if not isinstance(value, kind):
            raise PassError(
                f"result {position} of the pattern of {schema.op_type} is a "
                f"{type(value).__name__}, its schema says {returned.type}",
                picture=str(schema),
            )


def _as_results(schema: Schema, result: Any) -> list[Any]:
    if result is None:
        return []
    if isinstance(result, tuple) and not (
        len(schema.returns) == 1 and schema.returns[0].type.endswith("]")
    ):
        return list(cast(tuple[Any, ...], result))
    return [result]


def _require_equal(
    schema: Schema, operator: Any, pattern: Any, tried: Sequence[Sequence[Any]], tolerance: float
) -> None:
    for arguments in tried:
        expected = pytree.tree_leaves(pattern(*fresh(arguments)))
        got = pytree.tree_leaves(operator(*fresh(arguments)))
        pairs = list(zip(expected, got, strict=False))
        if len(expected) != len(got) or not all(close(*pair, tolerance) for pair in pairs):
            raise PassError(
                f"the kernel of {schema.op_type} does not compute what the pattern does",
                picture=f"arguments {short(arguments)}\npattern   {short(expected)}\n"
                f"kernel    {short(got)}",
                remedy="Correct one of them, or give the tolerance that they agree within.",
            )


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", "the pattern")


# -- registration ---------------------------------------------------------------------------------


def _register(
    library: torch.library.Library, schema: Schema, pattern: Any, *, define: bool
) -> None:
    namespace, packet, kind = schema.op_type.split(".")
    if define:
        library.define(schema.text.partition("::")[2])
    name = packet if kind == "default" else f"{packet}.{kind}"
    library.impl(name, pattern, "CompositeImplicitAutograd")
    operator: Any = overload(namespace, packet, kind)
    _show_when_traced(operator, pattern)


class _Traced:
    """Calls an operator; while torch traces programs before autograd, calls its pattern.

    torch keeps operators with an implicit kernel whole when it exports.
    """

    def __init__(self, original: Any, pattern: Callable[..., Any]):
        self._original = original
        self._pattern = pattern

    def __hash__(self) -> int:
        return hash(self._original)  # torch looks operators up by it

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if _is_traced():
            return self._pattern(*args, **kwargs)
        return self._original(*args, **kwargs)


_KEPT: ContextVar[bool] = ContextVar("kept", default=False)


@contextmanager
def kept_whole() -> Generator[None]:
    """Keep bound operators whole in whatever traces them within a ``with`` block."""
    token = _KEPT.set(True)
    try:
        yield
    finally:
        _KEPT.reset(token)


def _is_traced() -> bool:
    if _KEPT.get():
        return False
    stack: Any = torch._ops._len_torch_dispatch_stack_pre_dispatch  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType, reportAttributeAccessIssue, reportUnknownVariableType]  # torch has no public name
    return torch.compiler.is_exporting() or stack() > 0


def _show_when_traced(operator: Any, pattern: Callable[..., Any]) -> None:
    """Let whatever traces the operator see its pattern's operators."""

    def through(mode: Any, *args: Any, **kwargs: Any) -> Any:
        with mode:
            return pattern(*args, **kwargs)

    operator.py_impl(ProxyTorchDispatchMode)(through)
    operator._op = _Traced(operator._op, pattern)
    packet = operator.overloadpacket
    if len(packet.overloads()) == 1:
        packet._op = _Traced(packet._op, pattern)
