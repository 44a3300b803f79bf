"""Arguments that are off by as much as they may be, and how far results move with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np

from torch_ir.errors import Raised, TorchIRError, attempt
from torch_ir.semantics.dtypes import Array, is_bool, is_complex, is_integer, widened, widest
from torch_ir.semantics.numbers import same

T = TypeVar("T")


def ends_of(values: Iterable[Any]) -> tuple[complex, ...]:
    """Return the ends of the ranges of values that are off, in units of how far they are.

    A complex number may be off in any direction: these are the corners around it.

    Example:
        >>> ends_of([np.float32([1, 2])]), len(ends_of([np.complex64([1j])]))
        ((-1.0, 1.0), 4)
    """
    items = [
        item
        for value in values
        for item in (value if isinstance(value, list | tuple) else [value])
    ]
    if any(item is not None and is_complex(item.dtype) for item in items):
        return (-1 - 1j, -1 + 1j, 1 - 1j, 1 + 1j)
    return (-1.0, 1.0)


def moved_by(value: Any, error: Any, sign: Any) -> Any:
    """Return a value at an end of its range; one without dimensions stays an array.

    NaN is off by nothing but all: where any value is right, it becomes a number.

    Example:
        >>> moved_by(np.float32([1, np.nan, np.nan]), np.float64([0.5, np.inf, 0.5]), -1)
        array([ 0.5, -1. ,  nan])
    """
    if isinstance(value, list | tuple):
        return [moved_by(v, e, sign) for v, e in zip(value, error, strict=True)]
    if value is None:
        return None
    sign = sign if is_complex(value.dtype) else np.real(sign)
    if is_bool(value.dtype):
        return np.asarray(value ^ (error > 0))
    if is_integer(value.dtype):
        info = np.iinfo(value.dtype)
        moved = np.clip(value + sign * np.ceil(error), info.min, info.max)
        return np.asarray(moved.astype(value.dtype))
    moved = np.asarray(widened(value) + sign * error)
    return np.where(np.isnan(value) & np.isinf(error), sign, moved).astype(moved.dtype)


def apart(first: Array, second: Array) -> Array:
    """Return |first - second|; infinite where only one of them is a number."""
    if first.shape != second.shape:
        return np.full(second.shape, np.inf)
    off = np.asarray(np.abs(widest(first) - widest(second)))
    np.copyto(off, np.inf, where=np.isnan(off))
    np.copyto(off, 0, where=same(first, second))
    return off


def meant_at(
    call: Callable[[Mapping[str, Any]], T], given: Mapping[str, Any], moved: Mapping[str, Any]
) -> T | None:
    """Return what a call means at moved arguments; None where it refuses them.

    A place beyond a dimension is none that a kernel takes: it is clipped to those that the call
    takes.

    Args:
        call: The call, of all moved arguments; it takes those that are given.
        given: The arguments where they were.
        moved: The arguments that are moved, by name.
    """
    try:
        return call(moved)
    except TorchIRError:
        places = {name: _clipped(call, given, name, at) for name, at in moved.items()}
    try:
        return call(places)
    except TorchIRError:
        return None


def _clipped(
    call: Callable[[Mapping[str, Any]], object], given: Mapping[str, Any], name: str, moved: Any
) -> Any:
    """Integers between the farthest that the call takes, each of a list by itself."""
    before = given[name]

    def clipped(value: Any, at: Any, put: Callable[[Array], Any]) -> Any:
        if not isinstance(at, np.ndarray) or not is_integer(at.dtype) or not at.size:
            return at

        def is_taken(place: int) -> bool:
            made = attempt(call, {**given, name: put(np.full_like(at, place))})
            return not isinstance(made, Raised)

        low, high = (_farthest(int(f(value)), int(f(at)), is_taken) for f in (np.min, np.max))
        return np.minimum(np.maximum(at, low), high).astype(at.dtype)

    if not isinstance(moved, list):
        return clipped(before, moved, lambda part: part)
    return [
        clipped(before[i], at, lambda part, i=i: [*before[:i], part, *before[i + 1 :]])
        for i, at in enumerate(moved)
    ]


def _farthest(near: int, far: int, is_taken: Callable[[int], bool]) -> int:
    """The number next to ``far`` that is taken, as ``near`` is."""
    if is_taken(far):
        return far
    while abs(far - near) > 1:
        middle = (near + far) // 2
        near, far = (middle, far) if is_taken(middle) else (near, middle)
    return near
