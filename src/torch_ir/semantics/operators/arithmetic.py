"""Arithmetic of two operands: sums, products, quotients and what remains of them, powers.

Operands broadcast. The result's type is their common one
(:func:`~torch_ir.semantics.dtypes.result_dtype`). Integers wrap; booleans add as *or* and multiply
as *and*. Source of all, unless it is named: the operator's page in torch's documentation, and
IEEE 754 for NaN, infinities and signed zeros.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.ops.quotients import overflows
from torch_ir.semantics.broadcast import broadcast_all
from torch_ir.semantics.dtypes import (
    Array,
    Operand,
    is_bool,
    is_complex,
    is_float,
    is_inexact,
    is_integer,
    result_dtype,
    rounded,
)
from torch_ir.semantics.operators.complex_numbers import complex_log_sum
from torch_ir.semantics.pointwise import (
    bound_as,
    floating,
    is_number,
    is_real,
    is_real_number,
    number_as,
    pointwise,
    require_common_type,
    require_type,
    whole,
)
from torch_ir.semantics.registry import declare, denotes
from torch_ir.torch_versions import torch_is


@denotes("aten.add.Tensor", "aten.add.Scalar")
def add(self: Operand, other: Operand, alpha: complex = 1) -> Array:
    """``self + alpha · other``, rounded once."""
    _require_alpha(result_dtype(self, other), alpha)
    return pointwise(lambda a, b: a + _scaled(alpha, b), self, other)


@denotes("aten._add_relu.Tensor", "aten._add_relu.Scalar")
def add_relu(self: Operand, other: Operand, alpha: complex = 1) -> Array:
    """``self + alpha · other``, at least 0 and at most the greatest number of ``self``'s type."""
    total, first = add(self, other, alpha), np.asarray(self).dtype
    is_half = is_float(first) and first.itemsize == 2
    if is_half or first == np.uint8 or not is_real_number(first):
        raise InvalidIRError(f"_add_relu does not exist on {first}")
    if is_complex(total.dtype):
        raise InvalidIRError(f"_add_relu does not exist on {total.dtype}")
    most = (np.finfo if is_float(first) else np.iinfo)(first).max
    clipped = np.clip(total, np.zeros((), total.dtype), np.asarray(most, total.dtype))
    return np.asarray(clipped)


@denotes("aten.sub.Tensor", "aten.sub.Scalar")
def sub(self: Operand, other: Operand, alpha: complex = 1) -> Array:
    """``self − alpha · other``, rounded once; does not exist on booleans."""
    if any(_is_boolean(operand) for operand in (self, other)):
        raise InvalidIRError("sub does not exist on bool")
    _require_alpha(result_dtype(self, other), alpha)
    return pointwise(lambda a, b: a - _scaled(alpha, b), self, other)


@denotes("aten.rsub.Tensor", "aten.rsub.Scalar")
def rsub(self: Operand, other: Operand, alpha: complex = 1) -> Array:
    """``other − alpha · self``, rounded once; does not exist on booleans."""
    return sub(other, self, alpha)


def _is_boolean(operand: Operand) -> bool:
    return is_bool(operand.dtype) if isinstance(operand, np.ndarray) else operand is True


def _require_alpha(dtype: np.dtype[Any], alpha: complex) -> None:
    """Refuse an alpha of a higher kind than the result's, and a boolean one but for booleans."""
    kinds = (
        (isinstance(alpha, bool) and not is_bool(dtype))
        or (isinstance(alpha, float) and not is_inexact(dtype))
        or (isinstance(alpha, complex) and not is_complex(dtype))
    )
    if kinds:
        raise InvalidIRError(f"alpha cannot be {alpha!r} where the result is {dtype}")


def _scaled(alpha: complex, values: Array) -> Array:
    return values if alpha == 1 else np.asarray(alpha).astype(values.dtype) * values


@denotes("aten.mul.Tensor", "aten.mul.Scalar")
def mul(self: Operand, other: Operand) -> Array:
    """``self · other``."""
    return pointwise(np.multiply, self, other)


