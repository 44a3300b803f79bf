"""Arguments of public functions that a type checker cannot see: kinds, integers and lists."""

from __future__ import annotations

import builtins
import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from itertools import islice, repeat
from numbers import Complex, Integral, Real
from types import UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from torch_ir.errors import (
    ArgumentError,
    InvalidIRError,
    Raised,
    TorchIRError,
    attempt,
    did_you_mean,
)

C = TypeVar("C", bound=Callable[..., Any])

MAX_SECONDS = 10_000_000
"""Of a limit of time: some months."""
MAX_ITEMS = 10_000
"""Of a container, that are compared with what it may hold."""
MAX_SHOWN = 60
"""Characters of a value that a message shows."""
NUMBERS: Mapping[type, type] = {int: Integral, float: Real, complex: Complex}
"""What an annotation of a number stands for: those of NumPy are numbers too."""


def public(function: C) -> C:
    """Say which argument does not fit, where a call of a public function or class fails over one.

    Nothing is looked at before the call. Where it raises, its arguments are compared with the
    function's own annotations. Where all of them fit, or the error is one of this package, the
    error passes as it is, unless it may be about the letters of a text that is no list.

    Raises:
        ArgumentError: By the function that is returned: the call failed, and an argument is of
            another kind than its annotation says.

    Example:
        >>> @public
        ... def doubled(values: Sequence[int]) -> list[int]:
        ...     return [value + value for value in values]
        >>> doubled([1, 2])
        [2, 4]
        >>> doubled([1, None])
        Traceback (most recent call last):
        ...
        torch_ir.errors.ArgumentError: doubled() takes values: Sequence[int], and values[1] is None
        Give what the annotation says; help(doubled) tells what it means.
    """
    if isinstance(function, type):
        function.__init__ = public(function.__init__)
        return cast(C, function)

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            if isinstance(error, NoListError):
                raise  # it says so itself
            is_ours = isinstance(error, TorchIRError) and not isinstance(error, ArgumentError)
            misfit = _misfit(function, args, kwargs, of_letters=is_ours)
            if misfit is None:
                raise
            raise misfit from error

    return cast(C, called)


def _misfit(
    function: Callable[..., object],
    args: Sequence[object],
    kwargs: Mapping[str, object],
    *,
    of_letters: bool,
) -> ArgumentError | None:
    """The error about the first argument that is not of its annotation; None if all are.

    Args:
        function: What was called.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
        of_letters: Look only for a text that was taken for the list of its letters.
    """
    signature, name = inspect.signature(function), function.__qualname__.removesuffix(".__init__")
    try:
        given = signature.bind(*args, **kwargs).arguments
    except TypeError:
        return None  # too few or too many, which Python says itself
    kinds = get_type_hints(function, localns=_Names(function))
    for argument, value in given.items():
        parameter, kind = signature.parameters[argument], kinds.get(argument, object)
        if parameter.kind is parameter.VAR_POSITIONAL:
            kind = tuple[kind, ...]
        elif parameter.kind is parameter.VAR_KEYWORD:
            kind = Mapping[str, kind]
        if of_letters and not _is_spelled(value, kind):
            continue
        for place, wrong in _misplaced(value, kind, argument):
            found = f"and {place} is" if place != argument else "got"
            return ArgumentError(
                f"{name}() takes {argument}: {parameter.annotation}, {found} {_shown(wrong)}",
                remedy=_hint(wrong, kind)
                or f"{_advice(value, kind)}; help({name}) tells what it means.",
            )
    return None


def _alternatives(kind: Any) -> tuple[Any, ...]:
    """The kinds of which a value is to be of one."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _hint(value: object, kind: Any) -> str:
    """The hint at the word of an annotation that a text may mean, or an empty string."""
    literals = [part for part in _alternatives(kind) if get_origin(part) is Literal]
    words = [word for part in literals for word in get_args(part) if isinstance(word, str)]
    return did_you_mean(value, words) if isinstance(value, str) else ""


def _advice(value: object, kind: Any) -> str:
    return (
        f"Write [{value!r:.40}]" if _is_spelled(value, kind) else "Give what the annotation says"
    )


def _is_spelled(value: object, kind: Any) -> bool:
    """Return whether a value is a text where a list is expected: its letters were the items."""
    origins = [get_origin(part) or part for part in _alternatives(kind)]
    lists = [kind for kind in origins if isinstance(kind, type) and issubclass(kind, Iterable)]
    takes_items = any(not issubclass(kind, str | bytes | Mapping) for kind in lists)
    return takes_items and isinstance(value, str | bytes)


class _UnknownName(type):
    """The class of what stands for a name that only type checkers see, and that any value fits."""

    def __getattr__(cls, name: str) -> _UnknownName:
        if name.startswith("_"):
            raise AttributeError(name)
        return cls

    def __getitem__(cls, item: object) -> _UnknownName:
        return cls


class _Anything(metaclass=_UnknownName):
    pass


class _Names(dict[str, Any]):
    """Names that annotations use, and the module of a function imports for type checkers alone."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self._known = {**vars(builtins), **inspect.unwrap(function).__globals__}

    def __missing__(self, name: str) -> Any:
        known = self._known.get(name) or sys.modules.get({"np": "numpy"}.get(name, name))
        if known is None:
            known = attempt(getattr, sys.modules["torch_ir"], name)
        return _Anything if isinstance(known, str | Raised) else known


