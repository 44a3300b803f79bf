"""Find Python bindings of torch that dispatch to a given overload: shown, not assumed.

A binding is called under a mode that records what it dispatches. One that reaches exactly the
overload, once, with exactly the arguments may stand for it.
"""

from __future__ import annotations

import warnings
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, cast

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from torch_ir.torch_api import OpOverload, overload


@dataclass(frozen=True, slots=True)
class PythonBinding:
    """A way to call an operator.

    Attributes:
        home: The module that has the function; empty for a method of the first argument.
        name: The function's name.
        is_spread: Whether the last argument, a list, is given item by item.
    """

    home: str
    name: str
    is_spread: bool = False


_HOMES = {
    "torch": torch._C._VariableFunctions,  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]  # what torch.add and its like are
    "torch._C._nn": torch._C._nn,  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]  # what torch.nn.functional calls
    "torch._C._linalg": torch._C._linalg,  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]  # what torch.linalg is
    "torch._C._fft": torch._C._fft,  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]  # what torch.fft is
    "torch._C._special": torch._C._special,  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]  # what torch.special is
}


class Arguments(Protocol):
    """A call's arguments."""

    @property
    def args(self) -> Sequence[Any]:
        """The positional ones."""
        ...

    @property
    def kwargs(self) -> dict[str, Any]:
        """Those by keyword."""
        ...


def bindings_of(
    operator: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]
) -> Iterator[PythonBinding]:
    """Yield the bindings that have an operator's name, those that cost least first."""
    namespace, name, _ = str(operator).split(".")
    if namespace != "aten":
        return
    if args and isinstance(args[0], torch.Tensor) and hasattr(torch.Tensor, name):
        last = args[-1]
        if isinstance(last, list) and last and not kwargs and all(type(i) is int for i in last):  # pyright: ignore[reportUnknownVariableType]  # any list
            yield PythonBinding("", name, is_spread=True)
        yield PythonBinding("", name)
    if _fills_out(operator):
        return
    for home, module in _HOMES.items():
        if hasattr(module, name):
            yield PythonBinding(home, name)


def _fills_out(operator: OpOverload) -> bool:
    """Return whether a factory writes to ``out``, of which its binding sets ``requires_grad``."""
    kinds = operator._schema.arguments  # pyright: ignore[reportPrivateUsage]  # torch has no public accessor
    tensors = [argument for argument in kinds if "Tensor" in str(argument.type)]
    return bool(tensors) and all(argument.kwarg_only for argument in tensors)


def function_of(binding: PythonBinding) -> Any:
    """The Python function behind a binding."""
    return getattr(_HOMES[binding.home] if binding.home else torch.Tensor, binding.name)


def first_reaching(
    bindings: Iterator[PythonBinding], operator: OpOverload, given: Arguments, made: Any
) -> PythonBinding | None:
    """Return the first binding that reaches an operator with the given arguments.

    Args:
        bindings: The bindings to try.
        operator: The operator.
        given: Its arguments.
        made: What the call gives.
    """
    args = tuple(given.args)
    return next((b for b in bindings if _reaches(b, operator, args, given.kwargs, made)), None)


def _reaches(
    binding: PythonBinding,
    operator: OpOverload,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    made: Any,
) -> bool:
    """Return whether a binding dispatches exactly this operator, once, with these arguments."""
    given = (*args[:-1], *args[-1]) if binding.is_spread else args
    recorder = _Recorder(operator, args, kwargs, made)
    try:
        with recorder:
            function_of(binding)(*given, **kwargs)
    except (_AnotherCallError, TypeError, RuntimeError, IndexError, ValueError):
        return False  # it takes other arguments, or calls something else
    return recorder.calls == 1


class _AnotherCallError(Exception):
    """A binding dispatched another call than the one wanted."""


class _Recorder(TorchDispatchMode):
    """Answers the wanted call with its known results, and refuses every other."""

    def __init__(
        self, operator: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], made: Any
    ):
        super().__init__()
        self.calls = 0
        self._operator = operator
        self._wanted = _bound(operator, args, kwargs)
        self._made = made

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compare a call with the wanted one."""
        if func is not self._operator or self.calls:
            raise _AnotherCallError
        if not _same(_bound(func, args, kwargs or {}), self._wanted):
            raise _AnotherCallError
        self.calls += 1
        return self._made


def _bound(operator: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The value of every argument of the schema, defaults filled in."""
    arguments = operator._schema.arguments  # pyright: ignore[reportPrivateUsage]  # torch has no public accessor
    values: list[Any] = []
    for position, argument in enumerate(arguments):
        if position < len(args):
            values.append(args[position])
        else:
            default = argument.default_value if argument.has_default_value() else None
            values.append(kwargs.get(argument.name, default))
    return values


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, torch.Tensor) or isinstance(right, torch.Tensor):
        return left is right
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        items, others = cast(Sequence[Any], left), cast(Sequence[Any], right)
        return len(items) == len(others) and all(map(_same, items, others))
    if type(left) is not type(right):
        return False
    return bool(left == right) or (left != left and right != right)  # NaN is itself


def twin_of(operator: OpOverload) -> OpOverload | None:
    """The overload that computes the same in place: its schema differs by the mark alone."""
    namespace, name, kind = str(operator).split(".")
    twin = overload(namespace, f"{name}_", kind)
    if twin is None:
        return None
    wanted = [(a.name, str(a.type)) for a in operator._schema.arguments]  # pyright: ignore[reportPrivateUsage]  # torch has no public accessor
    found = [(a.name, str(a.type)) for a in twin._schema.arguments]  # pyright: ignore[reportPrivateUsage]  # as above
    return twin if wanted == found else None


@contextmanager
def unwarned() -> Generator[None]:
    """Ignore what torch warns of where its operators are called as nobody would write it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"torch([._-]|$)")
        yield