@denotes(
    *("aten.div.Tensor", "aten.div.Scalar", "aten.div.Tensor_mode", "aten.div.Scalar_mode"),
    *("aten.true_divide.Tensor", "aten.divide.Tensor", "aten.divide.Scalar"),
)
def div(self: Operand, other: Operand, rounding_mode: str | None = None) -> Array:
    """``self / other``, as it is or rounded to an integer: ``"floor"`` down, ``"trunc"`` to zero.

    ``"trunc"`` cuts off the quotient as it is rounded to the type, ``"floor"`` the exact one.

    Without rounding, integers divide as float32. With it, the result has the common type, and
    division of integers by zero is refused, and by -1 of the least int32 or int64 where the
    quotient is cut off. Floating-point division by zero gives ±inf, or NaN for
    0/0, in every mode. ``inf / x`` rounded down is NaN, as ``inf mod x`` is. Rounding does not
    exist on booleans and complex numbers.
    """
    if rounding_mode is None:
        return pointwise(np.true_divide, self, other, dtype=floating(self, other))
    if rounding_mode not in ("floor", "trunc"):
        raise InvalidIRError(
            f"there is no rounding mode {rounding_mode!r}", remedy='"floor" or "trunc".'
        )
    _require_divisible(f"div rounded by {rounding_mode}", self, other)
    if rounding_mode == "floor":
        return pointwise(_floor_of, self, other)
    dtype = result_dtype(self, other)
    if is_integer(dtype):
        if dtype in (np.dtype("int32"), np.dtype("int64")):  # others are divided as int32
            _require_quotients(rounded(self, dtype), rounded(other, dtype))
        return pointwise(_integer_trunc_of, self, other)
    return pointwise(lambda a, b: np.trunc(rounded(a / b, dtype).astype(a.dtype)), self, other)


@denotes("aten.floor_divide.default", "aten.floor_divide.Scalar")
def floor_divide(self: Operand, other: Operand) -> Array:
    """``⌊self / other⌋``, as :func:`div` rounded by ``"floor"``."""
    return div(self, other, "floor")


def _floor_of(a: Array, b: Array) -> Array:
    if is_integer(a.dtype):
        return np.floor_divide(a, b)
    rest = np.fmod(a, b)
    quotient = (a - rest) / b - ((rest != 0) & ((rest < 0) != (b < 0)))
    down = np.floor(quotient)
    down = np.where(quotient - down > 0.5, down + 1, down)
    return np.where(b == 0, a / b, np.where(quotient == 0, np.copysign(0.0, a / b), down))


def _integer_trunc_of(a: Array, b: Array) -> Array:
    down = np.floor_divide(a, b)
    return down + ((down < 0) & (down * b != a)).astype(down.dtype)


@denotes("aten.remainder.Tensor", "aten.remainder.Scalar", "aten.remainder.Scalar_Tensor")
def remainder(self: Operand, other: Operand) -> Array:
    """``self − ⌊self / other⌋ · other``, exact until the one rounding: it has the divisor's sign.

    A remainder of zero keeps the dividend's sign; of an infinite dividend or by zero it is NaN;
    by ±inf it is the dividend, or ``other`` where the signs differ. For integers a divisor of zero
    is refused. It does not exist on booleans and complex numbers.
    """
    _require_divisible("remainder", self, other)
    return _exactly(_python_remainder, self, other)


@denotes("aten.fmod.Tensor", "aten.fmod.Scalar")
def fmod(self: Operand, other: Operand) -> Array:
    """``self − trunc(self / other) · other``, exact: it has the dividend's sign.

    Of an infinite dividend or by zero it is NaN; by ±inf it is the dividend. For integers a
    divisor of zero is refused. It does not exist on booleans and complex numbers.

    Source: C99 7.12.10.1.
    """
    _require_divisible("fmod", self, other)
    return _exactly(np.fmod, self, other)


def _python_remainder(a: Array, b: Array) -> Array:
    rest = np.fmod(a, b)
    return np.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


def _exactly(function: Callable[[Array, Array], Any], self: Operand, other: Operand) -> Array:
    """Pointwise with both operands rounded to the common type, numbers too."""
    dtype = result_dtype(self, other)
    return pointwise(function, rounded(self, dtype), rounded(other, dtype), dtype=dtype)


def _require_divisible(name: str, self: Operand, other: Operand) -> None:
    dtype = result_dtype(self, other)
    if not is_integer(dtype) and not is_float(dtype):
        raise InvalidIRError(f"{name} does not exist on {dtype}")
    if is_integer(dtype) and not np.asarray(other).all():
        raise InvalidIRError("an integer is divided by zero")


def _require_quotients(self: Array, other: Array) -> None:
    least = int(np.iinfo(self.dtype).min)
    if np.any(overflows(self, other, least)):
        raise InvalidIRError(
            f"{least} is divided by -1, and {-least} is outside of {self.dtype}",
            remedy='rounding_mode="floor", which wraps.',
        )


# -- powers ---------------------------------------------------------------------------------------


