"""One node as a call: its exact operator, and what each argument is."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, cast

import torch

from torch_ir.errors import ExecutionError, InvalidIRError, did_you_mean
from torch_ir.infer.generators import find_generator
from torch_ir.infer.resolve import from_text, has_expression, resolve_operator, to_torch
from torch_ir.infer.slots import Idx, Slots
from torch_ir.ir import Attribute, FrozenDict, FunctionRef, OpNode, SymExpr
from torch_ir.ir.diagnostics import DiagnosticError
from torch_ir.ops.schema import Schema
from torch_ir.torch_api import HigherOrderOperator, OpOverload, operator_schema, parameters_of
from torch_ir.weights.tensor_registry import Kernel, registered_kernel


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


class Call(NamedTuple):
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
        return not isinstance(self.target, OpOverload | HigherOrderOperator)


def _parts(operands: Iterable[Operand]) -> Iterator[Operand]:
    """Arguments, and what is inside those that are lists and dicts."""
    for operand in operands:
        match operand:
            case Listed(parts):
                yield from _parts(parts)
            case Named(parts):
                yield from _parts([part for _, part in parts])
            case _:
                yield operand


def resolve(node: OpNode, slots: Slots, device: torch.device) -> Call:
    """Resolve a node to a bound call, and define its outputs.

    Args:
        node: The node.
        slots: The values that are defined before it.
        device: What ``Device("run")`` stands for.

    Raises:
        DiagnosticError: ``unknown-operator``, or an argument is not what the operator takes.
    """
    target, args, kwargs, schema = _bound(node, slots, device)
    operands = [*args, *[operand for _, operand in kwargs]]
    parts = operands
    if not _FLAT.issuperset(map(type, operands)):
        parts = list(_parts(operands))
    return Call(
        node,
        target,
        tuple(args),
        tuple(kwargs),
        schema,
        outputs=tuple([slots.define(meta) for meta in node.outputs]),
        reads=tuple([part for part in parts if isinstance(part, Read)]),
        functions=tuple([part.name for part in parts if isinstance(part, Function)]),
    )


_FLAT = frozenset([Read, Literal, Expression, Function])

_Bound: TypeAlias = tuple[Target, list[Operand], list[tuple[str, Operand]], Schema | None]


def _bound(node: OpNode, slots: Slots, device: torch.device) -> _Bound:
    kernel = registered_kernel(node.op_type)
    if kernel is not None:
        inputs = tuple([_read(node, index, slots) for index in range(len(node.inputs))])
        return kernel, [Listed(inputs), Literal(node.attrs)], [], None
    try:
        operator = resolve_operator(node.op_type)
    except ExecutionError as error:
        raise DiagnosticError(
            "unknown-operator", error.message, remedy=error.remedy or ""
        ) from None
    arguments = _Arguments(node, slots, device)
    if isinstance(operator, OpOverload):
        return _overload(arguments, operator)
    return _higher_order(arguments, operator)


def _overload(arguments: _Arguments, operator: OpOverload) -> _Bound:
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
            kwargs.append((name, value))
        else:
            args.append(value)
    if not arguments.are_among(schema.names):
        arguments.refuse_unknown([a.name for a in schema.arguments])
    return operator, args, kwargs, schema


def _higher_order(arguments: _Arguments, operator: HigherOrderOperator) -> _Bound:
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


class _Arguments:
    """The arguments of one node, by name."""

    def __init__(self, node: OpNode, slots: Slots, device: torch.device):
        self.node = node
        self._slots = slots
        self._device = device
        self._operands: Mapping[str, Any] = node.slots

    def require_operands(self, schema: object) -> None:
        if self.node.operands is None:
            raise DiagnosticError(
                "unbound-inputs",
                f"the {len(self.node.inputs)} inputs of {self.node.op_type} do not fit its "
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
            return Literal(value) if type(value) in _AS_THEY_ARE else self._attribute(name, kind)
        if isinstance(slots, int):
            if name in self.node.attrs:
                raise DiagnosticError(
                    "bad-operand",
                    f"argument {name!r} of {self.node.op_type} is given twice, as an input and as "
                    "an attribute",
                )
            return _read(self.node, slots, self._slots)
        rest = cast(tuple[Attribute, ...], self.node.attrs.get(name, (None,) * len(slots)))
        if not isinstance(rest, tuple) or len(rest) != len(slots):  # pyright: ignore[reportUnnecessaryIsInstance]  # a file may hold anything
            raise DiagnosticError(
                "bad-operand",
                f"argument {name!r} of {self.node.op_type} has {len(slots)} operands, its "
                f"attribute is {rest!r:.60}",
            )
        parts = [
            self._value(name, value) if slot is None else _read(self.node, slot, self._slots)
            for slot, value in zip(slots, rest, strict=True)
        ]
        return Listed(tuple(parts))

    def _attribute(self, name: str, kind: str) -> Operand:
        try:
            value = from_text(kind, self.node.attrs.get(name))
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


def _read(node: OpNode, index: int, slots: Slots) -> Read:
    return Read(slots.operand(node, index), node.inputs[index].name)


_AS_THEY_ARE = frozenset([bool, int, float, type(None)])


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
    return has_expression(value) or _has_function(value)


def _has_function(value: Attribute) -> bool:
    if isinstance(value, tuple):
        return any(_has_function(item) for item in value)
    if isinstance(value, FrozenDict):
        return any(_has_function(item) for item in value.values())
    return isinstance(value, FunctionRef)


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
