"""Functions of single elements, made functions of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, cast

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.ops.clamps import clamp_cuts_bounds, cut_bound
from torch_ir.semantics.broadcast import broadcast_all
from torch_ir.semantics.dtypes import (
    DEFAULT_FLOAT,
    Array,
    Operand,
    is_bool,
    is_complex,
    is_float,
    is_inexact,
    is_integer,
    real_of,
    result_dtype,
    rounded,
    working,
)

ElementFunction: TypeAlias = (
    Callable[[Array], Any]
    | Callable[[Array, Array], Any]
    | Callable[[Array, Array, Array], Any]
    | Callable[[Array, Array, Array, Array], Any]
)


def pointwise(
    function: ElementFunction,
    *operands: Operand,
    dtype: np.dtype[Any] | None = None,
    result: np.dtype[Any] | None = None,
) -> Array:
    """Compute ``result[i] = round(function(first[i], second[i], …))`` on broadcast operands.

    Args:
        function: Takes arrays of one shape in working precision, and gives one.
        *operands: Tensors and numbers; each takes the type ``dtype`` first.
        dtype: The type to which the operands are promoted; their common one if None.
        result: The type of the result; ``dtype`` if None.
    """
    dtype = dtype or result_dtype(*operands)
    taken = [operand_in(operand, dtype, operands) for operand in operands]
    return rounded(cast(Any, function)(*broadcast_all(*taken)), result or dtype)


def operand_in(operand: Operand, dtype: np.dtype[Any], operands: tuple[Operand, ...]) -> Array:
    """Convert an operand to the working precision of an operation of that type.

    It is rounded to the type. What is a number, or a tensor without dimensions beside one that
    has some, keeps float32's precision in operations on float16 and bfloat16.
    """
    is_light = not isinstance(operand, np.ndarray) or operand.ndim == 0
    among_heavy = any(isinstance(other, np.ndarray) and other.ndim for other in operands)
    half = is_float(dtype) and dtype.itemsize == 2
    number = not isinstance(operand, np.ndarray)
    finest = DEFAULT_FLOAT if half and is_light and (among_heavy or number) else dtype
    is_there = isinstance(operand, np.ndarray) and operand.dtype == finest
    taken = operand if is_there else rounded(operand, finest)
    return np.asarray(taken).astype(working(dtype), copy=False)


def floating(*operands: Operand) -> np.dtype[Any]:
    """Return the common type, or float32 in place of an integer or boolean one."""
    dtype = result_dtype(*operands)
    return dtype if is_inexact(dtype) else DEFAULT_FLOAT


def whole(tensor: Array) -> bool:
    """Return whether a dtype holds integers or booleans."""
    return is_integer(tensor.dtype) or is_bool(tensor.dtype)


_LARGEST = float(np.finfo(np.float32).max)


def number_as(number: complex, dtype: np.dtype[Any]) -> Array:
    """Convert a number to a tensor of a type, without dimensions.

    A fraction is cut off toward zero for integers. For unsigned integers a negative integer whose
    absolute value fits wraps. As a boolean it is whether it differs from 0.

    Raises:
        InvalidIRError: The type cannot hold it: it is too large for integers or float32 (for a
            16-bit type it becomes infinite), no number for integers, or complex for real types.
    """
    if is_bool(dtype):
        return np.asarray(bool(number))
    if isinstance(number, complex) and not is_complex(dtype):
        fits, number = number.imag == 0, number.real
    else:
        fits = True
    if is_integer(dtype):
        info = np.iinfo(dtype)
        wraps = dtype.kind == "u" and isinstance(number, int)
        fits = fits and (-info.max if wraps else info.min) <= number.real <= info.max
        number = int(number.real) % 2**64 if fits and wraps else number
    elif real_of(dtype) == np.float32:
        fits = fits and not any(
            _LARGEST < abs(part) < np.inf for part in (number.real, number.imag)
        )
    if not fits:
        raise InvalidIRError(f"{dtype} does not hold the number {number}")
    if is_integer(dtype):
        number = int(number.real)
    return rounded(np.asarray(number), dtype)


def bound_as(number: complex, dtype: np.dtype[Any], side: np.ufunc) -> Array:
    """Convert the bound of a clamp to a tensor of a type, without dimensions.

    Where torch cuts bounds, a lower one below all integers of the type is the least of them, and
    an upper one above them the greatest; no other wraps.

    Args:
        number: The bound.
        dtype: The type of what is bounded.
        side: ``np.maximum`` for a lower bound, ``np.minimum`` for an upper one.

    Raises:
        InvalidIRError: The type cannot hold it.

    Example:
        >>> bound_as(7, np.dtype("int8"), np.minimum)
        array(7, dtype=int8)
    """
    if not is_integer(dtype) or isinstance(number, complex):
        return number_as(number, dtype)
    info = np.iinfo(dtype)
    bound = cut_bound(number, info.min, info.max, lower=side is np.maximum)
    if clamp_cuts_bounds() and not info.min <= bound <= info.max:
        raise InvalidIRError(f"{dtype} does not hold the number {number}")
    return number_as(bound, dtype)


def require_type(name: str, accepted: Callable[[np.dtype[Any]], bool], *tensors: Operand) -> None:
    """Refuse tensors of types on which an operator does not exist.

    Raises:
        InvalidIRError: A tensor's type is not accepted.
    """
    for tensor in tensors:
        if isinstance(tensor, np.ndarray) and not accepted(tensor.dtype):
            raise InvalidIRError(f"{name} does not exist on {tensor.dtype}")


def require_common_type(
    name: str, accepted: Callable[[np.dtype[Any]], bool], *operands: Operand
) -> np.dtype[Any]:
    """Return the common type of operands; refuse those on whose an operator does not exist.

    Raises:
        InvalidIRError: It is not accepted.
    """
    dtype = result_dtype(*operands)
    if not accepted(dtype):
        raise InvalidIRError(f"{name} does not exist on {dtype}")
    return dtype


def is_real(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype holds real numbers: not complex ones."""
    return not is_complex(dtype)


def is_number(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype holds numbers: not booleans."""
    return not is_bool(dtype)


def is_real_number(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype holds real numbers, and no booleans."""
    return is_integer(dtype) or is_float(dtype)