@denotes("aten.pow.Tensor_Tensor", "aten.pow.Tensor_Scalar", "aten.pow.Scalar")
def pow(self: Operand, exponent: Operand) -> Array:
    """``selfᵉˣᵖᵒⁿᵉⁿᵗ``, as C's ``pow``.

    ``x⁰ = 1`` and ``1ᵉ = 1`` also for NaN; a negative number to a power that is no integer is NaN.
    An exponent that is the number ±0.5 means ``sqrt(x)`` and ``1/sqrt(x)``, but for float16: they
    differ at −0 and −inf. Numbers are rounded to the type.

    Powers of integers wrap; an integer to a negative power is cut off toward zero (0 for 0), and
    refused where the exponent is a number. It does not exist on two booleans, unless the exponent
    is a number.

    Source: C99 F.9.4.4, and torch's documentation.
    """
    dtype = result_dtype(self, exponent)
    if is_bool(dtype):
        if not isinstance(self, np.ndarray) or isinstance(exponent, np.ndarray):
            raise InvalidIRError("pow does not exist on bool")
        return self.copy() if exponent else np.ones_like(self)
    if is_integer(dtype):
        if not isinstance(exponent, np.ndarray) and exponent.real < 0:
            raise InvalidIRError("an integer is raised to a negative power")
        return pointwise(_integer_power, self, exponent)
    is_root = not isinstance(exponent, np.ndarray) and exponent in (0.5, -0.5)
    if is_root and dtype != np.float16:
        root = np.sqrt if exponent.real > 0 else _inverse_root
        return pointwise(root, self, dtype=dtype)
    return _exactly(_power, self, exponent)


def _inverse_root(values: Array) -> Array:
    return 1 / np.sqrt(values)


def _power(base: Array, exponent: Array) -> Array:
    power = np.power(base, exponent)
    if is_complex(base.dtype):
        return power
    # NumPy takes one exponent of 0.5 for a square root, which C's pow does not
    ends = (exponent == 0.5) & ((base == 0) | np.isinf(base))
    return np.where(ends, np.abs(base), power)


def _integer_power(base: Array, exponent: Array) -> Array:
    power, square, rest = np.ones_like(base), base, np.maximum(exponent, 0)
    while rest.any():
        power = np.where(rest % 2 == 1, power * square, power)
        square, rest = square * square, rest // 2
    inverse = np.where(base == 1, 1, np.where(base == -1, 1 - 2 * (exponent % 2), 0))
    return np.where(exponent < 0, inverse, power)


@denotes("aten.square.default")
def square(self: Array) -> Array:
    """``self²``."""
    return pow(self, 2)


# -- extrema --------------------------------------------------------------------------------------


def _common_divisor(first: Array, second: Array) -> Array:
    """Euclid's algorithm: the remainder of the last two until it is 0, as C's ``%`` has it."""
    rest, last = np.abs(first), np.abs(second)
    while rest.any():
        divisor = np.where(rest, rest, 1)
        rest, last = np.where(rest, np.fmod(last, divisor), 0), np.where(rest, rest, last)
    return last


def _common_multiple(first: Array, second: Array) -> Array:
    """The least common multiple, cut to the type: a narrow one after its modulus, others before.

    torch computes those in int32.
    """
    if first.dtype.itemsize < 4:
        wide = np.lcm(first.astype("int64"), second.astype("int64"))
        return wide.astype("int32").astype(first.dtype)
    return np.asarray(np.abs(np.lcm(first, second)))


def _declare(
    names: str, function: Callable[..., Any], accepted: Callable[[np.dtype[Any]], bool], says: str
) -> None:
    first = names.split(".")[0]

    def denoted(self: Array, other: Array) -> Array:
        require_common_type(first, accepted, self, other)
        return pointwise(function, self, other)

    declare(denoted, says, *[f"aten.{name}" for name in names.split()])


for _row in (
    (
        *("maximum.default max.other", np.maximum, is_real),
        "The larger of the two, NaN if one is NaN; which of +0 and −0 is not said.",
    ),
    (
        *("minimum.default min.other", np.minimum, is_real),
        "The smaller of the two, NaN if one is NaN; which of +0 and −0 is not said.",
    ),
    ("fmax.default", np.fmax, is_real, "The larger of the two, the number if one is NaN."),
    ("fmin.default", np.fmin, is_real, "The smaller of the two, the number if one is NaN."),
    (
        *("hypot.default", np.hypot, is_float),
        "``√(self² + other²)`` without overflow between; inf if one is infinite.",
    ),
    (
        *("gcd.default", _common_divisor, is_integer),
        "The greatest common divisor of the absolute values, ``gcd(0, 0) = 0``; of integers."
        " The absolute value of the least integer is that integer, which wraps.",
    ),
    (
        *("lcm.default", _common_multiple, is_integer),
        "The least common multiple of the absolute values, 0 where either is 0; of integers.",
    ),
):
    _declare(*_row)


