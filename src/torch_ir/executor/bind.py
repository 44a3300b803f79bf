"""One node as a call that is ready to run: its exact operator, and each argument's source."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import torch

from torch_ir.errors import ExecutionError, InvalidIRError, did_you_mean
from torch_ir.executor.operators import (
    evaluate,
    from_text,
    has_expression,
    resolve_operator,
    to_torch,
)
from torch_ir.executor.registry import registered_kernel
from torch_ir.ir import Attribute, OpNode
from torch_ir.ir.expressions import Number
from torch_ir.torch_api import HigherOrderOperator, OpOverload, operator_schema, parameters_of

Environment: TypeAlias = list[Any]
"""The value of each slot; None before it is made and after its last use."""

Fetch: TypeAlias = Callable[[Environment, Mapping[str, Number]], Any]
"""Reads one argument from the environment and the symbols' values."""


@dataclass(frozen=True, slots=True)
class BoundCall:
    """A call of an operator with every argument resolved.

    Attributes:
        function: What is called.
        args: Positional arguments; those that are read at run time stand as None.
        kwargs: Keyword arguments, likewise.
        fetched_args: Positions and readers of the arguments that are read at run time.
        fetched_kwargs: Names and readers, likewise.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    fetched_args: tuple[tuple[int, Fetch], ...]
    fetched_kwargs: tuple[tuple[str, Fetch], ...]

    def __call__(self, environment: Environment, symbols: Mapping[str, Number]) -> Any:
        """The operator's result on the values of the slots and symbols."""
        args = list(self.args)
        for position, fetch in self.fetched_args:
            args[position] = fetch(environment, symbols)
        if not self.fetched_kwargs:
            return self.function(*args, **self.kwargs)
        fetched = {name: fetch(environment, symbols) for name, fetch in self.fetched_kwargs}
        return self.function(*args, **{**self.kwargs, **fetched})


@dataclass(frozen=True, slots=True)
class Binder:
    """Binds the nodes of one program.

    Attributes:
        slot_of: The slot of each value, by name.
        run_device: What ``Device("run")`` stands for.
        function: Gives the callable of an entry of ``IR.functions``.
    """

    slot_of: Mapping[str, int]
    run_device: torch.device
    function: Callable[[str], Callable[..., Any]]

    def bind(self, node: OpNode) -> BoundCall:
        """The node as a call.

        Raises:
            ExecutionError: The operator is unknown, or the node's arguments are not those that it
                takes.
        """
        kernel = registered_kernel(node.op_type)
        if kernel is not None:
            return self._registered(node, kernel)
        operator = resolve_operator(node.op_type)
        if isinstance(operator, OpOverload):
            return self._overload(node, operator)
        return self._higher_order(node, operator)

    def _registered(self, node: OpNode, kernel: Callable[..., Any]) -> BoundCall:
        fetches = [self._fetch_slot(node, index) for index in range(len(node.inputs))]

        def fetch_all(environment: Environment, symbols: Mapping[str, Number]) -> list[Any]:
            return [fetch(environment, symbols) for fetch in fetches]

        return BoundCall(kernel, (None, node.attrs), {}, ((0, fetch_all),), ())

    def _overload(self, node: OpNode, operator: OpOverload) -> BoundCall:
        schema = operator_schema(operator)
        self._require_operands(node, str(schema))
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        missing = False  # once an argument is left to its default, the later ones go by keyword
        for argument in schema.arguments:
            name = argument.name
            if not self._has(node, name):
                if argument.default is None:
                    raise ExecutionError(f"argument {name!r} of {node.op_type} is not given")
                missing = True
                continue
            value = self._argument(node, name, argument.type)
            if argument.keyword_only or missing:
                kwargs[name] = value
            else:
                args.append(value)
        self._refuse_unknown(node, [a.name for a in schema.arguments])
        return _split(operator, args, kwargs)

    def _higher_order(self, node: OpNode, operator: HigherOrderOperator) -> BoundCall:
        self._require_operands(node, str(operator))
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        parameters = parameters_of(operator)
        for parameter in parameters:
            if not self._has(node, parameter.name):
                if parameter.default is parameter.empty and parameter.kind not in _VARIADIC:
                    raise ExecutionError(
                        f"argument {parameter.name!r} of {node.op_type} is not given"
                    )
                continue
            value = _as_tuple(self._argument(node, parameter.name, ""))
            match parameter.kind:
                case inspect.Parameter.VAR_POSITIONAL:
                    args.extend(_spread(value))
                case inspect.Parameter.KEYWORD_ONLY:
                    kwargs[parameter.name] = value
                case _:
                    args.append(value)
        self._refuse_unknown(node, [p.name for p in parameters])
        return _split(operator, args, kwargs)

    # -- one argument -----------------------------------------------------------------------------

    def _require_operands(self, node: OpNode, schema: str) -> None:
        if node.operands is None:
            raise ExecutionError(
                f"the {len(node.inputs)} inputs of {node.op_type} do not fit its arguments: "
                f"{schema}"
            )

    def _has(self, node: OpNode, name: str) -> bool:
        return name in node.attrs or name in cast(Any, node.operands)

    def _refuse_unknown(self, node: OpNode, known: list[str]) -> None:
        for name in (*node.attrs, *cast(Any, node.operands)):
            if name not in known:
                raise ExecutionError(
                    f"{node.op_type} has no argument {name!r}", remedy=did_you_mean(name, known)
                )

    def _argument(self, node: OpNode, name: str, kind: str) -> Any:
        """A constant, or a :class:`_Read` of what is known only at run time."""
        slots = cast(Any, node.operands).get(name)
        if slots is None:
            return self._attribute(node, name, kind)
        if isinstance(slots, int):
            return _Read(self._fetch_slot(node, slots))
        rest = cast(tuple[Attribute, ...], node.attrs.get(name, (None,) * len(slots)))
        if not isinstance(rest, tuple) or len(rest) != len(slots):  # pyright: ignore[reportUnnecessaryIsInstance]  # a file may hold anything
            raise ExecutionError(
                f"argument {name!r} of {node.op_type} has {len(slots)} operands, "
                f"its attribute is {rest!r:.60}"
            )
        parts = [
            self._value(node, name, value) if slot is None else _Read(self._fetch_slot(node, slot))
            for slot, value in zip(slots, rest, strict=True)
        ]
        return _Read(_FetchList(parts))

    def _attribute(self, node: OpNode, name: str, kind: str) -> Any:
        try:
            value = from_text(kind, node.attrs.get(name))
        except InvalidIRError as error:
            raise ExecutionError(
                f"argument {name!r} of {node.op_type}: {error.message}", remedy=error.remedy
            ) from None
        return self._value(node, name, value)

    def _value(self, node: OpNode, name: str, value: Attribute) -> Any:
        try:
            constant = to_torch(value, self.run_device, self.function)
        # torch.device raises the first for a bad name; a torch without that dtype the second
        except (RuntimeError, AttributeError) as error:
            raise ExecutionError(f"argument {name!r} of {node.op_type}: {error}") from None
        if has_expression(value):
            return _Read(_Evaluated(constant))
        return constant

    def _fetch_slot(self, node: OpNode, index: int) -> Fetch:
        if not 0 <= index < len(node.inputs):
            raise ExecutionError(
                f"an operand refers to input {index}, the node has {len(node.inputs)} inputs"
            )
        name = node.inputs[index].name
        if name not in self.slot_of:
            raise ExecutionError(
                f"%{name} is used but never defined before",
                remedy=did_you_mean(name, self.slot_of),
            )
        slot = self.slot_of[name]
        return lambda environment, symbols: environment[slot]


