"""Element types in NumPy, which result type operands have together, and rounding.

A floating-point operator means the function of real (or complex) numbers, rounded once to the
result's type. So it is computed in :func:`working` precision and ends with :func:`rounded`.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.ir.dtypes import DTYPES
from torch_ir.torch_versions import torch_is

Array: TypeAlias = np.ndarray[Any, Any]
Operand: TypeAlias = Array | bool | int | float | complex
"""A tensor, or a Python number, which weighs less in type promotion."""

DEFAULT_FLOAT = np.dtype("float32")
"""torch's default dtype: what a Python float is where no tensor says more."""

NO_COMPLEX32 = "NumPy has no element type for complex32"
"""Why there is no denotation where torch computes in that type, whatever the result's is."""


class Complex32Error(InvalidIRError):
    """A call that torch computes in complex32, as float16 with a complex number, was evaluated."""


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return the NumPy (or ml_dtypes) type with the same bytes as torch's.

    Raises:
        InvalidIRError: NumPy has none.

    Example:
        >>> numpy_dtype("bfloat16"), numpy_dtype("complex64")
        (dtype(bfloat16), dtype('complex64'))
    """
    numpy_name = DTYPES[name].numpy
    if numpy_name is None:
        raise InvalidIRError(f"NumPy has no element type for {name}")
    return np.dtype(getattr(ml_dtypes, numpy_name, None) or numpy_name)


def is_complex(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype holds complex numbers."""
    return dtype.kind == "c"