@denotes("aten.clamp.default", "aten.clamp.Tensor", "aten.clip.default")
def clamp(self: Array, min: Operand | None = None, max: Operand | None = None) -> Array:
    """``minimum(maximum(self, min), max)``: where ``min > max`` it is ``max``.

    NaN in any of the three gives NaN; before torch 2.13, a number NaN as the only bound does not
    bound. A bound that is None does not; one must be given. The result's type is the common one.
    It does not exist on complex numbers. From torch 2.15 on, a number as ``min`` may be below what
    an integer type holds, and one as ``max`` above.
    """
    if not torch_is("2.13") and (min is None) != (max is None):
        min, max = (
            -math.inf if isinstance(min, float) and math.isnan(min) else min,
            math.inf if isinstance(max, float) and math.isnan(max) else max,
        )
    return _clamped(self, min, max)


def _clamped(self: Array, min: Operand | None, max: Operand | None) -> Array:
    bounds = [bound for bound in (min, max) if bound is not None]
    if not bounds:
        raise InvalidIRError("clamp needs min or max")
    dtype = result_dtype(self, *bounds)
    if is_complex(dtype):
        raise InvalidIRError(f"clamp does not exist on {dtype}")
    result: Operand = self
    if min is not None:
        result = pointwise(np.maximum, result, _bound(min, dtype, np.maximum), dtype=dtype)
    if max is not None:
        result = pointwise(np.minimum, result, _bound(max, dtype, np.minimum), dtype=dtype)
    return np.asarray(result)


def _bound(bound: Operand, dtype: np.dtype[Any], side: np.ufunc) -> Array:
    return bound if isinstance(bound, np.ndarray) else bound_as(bound, dtype, side)


@denotes("aten.clamp_min.default", "aten.clamp_min.Tensor")
def clamp_min(self: Array, min: Operand) -> Array:
    """``maximum(self, min)``, as :func:`clamp`, with NaN for NaN."""
    return _clamped(self, min, None)


@denotes("aten.clamp_max.default", "aten.clamp_max.Tensor")
def clamp_max(self: Array, max: Operand) -> Array:
    """``minimum(self, max)``, as :func:`clamp`, with NaN for NaN."""
    return _clamped(self, None, max)


# -- of floating-point numbers --------------------------------------------------------------------


@denotes("aten.atan2.default", "aten.arctan2.default")
def atan2(self: Array, other: Array) -> Array:
    """The angle of the point ``(other, self)`` in (−π, π]; integers as float32.

    Zeros and infinities are points of their quadrant: ``atan2(−0, −1) = −π``.

    Source: C99 F.9.1.4.
    """
    require_type("atan2", is_real, self, other)
    return pointwise(np.arctan2, self, other, dtype=floating(self, other))


@denotes("aten.copysign.Tensor", "aten.copysign.Scalar")
def copysign(self: Array, other: Operand) -> Array:
    """``|self|`` with the sign of ``other``, −0 and −NaN included; integers as float32."""
    require_type("copysign", is_real, self, other)
    return pointwise(np.copysign, self, other, dtype=floating(self, other))


@denotes("aten.logaddexp.default")
def logaddexp(self: Array, other: Array) -> Array:
    """``ln(eˢᵉˡᶠ + eᵒᵗʰᵉʳ)`` without overflow between."""
    dtype = require_common_type("logaddexp", is_inexact, self, other)
    return pointwise(complex_log_sum if is_complex(dtype) else np.logaddexp, self, other)


@denotes("aten.xlogy.Tensor", "aten.xlogy.Scalar_Self", "aten.xlogy.Scalar_Other")
def xlogy(self: Operand, other: Operand) -> Array:
    """``self · ln other``: 0 where self is 0, NaN where other is NaN; integers as float32."""
    require_type("xlogy", is_real, self, other)
    return pointwise(
        lambda a, b: np.where((a == 0) & ~np.isnan(b), 0.0, a * np.log(b)),
        self,
        other,
        dtype=floating(self, other),
    )


