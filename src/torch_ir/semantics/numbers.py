"""Numbers as elements of tensors: Python's, and which are the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import ml_dtypes
import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.dtypes import Array, is_bool, is_complex, is_float, real_of, rounded


def flat(value: Any) -> list[Any]:
    """Return what an operator gives as one list."""
    if isinstance(value, list | tuple):
        return [item for part in cast(list[Any], value) for item in flat(part)]
    return [value]


def element(value: complex, dtype: np.dtype[Any]) -> Array:
    """Convert a number to an array without dimensions, of this type.

    In an integer a fraction loses what stands after the point; a negative integer becomes an
    unsigned one by wrapping. In a boolean it is whether the number is not 0.

    Raises:
        InvalidIRError: It is finite and too large for the type, not finite in an integer, or not
            real in a real type.

    Example:
        >>> element(2.7, np.dtype("int32")), element(-1, np.dtype("uint8"))
        (array(2, dtype=int32), array(255, dtype=uint8))
    """
    if is_bool(dtype):
        return np.asarray(bool(value))
    if is_complex(dtype):
        for part in (value.real, value.imag):
            _require_range(part, real_of(dtype), value)
        return rounded(value, dtype)
    if isinstance(value, complex):
        if value.imag:
            raise InvalidIRError(f"{value} is no {dtype}")
        value = value.real
    _require_range(value, dtype, value)
    if is_float(dtype):
        return rounded(float(value), dtype)
    return np.asarray(int(value) % (1 << 8 * dtype.itemsize), f"u{dtype.itemsize}").view(dtype)


def same(first: Array, second: Array) -> Array:
    """Return where elements are the same: equal, or both NaN.

    Example:
        >>> same(np.float32([1, 2, np.nan]), np.float32([1, 3, np.nan]))
        array([ True, False,  True])
    """
    return np.asarray((first == second) | ((first != first) & (second != second)))


def of_no_elements(arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return arguments in float64 where operands without elements are no real floating numbers.

    Their type says nothing. None if there are no such operands.

    Example:
        >>> of_no_elements({"self": np.zeros((0, 2), bool), "dim": 0})["self"].dtype
        dtype('float64')
    """
    arrays = [a for a in arguments.values() if isinstance(a, np.ndarray)]
    types = {a.dtype for a in arrays if not a.size and not is_float(a.dtype)}
    if not types:
        return None

    def typed(value: Any) -> Any:
        is_of_it = isinstance(value, np.ndarray) and value.dtype in types
        return value.real.astype("float64") if is_of_it else value

    return {name: typed(value) for name, value in arguments.items()}


def _require_range(value: float, dtype: np.dtype[Any], given: complex) -> None:
    """Require that a real number is within a type's range."""
    if is_float(dtype):
        fits = not np.isfinite(value) or abs(value) <= float(ml_dtypes.finfo(dtype).max)
    else:
        info = np.iinfo(dtype)
        wraps = dtype.kind == "u" and isinstance(value, int)
        fits = (-info.max if wraps else info.min) <= value <= info.max
    if not fits:
        raise InvalidIRError(f"{given} is no {dtype}")