def is_float(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype holds real floating-point numbers, those of ml_dtypes included."""
    return dtype.kind == "f" or dtype.type.__module__ == "ml_dtypes"


def is_inexact(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype holds floating-point numbers, real or complex."""
    return is_float(dtype) or is_complex(dtype)


def is_integer(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype holds integers; booleans are none."""
    return dtype.kind in "iu"


def is_bool(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype holds booleans."""
    return dtype.kind == "b"


def compared_as(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type in which kernels of thresholds compare: float32 for one of two bytes.

    Example:
        >>> compared_as(np.dtype("float16")), compared_as(np.dtype("int16"))
        (dtype('float32'), dtype('int16'))
    """
    return np.dtype(np.float32) if is_float(dtype) and dtype.itemsize == 2 else dtype


def working(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type to compute in: the widest of its kind, so that only the end rounds."""
    if is_complex(dtype):
        return np.dtype("complex128")
    return np.dtype("float64") if is_float(dtype) else dtype


def widened(values: Array) -> Array:
    """Return values in the :func:`working` precision of their type."""
    with np.errstate(invalid="ignore"):  # a signaling NaN becomes a quiet one
        return values.astype(working(values.dtype))


def widest(values: Array) -> Array:
    """Return values in float64 or complex128, integers and truth values too."""
    with np.errstate(invalid="ignore"):
        return values.astype("complex128" if is_complex(values.dtype) else "float64")


def rounded(values: Any, dtype: np.dtype[Any]) -> Array:
    """Round values to a new array of a type: to nearest, ties to even; integers wrap.

    float8_e4m3fn, which has no infinity, saturates: larger values become ±448, and NaN before
    torch 2.13. float8_e8m0fnu, which has powers of 2 alone, takes the modulus.
    """
    values = np.asarray(values)
    with np.errstate(all="ignore"):  # overflow to inf and wrapping are the meaning, not faults
        saturates = dtype == ml_dtypes.float8_e4m3fn and torch_is("2.13")
        if saturates and values.dtype != np.bool_:
            values = np.clip(values, -448, 448)
        if dtype.type.__module__ == "ml_dtypes" and values.dtype == np.float64:
            values = _rounded_to_odd(values)
        if dtype == ml_dtypes.float8_e8m0fnu:
            return _exponents(values.astype(np.float32)).view(dtype)
        return values.astype(dtype)


def _exponents(values: Array) -> Array:
    """The exponents of float32 values, rounded up where the fraction is more than half.

    At half, of a normal number up, of another one down. NaN and infinities have the last exponent.
    """
    bits = np.atleast_1d(values).view(np.uint32)
    exponents, fractions = (bits >> 23) & 255, bits & 0x7FFFFF
    half = np.where(exponents > 0, 0x400000, 0x400001)
    rises = (fractions >= half) & (exponents < 255)
    return (exponents + rises).astype(np.uint8).reshape(values.shape)


def _rounded_to_odd(values: Array) -> Array:
    """float64 values as float32: exact, or else the neighbor whose last bit is 1.

    ml_dtypes converts by way of float32. Rounding twice to nearest is not rounding once; rounding
    to odd first is, because it keeps the side of every tie.

    Source: S. Boldo, G. Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms
    using rounding to odd", IEEE Transactions on Computers 57 (2008).
    """
    nearest = np.asarray(values.astype(np.float32))
    inexact = (nearest != values) & ~np.isnan(values)
    even = nearest.view(np.uint32) % 2 == 0
    toward = np.where(values > nearest, np.float32(np.inf), np.float32(-np.inf))
    return np.where(inexact & even, np.nextafter(nearest, toward), nearest)


def real_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type of a complex type's parts; another type is returned unchanged."""
    return np.dtype(f"float{dtype.itemsize * 4}") if is_complex(dtype) else dtype


def significant_bits(dtype: np.dtype[Any]) -> int:
    """Count the bits of a floating-point type's significand, the leading one included.

    Example:
        >>> [significant_bits(np.dtype(name)) for name in ("float16", "float32", "float64")]
        [11, 24, 53]
    """
    return int(ml_dtypes.finfo(dtype).nmant) + 1


# -- promotion ------------------------------------------------------------------------------------


def promote(first: np.dtype[Any], second: np.dtype[Any]) -> np.dtype[Any]:
    """Return the common type of two tensors of equal standing, as ``torch.promote_types``.

    bool < integer < floating < complex. Among integers of one signedness the wider; uint8 with a
    signed type the smallest signed type that holds both. float16 with bfloat16 is float32. A
    complex type with a real one keeps the wider precision.

    Raises:
        InvalidIRError: torch promotes no such pair: uint16 and wider with anything but floating
            types, float8 with anything.
    """
    if first == second:
        return first
    for one, other in ((first, second), (second, first)):
        if (_is_barebones(one) and not is_float(other)) or _is_float8(one):
            raise InvalidIRError(f"{first} and {second} have no common type")
    ranks = [_rank(first), _rank(second)]
    if ranks[0] != ranks[1]:
        high, low = (first, second) if ranks[0] > ranks[1] else (second, first)
        return np.dtype("complex128") if is_complex(high) and low == np.float64 else high
    if is_complex(first):
        return np.dtype("complex128")
    if is_float(first):
        if first.itemsize == second.itemsize:  # float16 and bfloat16
            return np.dtype("float32")
        return max(first, second, key=lambda dtype: dtype.itemsize)
    return _promote_integers(first, second)


def _rank(dtype: np.dtype[Any]) -> int:
    if is_complex(dtype):
        return 3
    return 2 if is_float(dtype) else 1 if is_integer(dtype) else 0


def _is_barebones(dtype: np.dtype[Any]) -> bool:
    """Whether it is one of the unsigned types that torch added last, for storage above all."""
    return dtype.kind == "u" and dtype.itemsize > 1


def _is_float8(dtype: np.dtype[Any]) -> bool:
    return is_float(dtype) and dtype.itemsize == 1


def complex_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the complex type whose parts have this type, or float32 for bfloat16.

    Raises:
        Complex32Error: NumPy has none.
    """
    if dtype == np.float16:
        raise Complex32Error(NO_COMPLEX32)
    return np.dtype("complex128" if dtype.itemsize == 8 else "complex64")


def _promote_integers(first: np.dtype[Any], second: np.dtype[Any]) -> np.dtype[Any]:
    if first.kind == second.kind:
        return max(first, second, key=lambda dtype: dtype.itemsize)
    signed = first if first.kind == "i" else second
    return np.dtype("int16") if signed.itemsize == 1 else signed


def result_dtype(*operands: Operand) -> np.dtype[Any]:
    """Return the type of an operation's result on tensors and Python numbers.

    Tensors with dimensions weigh most, then those without, then Python numbers: a lighter operand
    only matters where its kind (bool, integer, floating, complex) is higher.

    Source: "Type promotion" in torch's documentation of ``torch.dtype``.

    Raises:
        InvalidIRError: The operands have no common type, or one that NumPy lacks (complex32, of
            float16 with a lighter complex operand).

    Example:
        >>> result_dtype(np.ones(2, "int32"), 2.5), result_dtype(np.ones(2, "float64"), 1j)
        (dtype('float32'), dtype('complex128'))
        >>> result_dtype(np.ones(2, "float32"), np.array(1.0, "float64"))
        dtype('float32')
    """
    weights: list[np.dtype[Any] | None] = [None, None, None]
    for operand in operands:
        if isinstance(operand, np.ndarray):
            place, dtype = (0 if operand.ndim else 1), operand.dtype
        else:
            place, dtype = 2, _number_dtype(operand)
        held = weights[place]
        weights[place] = dtype if held is None else promote(held, dtype)
    result = _combined(weights[0], _combined(weights[1], weights[2]))
    if result is None:
        raise InvalidIRError("nothing has no type")
    return result


def _number_dtype(number: complex) -> np.dtype[Any]:
    if isinstance(number, bool):
        return np.dtype("bool")
    if isinstance(number, int):
        return np.dtype("int64")
    return DEFAULT_FLOAT if isinstance(number, float) else complex_of(DEFAULT_FLOAT)


def _combined(high: np.dtype[Any] | None, low: np.dtype[Any] | None) -> np.dtype[Any] | None:
    """The heavier operand's type, unless the lighter one's kind is higher."""
    if high is None or low is None:
        return low if high is None else high
    if is_float(high) and is_complex(low):
        return complex_of(high)
    return high if _rank(high) >= _rank(low) and _rank(high) > 0 else promote(high, low)