_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True, slots=True)
class _Read:
    """An argument that is read at run time."""

    fetch: Any  # a Fetch; its parts are looked into where it is a _FetchList


def _spread(value: Any) -> list[Any]:
    """The arguments behind ``*args``: a list of which some are read at run time, or none is."""
    return value.fetch.parts if isinstance(value, _Read) else list(value)


@dataclass(frozen=True, slots=True)
class _Evaluated:
    """Reads a constant with the expressions in it evaluated."""

    value: Any

    def __call__(self, environment: Environment, symbols: Mapping[str, Number]) -> Any:
        return evaluate(self.value, symbols)


@dataclass(frozen=True, slots=True)
class _FetchList:
    """Reads a list argument, some of whose elements are constants."""

    parts: list[Any]

    def __call__(self, environment: Environment, symbols: Mapping[str, Number]) -> Any:
        return [
            part.fetch(environment, symbols) if isinstance(part, _Read) else part
            for part in self.parts
        ]


class _FetchTuple(_FetchList):
    """Reads a list argument as a tuple."""

    def __call__(self, environment: Environment, symbols: Mapping[str, Number]) -> Any:
        return tuple(_FetchList.__call__(self, environment, symbols))


def _as_tuple(value: Any) -> Any:
    """A list argument as the tuple that higher-order operators insist on."""
    if isinstance(value, list):
        return tuple(cast(list[Any], value))
    if isinstance(value, _Read) and isinstance(value.fetch, _FetchList):
        return _Read(_FetchTuple(value.fetch.parts))
    return value


def _split(function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> BoundCall:
    """The call with constants apart from what is read at run time."""
    return BoundCall(
        function,
        tuple([None if isinstance(value, _Read) else value for value in args]),
        {name: value for name, value in kwargs.items() if not isinstance(value, _Read)},
        tuple([(i, value.fetch) for i, value in enumerate(args) if isinstance(value, _Read)]),
        tuple([(name, value.fetch) for name, value in kwargs.items() if isinstance(value, _Read)]),
    )