@denotes("aten.lerp.Scalar", "aten.lerp.Tensor")
def lerp(self: Array, end: Array, weight: Operand) -> Array:
    """``self + weight · (end − self)``, in the common type of all tensors.

    Infinities are those of ``end − (1 − weight) · (end − self)`` from a weight of ½ on.
    """
    tensors = [t for t in (self, end, weight) if isinstance(t, np.ndarray)]
    dtype = require_common_type("lerp", is_inexact, *tensors)

    def between(a: Array, b: Array, w: Array) -> Array:
        return np.where(np.abs(w) < 0.5, a + w * (b - a), b - (1 - w) * (b - a))

    return pointwise(between, self, end, weight, dtype=dtype)


@denotes("aten.addcmul.default")
def addcmul(self: Array, tensor1: Array, tensor2: Array, value: complex = 1) -> Array:
    """``self + value · tensor1 · tensor2``, rounded once; does not exist on booleans."""
    _require_alpha(require_common_type("addcmul", is_number, self, tensor1, tensor2), value)
    return pointwise(lambda a, b, c: a + _scaled(value, b) * c, self, tensor1, tensor2)


@denotes("aten.addcdiv.default")
def addcdiv(self: Array, tensor1: Array, tensor2: Array, value: complex = 1) -> Array:
    """``self + value · tensor1 / tensor2``, rounded once; two integers are not divided."""
    if whole(tensor1) and whole(tensor2):
        raise InvalidIRError("addcdiv does not divide integers by integers")
    return pointwise(lambda a, b, c: a + _scaled(value, b) / c, self, tensor1, tensor2)


@denotes("aten.linalg_cross.default")
def linalg_cross(self: Array, other: Array, *, dim: int = -1) -> Array:
    """``self[i + 1] · other[i + 2] - self[i + 2] · other[i + 1]`` along a ``dim`` of 3."""
    first, second = np.broadcast_arrays(self, other)
    if self.ndim != other.ndim or first.shape[dim] != 3 or self.dtype != other.dtype:
        raise InvalidIRError(f"no vectors of 3 numbers of one type: {self.shape}, {other.shape}")
    turned = [np.roll(side, -by, dim) for side in (first, second) for by in (1, 2)]
    return pointwise(lambda a, b, c, d: a * d - b * c, *turned)


@denotes("aten.cross.default")
def cross(self: Array, other: Array, dim: int | None = None) -> Array:
    """``linalg_cross`` along ``dim``, the first one of size 3 if None."""
    return linalg_cross(self, other, dim=self.shape.index(3) if dim is None else dim)


@denotes("aten.heaviside.default")
def heaviside(self: Array, values: Array) -> Array:
    """0 below zero, 1 above, ``values`` at zero; the operands have one type. 1 for NaN."""
    require_type("heaviside", is_real, self, values)
    if self.dtype != values.dtype:
        raise InvalidIRError(f"heaviside takes one type, not {self.dtype} and {values.dtype}")
    return pointwise(lambda a, b: np.where(a == 0, b, a > 0), self, values)


@denotes("aten.nextafter.default")
def nextafter(self: Array, other: Array) -> Array:
    """The next number of the common type toward ``other``."""
    dtype = require_common_type("nextafter", is_float, self, other)
    first, second = (rounded(side, dtype) for side in broadcast_all(self, other))
    return np.asarray(np.nextafter(first, second), dtype)


@denotes("aten.ldexp.Tensor")
def ldexp(self: Array, other: Array) -> Array:
    """``self · 2^other``, of a number by an integer in one step, in the number's type.

    Else the power is rounded to float32, or to the exponent's type, first.
    """
    if is_float(self.dtype) and is_integer(other.dtype):
        wide, exponents = self.astype(np.float64), other.astype(np.int32)  # as C's function takes
        return rounded(np.ldexp(wide, exponents), self.dtype)
    powers = pointwise(np.exp2, other, dtype=floating(other))
    return pointwise(lambda a, b: a * b, self, powers)


@denotes("aten.where.self", "aten.where.ScalarSelf", "aten.where.ScalarOther", "aten.where.Scalar")
def where(condition: Array, self: Operand, other: Operand) -> Array:
    """``self[i]`` where the condition holds, else ``other[i]``; all three broadcast.

    The condition is boolean (or uint8). The result's type is that of the other two together.
    """
    if condition.dtype not in (np.bool_, np.uint8):
        raise InvalidIRError(f"a condition is bool, not {condition.dtype}")
    dtype = result_dtype(self, other)
    chosen = [
        branch.astype(dtype) if isinstance(branch, np.ndarray) else number_as(branch, dtype)
        for branch in (self, other)
    ]
    holds, first, second = broadcast_all(condition.astype(bool), *chosen)
    return np.asarray(np.where(holds, first, second))
