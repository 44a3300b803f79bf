"""The one binder of arguments: a node as a call of its exact operator."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, cast

import torch

from torch_ir.arguments import public
from torch_ir.errors import ExecutionError, InvalidIRError, PassError, did_you_mean
from torch_ir.infer.generators import find_generator
from torch_ir.infer.resolve import operator_of, permitted, to_torch
from torch_ir.infer.slots import Idx, Slots
from torch_ir.infer.symbolic import symbolic
from torch_ir.infer.types import Callee
from torch_ir.ir import Attribute, FrozenDict, FunctionRef, OpNode, SymExpr
from torch_ir.ir.diagnostics import DiagnosticError
from torch_ir.ir.values import as_argument, attribute_leaves
from torch_ir.ops.schema import Schema
from torch_ir.torch_api import (
    HigherOrderOperator,
    OpOverload,
    operator_schema,
    own_names,
    parameters_of,
)
from torch_ir.weights.tensor_registry import DirectKernel, Kernel, registered_kernel


class Read(NamedTuple):
    """An argument that is the value of a slot."""

    idx: Idx
    name: str


class Literal(NamedTuple):
    """An argument that is known when the graph is compiled."""

    value: Any


@dataclass(frozen=True, slots=True)
class Expression:
    """An argument that is a number computed from symbols."""

    value: SymExpr


@dataclass(frozen=True, slots=True)
class Function:
    """An argument that is a function of the graph."""

    name: str


@dataclass(frozen=True, slots=True)
class Listed:
    """An argument that is a list, or a tuple where operators insist on one."""

    parts: tuple[Operand, ...]
    is_tuple: bool = False


@dataclass(frozen=True, slots=True)
class Named:
    """An argument that is a dict."""

    parts: tuple[tuple[str, Operand], ...]


Operand: TypeAlias = Read | Literal | Expression | Function | Listed | Named

Target: TypeAlias = OpOverload | HigherOrderOperator | Kernel


class BoundCall(NamedTuple):
    """A node with its operator and arguments resolved.

    Attributes:
        node: The node.
        target: The operator, or the kernel that a user registered in its place.
        args: The positional arguments.
        kwargs: The keyword arguments.
        schema: The operator's schema, as the torch that runs says it; None if it has none.
        outputs: The slot of each of ``node.outputs``.
        reads: Every slot that an argument reads, also inside lists.
        functions: The functions of the graph that it is given.
    """

    node: OpNode
    target: Target
    args: tuple[Operand, ...]
    kwargs: tuple[tuple[str, Operand], ...]
    schema: Schema | None
    outputs: tuple[Idx, ...]
    reads: tuple[Read, ...]
    functions: tuple[str, ...]

    @property
    def operands(self) -> tuple[Operand, ...]:
        """Every argument, positional ones first."""
        return (*self.args, *[operand for _, operand in self.kwargs])

    @property
    def is_registered(self) -> bool:
        """Whether a kernel that a user registered is called."""
        if self.schema is not None:
            return False
        return not isinstance(self.target, OpOverload | HigherOrderOperator)


def parts_of(operands: Iterable[Operand]) -> Iterator[Operand]:
    """Yield arguments, of lists and dicts what is inside them."""
    for operand in operands:
        match operand:
            case Listed(parts):
                yield from parts_of(parts)
            case Named(parts):
                yield from parts_of([part for _, part in parts])
            case _:
                yield operand


def resolve(node: OpNode, slots: Slots, device: torch.device) -> BoundCall:
    """Resolve a node to a bound call, and define its outputs.

    Args:
        node: The node.
        slots: The values that are defined before it.
        device: What ``Device("run")`` stands for.

    Raises:
        DiagnosticError: ``unknown-operator``, ``forbidden-operator``, or an argument is not what
            the operator takes.
    """

    def read(index: int) -> Operand:
        return Read(slots.operand(node, index), node.inputs[index].name)

    target, args, kwargs, schema = _bound(node, len(node.inputs), read, device)
    operands = [*args, *[operand for _, operand in kwargs]] if kwargs else args
    parts = operands
    if not _FLAT.issuperset(map(type, operands)):
        parts = list(parts_of(operands))
    return BoundCall(
        node,
        target,
        tuple(args),
        tuple(kwargs),
        schema,
        outputs=tuple([slots.define(meta) for meta in node.outputs]),
        reads=tuple([part for part in parts if isinstance(part, Read)]),
        functions=tuple([part.name for part in parts if isinstance(part, Function)]),
    )


RUN_DEVICE = torch.device("cpu")
"""What ``Device("run")`` stands for where operators are called ahead of a run."""


@public
def bind(
    node: Callee,
    values: Sequence[Any],
    symbols: Mapping[str, Any] = FrozenDict(),
    device: torch.device = RUN_DEVICE,
) -> tuple[list[Any], dict[str, Any]]:
    """Return the positional and keyword arguments of a node's operator.

    Args:
        node: The node.
        values: What stands for each of its inputs, a tensor or anything else.
        symbols: The value of each symbol, a number or a symbolic number of torch.
        device: What ``Device("run")`` stands for.

    Raises:
        CompileError: A program may not call the operator.
        ExecutionError: torch has no such operator.
        PassError: An argument is not what the operator takes, or is a function.
        InvalidIRError: An expression has no value.

    Example:
        >>> from torch_ir.ir import TensorMeta
        >>> x, y = TensorMeta("x", (2, 3), "float32"), TensorMeta("y", (2,), "float32", "y")
        >>> node = OpNode("y", "aten.sum.dim_IntList", [x], [y], {"dim": [1]})
        >>> bind(node, ["a tensor"])
        (['a tensor', [1]], {})
    """

    def read(index: int) -> Operand:
        if not 0 <= index < len(values):
            raise DiagnosticError("bad-operand", f"{node.op_type} has no input {index}")
        return Literal(values[index])

    try:
        operator = operator_of(node)
        arguments = _NamedArguments(node, len(values), read, device)
        _, args, kwargs, _ = _matched(arguments, operator)
    except DiagnosticError as fault:
        raise PassError(fault.message, remedy=fault.remedy or None) from fault
    filled = [_filled(operand, symbols) for operand in args]
    return filled, {name: _filled(operand, symbols) for name, operand in kwargs}


def _filled(operand: Operand, symbols: Mapping[str, Any]) -> Any:
    """The value of an operand whose reads are values already."""
    match operand:
        case Literal(value=value):
            return value
        case Expression(value=value):
            known = all(isinstance(symbols.get(name, 0), int | float) for name in value.symbols)
            return value.evaluate(symbols) if known else symbolic(value, symbols)
        case Listed(parts=parts, is_tuple=is_tuple):
            items = [_filled(part, symbols) for part in parts]
            return tuple(items) if is_tuple else items
        case Named(parts=parts):
            return {key: _filled(part, symbols) for key, part in parts}
        case Function(name=name):
            raise PassError(f"the function {name!r} is not called here")
        case Read():
            raise AssertionError("values are bound as literals")


_FLAT = frozenset([Read, Literal, Expression, Function])

_Bound: TypeAlias = tuple[Target, list[Operand], list[tuple[str, Operand]], Schema | None]


def _bound(
    node: OpNode, count: int, read: Callable[[int], Operand], device: torch.device
) -> _Bound:
    kernel = registered_kernel(node.op_type)
    if kernel is not None:
        inputs = tuple([read(index) for index in range(count)])
        if isinstance(kernel, DirectKernel):
            sizes: Any = node.attrs["sizes"]
            return kernel, [*inputs, *map(Expression, sizes)], [], None
        return kernel, [Listed(inputs), Literal(node.attrs)], [], None
    try:
        operator = permitted(node)
    except ExecutionError as error:
        raise DiagnosticError(
            "unknown-operator", error.message, remedy=error.remedy or ""
        ) from None
    return _matched(_NamedArguments(node, count, read, device), operator)


def _matched(arguments: _NamedArguments, operator: OpOverload | HigherOrderOperator) -> _Bound:
    if isinstance(operator, OpOverload):
        return _overload(arguments, operator)
    return _higher_order(arguments, operator)


def _overload(arguments: _NamedArguments, operator: OpOverload) -> _Bound:
    schema = operator_schema(operator)
    arguments.require_operands(schema)
    args: list[Operand] = []
    kwargs: list[tuple[str, Operand]] = []
    missing = False  # once an argument is left to its default, the later ones go by keyword
    for argument in schema.arguments:
        name = argument.name
        if not arguments.has(name):
            if argument.default is None:
                raise arguments.missing(name)
            missing = True
            continue
        value = arguments.get(name, argument.type)
        if argument.keyword_only or missing:
            kwargs.append((own_names(operator)[name], value))
        else:
            args.append(value)
    if not arguments.are_among(schema.names):
        arguments.refuse_unknown([a.name for a in schema.arguments])
    return operator, args, kwargs, schema


def _higher_order(arguments: _NamedArguments, operator: HigherOrderOperator) -> _Bound:
    arguments.require_operands(operator)
    args: list[Operand] = []
    kwargs: list[tuple[str, Operand]] = []
    parameters = parameters_of(operator)
    for parameter in parameters:
        if not arguments.has(parameter.name):
            if parameter.default is parameter.empty and parameter.kind not in _VARIADIC:
                raise arguments.missing(parameter.name)
            continue
        value = _as_tuple(arguments.get(parameter.name, ""))
        match parameter.kind:
            case inspect.Parameter.VAR_POSITIONAL:
                args.extend(_spread(value))
            case inspect.Parameter.KEYWORD_ONLY:
                kwargs.append((parameter.name, value))
            case _:
                args.append(value)
    arguments.refuse_unknown([p.name for p in parameters])
    return operator, args, kwargs, None


_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class _NamedArguments:
    """The arguments of one node, by name."""

    def __init__(
        self, node: Callee, count: int, read: Callable[[int], Operand], device: torch.device
    ):
        self.node = node
        self._count = count
        self._read = read
        self._device = device
        self._operands: Mapping[str, Any] = {} if node.operands is None else node.operands

    def require_operands(self, schema: object) -> None:
        if self.node.operands is None:
            raise DiagnosticError(
                "unbound-inputs",
                f"the {self._count} inputs of {self.node.op_type} do not fit its "
                f"arguments: {schema}",
            )

    def has(self, name: str) -> bool:
        return name in self._operands or name in self.node.attrs

    def are_among(self, names: frozenset[str]) -> bool:
        return names.issuperset(self._operands) and names.issuperset(self.node.attrs)

    def missing(self, name: str) -> DiagnosticError:
        return DiagnosticError(
            "missing-argument", f"argument {name!r} of {self.node.op_type} is not given"
        )

    def refuse_unknown(self, known: Sequence[str]) -> None:
        for name in (*self.node.attrs, *self._operands):
            if name not in known:
                raise DiagnosticError(
                    "unknown-argument",
                    f"{self.node.op_type} has no argument {name!r}",
                    remedy=did_you_mean(name, known),
                )

    def get(self, name: str, kind: str) -> Operand:
        slots = self._operands.get(name)
        if slots is None:
            value = self.node.attrs.get(name)
            as_it_is = value is None or type(value) in _TAKEN.get(kind, ())
            return Literal(value) if as_it_is else self._attribute(name, kind)
        if isinstance(slots, int):
            if name in self.node.attrs:
                raise DiagnosticError(
                    "bad-operand",
                    f"argument {name!r} of {self.node.op_type} is given twice, as an input and as "
                    "an attribute",
                )
            return self._read(slots)
        rest = cast(tuple[Attribute, ...], self.node.attrs.get(name, (None,) * len(slots)))
        if not isinstance(rest, tuple) or len(rest) != len(slots):  # pyright: ignore[reportUnnecessaryIsInstance]  # a file may hold anything
            raise DiagnosticError(
                "bad-operand",
                f"argument {name!r} of {self.node.op_type} has {len(slots)} operands, its "
                f"attribute is {rest!r:.60}",
            )
        parts = [
            self._value(name, value) if slot is None else self._read(slot)
            for slot, value in zip(slots, rest, strict=True)
        ]
        return Listed(tuple(parts))

    def _attribute(self, name: str, kind: str) -> Operand:
        try:
            value = as_argument(kind, self.node.attrs.get(name))
        except InvalidIRError as error:
            raise self._bad_value(name, error.message, error.remedy) from None
        if isinstance(value, str) and kind.removesuffix("?") == "Generator":
            return self._generator(name, value)
        return self._value(name, value)

    def _generator(self, name: str, value: str) -> Operand:
        try:
            return Literal(find_generator(value))
        except ExecutionError as error:
            raise self._bad_value(name, error.message, error.remedy) from None

    def _value(self, name: str, value: Attribute) -> Operand:
        try:
            return _operand(value, self._device)
        # torch.device raises the first for a bad name; a torch without that dtype the second
        except (RuntimeError, AttributeError) as error:
            raise self._bad_value(name, str(error)) from None
        except ExecutionError as error:  # an operator that torch does not have
            raise self._bad_value(name, error.message, error.remedy) from None

    def _bad_value(self, name: str, message: str, remedy: str | None = None) -> DiagnosticError:
        where = f"argument {name!r} of {self.node.op_type}"
        return DiagnosticError("bad-argument", f"{where}: {message}", remedy=remedy or "")


_AS_THEY_ARE = frozenset([bool, int, float, type(None)])
_TAKEN = {
    f"{kind}{optional}": _AS_THEY_ARE if kind != "float" else frozenset([float])
    for kind in ("int", "SymInt", "bool", "float", "Scalar")
    for optional in ("", "?")
}
"""What arguments of these types take without a change."""


def _operand(value: Attribute, device: torch.device) -> Operand:
    """An attribute as an operand: as a whole where nothing in it has to wait for the run."""
    match value:
        case SymExpr():
            return Expression(value)
        case FunctionRef(name=name):
            return Function(name)
        case tuple() if _waits(value):
            return Listed(tuple([_operand(item, device) for item in value]))
        case FrozenDict() if _waits(value):
            return Named(tuple([(key, _operand(item, device)) for key, item in value.items()]))
        case _:
            return Literal(to_torch(value, device, _no_function))


def _waits(value: Attribute) -> bool:
    if isinstance(value, tuple) and all(type(item) in _AS_THEY_ARE for item in value):
        return False
    return any(isinstance(leaf, SymExpr | FunctionRef) for leaf in attribute_leaves(value))


def _no_function(name: str) -> Callable[..., Any]:
    raise AssertionError(f"{name!r} is an operand of its own")


def _as_tuple(value: Operand) -> Operand:
    """A list argument as the tuple that higher-order operators insist on."""
    match value:
        case Listed(parts):
            return Listed(parts, is_tuple=True)
        case Literal(list() as items):
            return Listed(tuple([Literal(item) for item in cast(list[Any], items)]), True)
        case _:
            return value


def _spread(value: Operand) -> tuple[Operand, ...]:
    """The arguments behind ``*args``."""
    return value.parts if isinstance(value, Listed) else (value,)