def _misplaced(value: object, kind: Any, place: str) -> Iterator[tuple[str, object]]:
    """Yield each value at a place and in it that is not of its annotation, after its place."""
    origin, parts = get_origin(kind) or kind, get_args(kind)
    if origin in (Union, UnionType):
        found = [next(_misplaced(value, part, place), None) for part in parts]
        if None not in found:
            yield max(filter(None, found), key=lambda one: len(one[0]))
    elif not _fits(value, origin, parts):
        yield place, value
    elif not isinstance(origin, type):
        return  # a Literal, say, whose parts are no kinds of what a value holds
    elif parts and isinstance(value, Mapping) and issubclass(origin, Mapping):
        for key, item in islice(cast(Mapping[object, object], value).items(), MAX_ITEMS):
            yield from _misplaced(key, parts[0], f"a key of {place}")
            yield from _misplaced(item, parts[1], f"{place}[{_shown(key)}]")
    elif parts and isinstance(value, Collection) and issubclass(origin, Iterable):
        is_row = issubclass(origin, tuple) and parts[-1] is not Ellipsis
        items = attempt(list[object], islice(cast(Collection[object], value), MAX_ITEMS))
        if isinstance(items, Raised):
            yield place, value
            return
        kinds = parts if is_row else repeat(parts[0])
        for index, (item, part) in enumerate(zip(items, kinds, strict=False)):
            yield from _misplaced(item, part, f"{place}[{index}]")


def _fits(value: object, kind: Any, parts: tuple[Any, ...]) -> bool:
    """Return whether a value is of a class, whatever it holds."""
    if kind is type and parts:
        return isinstance(value, type) and issubclass(value, parts[0])
    if kind is Literal:
        return any(type(value) is type(part) and value == part for part in parts)
    if kind is Callable:
        return callable(value)
    if kind is Any or kind is _Anything or not isinstance(kind, type):
        return True
    if getattr(kind, "_is_protocol", False) and not issubclass(kind, Iterable):
        members = [name for name in vars(kind) if name == "__call__" or name[0] != "_"]
        return all(hasattr(value, name) for name in (*members, *inspect.get_annotations(kind)))
    if isinstance(value, str | bytes) and issubclass(kind, Iterable):
        return issubclass(kind, str | bytes) and isinstance(value, kind)  # a text is no list
    return isinstance(value, NUMBERS.get(kind, kind))


def _shown(value: object) -> str:
    """A value as a message tells it: what it is, or else of which class."""
    is_plain = value is None or isinstance(value, Real | str | bytes | list | tuple | dict)
    if is_plain and not (isinstance(value, Collection) and len(value) > MAX_SHOWN):
        text = attempt(repr, value)
        if isinstance(text, str) and len(text) <= MAX_SHOWN:
            return text
    return f"a value of class {type(value).__qualname__}"


def require_integer(
    value: object, name: str, low: int | None = None, high: int | None = None
) -> None:
    """Require an integer within bounds.

    Raises:
        InvalidIRError: It is another kind of value, or beyond a bound.

    Example:
        >>> require_integer(8, "nodes", 0, 100)
    """
    if not isinstance(value, int):
        raise InvalidIRError(f"{name} is an integer, got {value!r:.60}")
    if low is not None and value < low:
        raise InvalidIRError(f"{name} is at least {low:,}, got {value!r:.60}")
    if high is not None and value > high:
        raise InvalidIRError(f"{name} is at most {high:,}, got {value!r:.60}")


def require_list(values: object, name: str, kind: type) -> None:
    """Require None or a list of values of a kind; a text alone is no list of texts.

    Raises:
        InvalidIRError: It is something else.

    Example:
        >>> require_list(["aten.add*"], "operators", str)
    """
    if values is None:
        return
    items = cast(Sequence[object], () if isinstance(values, str | bytes) else values)
    is_list = isinstance(values, Sequence) and not isinstance(values, str | bytes)
    if not is_list or not all(isinstance(item, kind) for item in items):
        remedy = f"Give [{values!r:.40}]." if isinstance(values, kind) else None
        told = f"{name} is a list of {kind.__name__}, got {values!r:.60}"
        raise NoListError(told, remedy=remedy)


class NoListError(InvalidIRError):
    """What is given for a list of some kind is none."""


def require_seconds(seconds: object) -> None:
    """Require that a limit of time is one that clocks and queues take.

    Raises:
        InvalidIRError: It is negative, no number, or of years.

    Example:
        >>> require_seconds(60.0)
    """
    if not isinstance(seconds, int | float) or not 0 <= seconds <= MAX_SECONDS:
        raise InvalidIRError(
            f"a limit of time is from 0 to {MAX_SECONDS:,} seconds, got {seconds!r:.60}"
        )


def require_tolerance(tolerance: object) -> None:
    """Require that a relative error which is allowed is a number from 0 on, or None.

    Raises:
        InvalidIRError: It is negative, NaN or no number.

    Example:
        >>> require_tolerance(0.01)
    """
    is_number = isinstance(tolerance, int | float)
    if tolerance is not None and not (is_number and tolerance >= 0):
        raise InvalidIRError(f"a tolerance is a number from 0 on, got {tolerance!r:.60}")
