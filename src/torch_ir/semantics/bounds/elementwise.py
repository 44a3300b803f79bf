"""Bounds of operators that compute each element by itself."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from torch_ir.semantics.bounds.call import BoundedCall, Errors, least_normal, moduli
from torch_ir.semantics.dtypes import Array, is_complex, is_inexact, is_integer, real_of, widened
from torch_ir.semantics.dtypes import rounded as rounded_to
from torch_ir.semantics.operators.elementwise import between

ONE_ROUNDING, FUNCTION = 1, 7
GATE = 10
"""A sigmoid and the products and sums behind it."""
COMPLEX_PRODUCT, COMPLEX_FUNCTION = 5, 16
"""A complex product has two roundings in each part, more where it divides; a function several."""


def exact(call: BoundedCall) -> Errors:
    """Allow nothing: elements are moved, chosen or compared, or change their sign."""
    return [None] * len(call.results)


def ranged(call: BoundedCall) -> Errors:
    """Allow nothing; in half types ``start + i · step`` is rounded twice by vector kernels."""
    return [0.0 if call.is_narrow else None]


def shrink_gradient(call: BoundedCall) -> Errors:
    """Allow nothing; beside NaN kernels give 0 or the gradient, by their width."""
    limits = [call[name] for name in ("lambd", "min_val", "max_val") if name in call.arguments]
    is_open = np.isnan(call.wide("self")) | bool(np.isnan(limits).any())
    return [np.where(is_open, np.inf, 0.0)]


def sixths(call: BoundedCall) -> Errors:
    """Allow a product with a sixth, which kernels keep in float32, for float64 too."""
    (result,) = call.results
    return [
        (call.unit * ONE_ROUNDING + float(ml_dtypes.finfo("float32").eps) / 2) * moduli(result)
    ]


def codes(call: BoundedCall) -> Errors:
    """Allow nothing: codes are defined by their steps in float32, so that one is right.

    NaN is no integer: its code is open.
    """
    values = call.arguments.get("self", call.arguments.get("input"))
    lost = np.where(np.isnan(values), np.inf, 0.0)
    return [lost if result.shape == lost.shape else None for result in call.results]


def code_numbers(call: BoundedCall) -> Errors:
    """Allow nothing; by zero points between codes, roundings of ``(code - zero) · scale``."""
    zeros, scales, axis = call["zero_point"], call["scale"], call["axis"]
    numbers, *masks = call.results
    if not is_inexact(zeros.dtype) or call.op_type.startswith("aten._fake"):
        return [None] * len(call.results)
    shape = [-1 if dim == axis else 1 for dim in range(numbers.ndim)]
    moved = (moduli(zeros) * moduli(scales)).reshape(shape)
    return [call.unit * 2 * (moduli(numbers) + moved), *[None for _ in masks]]


def without_code(call: BoundedCall) -> list[Array]:
    """Mark what is no int64, which kernels by channels make one before they clamp it."""
    values = call.wide("self")
    shape = [-1 if dim == call["axis"] else 1 for dim in range(values.ndim)]
    scales, zeros = (call.wide(name).reshape(shape) for name in ("scale", "zero_point"))
    return [~(np.abs(values / scales + zeros) < 2.0**63) for _ in call.results]


def close(call: BoundedCall) -> Errors:
    """Leave open what is decided within roundings of the operands' type, in which kernels compare.

    The difference, ``rtol · |other|`` and its sum with ``atol`` are rounded to it.
    """
    first, second = call.wide("self"), call.wide("other")
    if not is_inexact(call["self"].dtype):
        return [None]
    info = ml_dtypes.finfo(real_of(call["self"].dtype))
    gap = np.abs(first - second)
    relative, absolute = (call.arguments.get(*p) for p in (("rtol", 1e-5), ("atol", 1e-8)))
    limit = absolute + relative * np.abs(second)
    slack = float(info.eps) * (gap + 2 * limit) + 4 * float(info.smallest_subnormal)
    near = np.abs(gap - limit) <= slack
    near |= (np.maximum(gap, limit) >= float(info.max)) & np.isfinite(gap)
    return [np.where(near & (first != second), np.inf, 0.0)]


def rounded(call: BoundedCall) -> Errors:
    """Allow one rounding: IEEE arithmetic, or a multiplication by a reciprocal.

    Of a modulus, those of a root of two squares.
    """
    if is_complex(np.asarray(call["self"]).dtype) and not is_complex(call.results[0].dtype):
        return [call.unit * 3 * moduli(result) for result in call.results]
    errors = [_relative(call, result, ONE_ROUNDING, COMPLEX_PRODUCT) for result in call.results]
    if not call.is_narrow:
        return errors
    # one integer beside a half type is kept as it is, or is infinite in that
    whole = [value for value in call.arguments.values() if _is_one_integer(value)]
    largest = max((float(moduli(value).max()) for value in whole), default=0.0)
    return [
        error if error is None else call.opened(error, largest, result.dtype)
        for error, result in zip(errors, call.results, strict=True)
    ]


def _is_one_integer(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.size == 1 and is_integer(value.dtype)


def divided(call: BoundedCall) -> Errors:
    """Allow one rounding; complex numbers are multiplied by a reciprocal, which may overflow.

    So is a number by that of its own modulus, which gives its sign.
    """
    (error,) = rounded(call)
    if error is None or not is_complex(call.results[0].dtype):
        return [error]
    sizes = call.size("other" if "other" in call.arguments else "self")
    return [call.opened(error, np.where(sizes > 0, 1 / sizes, 0))]


def least_integers(call: BoundedCall) -> Errors:
    """Allow nothing, but where the least integer of the type is given, which has no modulus."""
    (result,) = call.results
    least = np.iinfo(result.dtype).min
    if not least:
        return [None]
    is_open = (np.asarray(call["self"]) == least) | (np.asarray(call["other"]) == least)
    return [np.where(is_open, np.inf, 0.0)]


def quotient(call: BoundedCall) -> Errors:
    """Allow one rounding; of a quotient that is rounded down, the whole number that it rounds to.

    Kernels divide ``a - (a mod b)`` by ``b``, subtract 1 where signs differ, and round each step
    to the result's type. So they have the quotient, moved by at most three roundings, and take
    the nearest whole number: another one only where the quotient moves by half of 1. What is cut
    off is, in narrow types, that of the quotient in the type or in float32.
    """
    (error,) = rounded(call)
    mode = call.arguments.get("rounding_mode", "floor")
    if mode == "trunc" and error is not None and call.is_narrow:
        with np.errstate(all="ignore"):
            kept = widened(rounded_to(call.wide("self") / call.wide("other"), call.dtype))
            return [error + np.nan_to_num(np.abs(np.trunc(kept) - widened(call.results[0])))]
    if error is None or mode != "floor":
        return [error]
    sizes = np.nan_to_num(moduli(call.results[0]), nan=0.0, posinf=0.0)
    moved = 3 * call.result_unit * (sizes + 1)
    return [error + np.where(moved < 0.5, 0.0, moved + 0.5)]


def filled(call: BoundedCall) -> Errors:
    """Allow one rounding of a number, which may take another type on the way."""
    return [_rounding(call, result) for result in call.results]


def function(call: BoundedCall) -> Errors:
    """Allow 7 u · |y|: libraries promise 1 unit (SLEEF's u10), for two or three in a row."""
    return [
        _relative(call, result, FUNCTION, FUNCTION * COMPLEX_FUNCTION) for result in call.results
    ]


def scaled_exponential(call: BoundedCall) -> Errors:
    """Allow what a function may; an exponent is rounded, as its factor is, and moves a power."""
    (error,) = function(call)
    values, alpha = call.wide("self"), call.arguments.get("alpha", 1)
    scale = call.arguments.get("input_scale", 1)
    exponent = np.minimum(values, 0) * (
        1 / alpha if call.op_type == "aten.celu.default" else scale
    )
    moved = np.abs(exponent * np.exp(exponent) * alpha * call.arguments.get("scale", 1))
    return [error + 2 * call.unit * np.where(values < 0, moved, 0)]


def hyperbolic(call: BoundedCall) -> Errors:
    """Allow what a function may; half an exponential overflows where the whole one does."""
    (error,) = function(call)
    exponents = np.abs(np.real(call.wide("self")))
    most = np.log(float(ml_dtypes.finfo(real_of(call.dtype)).max))
    is_open = (exponents >= most) & (exponents < most + 1)  # the result is e times the largest
    return [np.where(is_open, np.inf, error)]


def hardswish(call: BoundedCall) -> Errors:
    """Allow what a function may; it is divided by 6 at its end."""
    (error,) = function(call)
    return [call.opened(error, 6 * np.maximum(call.wide("self"), 0))]


def remains(call: BoundedCall) -> Errors:
    """Allow one rounding, none where the sign is the operand's; open where quotients overflow."""
    is_exact = call.op_type in ("aten.fmod.Scalar", "aten.fmod.Tensor")
    (error,) = exact(call) if is_exact else rounded(call)
    if not is_inexact(call.results[0].dtype):
        return [None]
    first, second = call.size("self"), call.size("other")
    return [call.opened(0.0 if error is None else error, np.where(second > 0, first / second, 0))]


def mish(call: BoundedCall) -> Errors:
    """Allow what a function may; ``x`` multiplies ``e^x``, which may be 0 below normal numbers."""
    (error,) = function(call)
    return [error + least_normal(call.dtype) * np.nan_to_num(call.size("self"), posinf=0.0)]


def power(call: BoundedCall) -> Errors:
    """Allow what a function may; of a complex power, the roundings of ``exponent · ln base`` too.

    The real part of that product grows the power, the imaginary one turns it.
    """
    (error,) = function(call)
    (result,) = call.results
    if call.op_type == "aten.ldexp.Tensor":  # the power is rounded, to either of two neighbors
        least = float(ml_dtypes.finfo(real_of(result.dtype)).smallest_subnormal)
        lost = least * np.nan_to_num(call.size("self"), posinf=0.0)
        error = error + 2 * call.result_unit * moduli(result) + lost
    if not is_complex(result.dtype):
        return [error]
    base: Any = call.wide("self") if "pow" in call.op_type else 2.0
    exponent = "exponent" if "exponent" in call.arguments else "other"
    sizes = call.size(exponent if exponent in call.arguments else "self")
    logs = np.abs(np.log(np.asarray(base, "complex128")))
    turned = np.nan_to_num(sizes * (logs + 1), nan=0.0, posinf=np.inf)
    moved = error + call.unit * 2 * turned * moduli(result)
    return [np.where(base == 0, np.inf, moved)]  # of 0 kernels in vectors take the logarithm


def of_infinite_base(call: BoundedCall) -> list[Array] | None:
    """Mark complex powers of what is not finite: kernels multiply, divide or take a logarithm."""
    (result,) = call.results
    base = call["self"]
    if not is_complex(result.dtype) or np.isfinite(base).all():
        return None
    return [np.broadcast_to(~np.isfinite(base), result.shape)]


def sigmoid(call: BoundedCall) -> Errors:
    """Allow what a function may; where ``e^-x`` overflows, the quotient may as well be 0.

    Of complex numbers it is open there, as infinities are divided.
    """
    (error,) = function(call)
    (result,) = call.results
    exponents = call.wide("self")
    if call.op_type == "aten.glu.default":
        exponents = np.split(exponents, 2, call["dim"] if call["dim"] is not None else -1)[1]
    open_at = call.opened(0.0, np.exp(-np.real(exponents)))
    if is_complex(result.dtype):
        return [error + open_at]
    return [error + np.where(open_at > 0, moduli(result), 0)]


def erf(call: BoundedCall) -> Errors:
    """Allow what any function may; of half types ``1 - P e^(-x²)``, off by 1.5e-7 and roundings.

    Source: Abramowitz and Stegun 7.1.26, which torch's vectorized kernel computes in float32.
    """
    (error,) = function(call)
    return [error + 6 * call.unit if call.is_narrow else error]


def _rounding(call: BoundedCall, result: Array) -> Any:
    return call.unit * moduli(result) if is_inexact(result.dtype) else None


def _relative(call: BoundedCall, result: Array, count: float, complex_count: float) -> Any:
    if not is_inexact(result.dtype):
        return None
    sizes = moduli(result)
    if not is_complex(result.dtype):
        return call.unit * count * sizes
    squares = np.zeros(result.shape)
    for operand in [moduli(a) for a in call.arguments.values() if _is_number(a)]:
        finite = np.where(np.isfinite(operand), operand, 0)
        pairs = zip(reversed(finite.shape), reversed(result.shape), strict=False)
        is_beside = finite.ndim <= result.ndim and all(n in (1, size) for n, size in pairs)
        squares = np.maximum(squares, finite**2 if is_beside else finite.max(initial=0) ** 2)
    return call.opened(call.unit * complex_count * sizes, squares)


def _is_number(value: Any) -> bool:
    return isinstance(value, np.ndarray | float | complex)


def sum_of_two(call: BoundedCall) -> Errors:
    """Allow one rounding; where ``alpha`` is not 1, ``alpha · other`` is rounded before."""
    (result,) = call.results
    alpha = call.arguments.get("alpha", 1)
    error = _rounding(call, result)
    if error is None:
        return [None]
    is_number = not isinstance(call["other"], np.ndarray)
    is_reversed = call.op_type in ("aten.rsub.Tensor", "aten.rsub.Scalar")
    scaled = call.size("self" if is_reversed else "other") * abs(alpha)
    if alpha != 1:
        error = error + call.unit * 2 * scaled
    if call.is_narrow and (alpha != 1 or is_number):  # rounded to the type by itself
        error = error + call.result_unit * (scaled + is_number * call.size("other") * abs(alpha))
    return [error]


def rectified_sum(call: BoundedCall) -> Errors:
    """Bound as :func:`sum_of_two`; NaN is 0 or stays, by where an element lies in memory."""
    (error,) = sum_of_two(call)
    if error is None:
        return [None]
    alpha = call.arguments.get("alpha", 1)
    total = widened(np.asarray(call["self"])) + alpha * widened(np.asarray(call["other"]))
    return [np.where(np.isnan(total), np.inf, error)]


def gate_moves(call: BoundedCall) -> Errors:
    """Bound what ``a · σ(b)``, or its gradient, moves by: ``c · u · Σ |terms|`` at each element.

    Kernels subtract ``σ · x`` from x where ``1 - σ`` is meant, and σ below the normal numbers may
    be 0. A complex σ is off by ``1 - σ`` times as much, as it has poles.
    """
    (result,) = call.results
    place = call["dim"] % result.ndim
    (a, b), (da, db) = (np.split(call.wide(name), 2, place) for name in ("x", "dx"))
    gate, a, da, db = 1 / (1 + np.exp(-b)), np.abs(a), np.abs(da), np.abs(db)
    rest, count = 2.0, GATE
    if is_complex(result.dtype):
        rest, count = 1 + np.abs(gate), GATE * COMPLEX_PRODUCT
        is_open = np.exp(np.abs(np.real(b))) > float(np.finfo(real_of(result.dtype)).max)
        gate = np.where(is_open, np.inf, np.abs(gate) * (1 + np.abs(1 - gate)))
    if "glu" in call.arguments:
        terms, lost = gate * da + 2 * call.size("glu") * db, da
        error = call.unit * GATE * terms + least_normal(call.dtype) * lost
        return [call.opened(error, terms)]
    gated = np.split(call.size("grad_x"), 2, place)[0]
    first = call.size("dgrad_glu") * gate + rest * gated * db
    second = rest * first * a + rest * gated * (da + a * gate * db)
    terms, given = np.concatenate([first, second], place), call.size("dgrad_glu")
    lost = np.concatenate([given, rest * given * a + rest * gated * a * db], place)
    error = call.stepped(count, terms) + least_normal(call.dtype) * lost  # of several kernels
    return [call.opened(error, terms, result.dtype)]


def added(call: BoundedCall) -> Errors:
    """Allow what is added at an element: ``c · u · Σ |terms|`` there.

    Below the normal numbers ``value · tensor1`` is off by half of the least one, however small it
    is, and by as much more as it is divided by less.
    """
    (result,) = call.results
    if not is_inexact(result.dtype):
        return [None]
    value = abs(call.arguments.get("value", 1))
    first, second = call.size("tensor1"), call.size("tensor2")
    term = first / second if call.op_type == "aten.addcdiv.default" else first * second
    terms = call.size("self") + value * term
    count = 4 * (COMPLEX_PRODUCT if is_complex(result.dtype) else 1)
    by = second
    if call.op_type == "aten.addcdiv.default":
        terms = np.where(second == 0, 0, terms)  # infinite, which is no overflow
        by = np.where(second == 0, 0, 1 / second)
    error = call.unit * count * terms
    if is_complex(result.dtype):  # divided by multiplying with a reciprocal
        error = call.opened(error, by if call.op_type == "aten.addcdiv.default" else 0)
    is_lost = (value != 1) & (value * first < least_normal(call.dtype))
    least = float(ml_dtypes.finfo(call.dtype).smallest_subnormal)
    return [
        call.opened(error + np.where(is_lost, least * by, 0), np.maximum(terms, first * value))
    ]


def crossed(call: BoundedCall) -> Errors:
    """Allow two products and their difference, each rounded to the result's own type."""
    (result,) = call.results
    if not is_inexact(result.dtype):
        return [None]
    first, second = np.broadcast_arrays(call.size("self"), call.size("other"))
    dim = call["dim"]
    if dim is None:
        dim = -1 if call.op_type.startswith("aten.linalg") else np.shape(call["self"]).index(3)
    sides = [np.roll(a, -by, dim) for a in (first, second) for by in (1, 2)]
    terms = sides[0] * sides[3] + sides[1] * sides[2]
    count = 2 * (COMPLEX_PRODUCT if is_complex(result.dtype) else 1)
    return [call.opened(call.stepped(count, terms), terms, result.dtype)]


def searched(call: BoundedCall) -> Errors:
    """Allow nothing; where edges are in no order, as with NaN among them, all is open."""
    edges = call.arguments.get("sorted_sequence", call.arguments.get("boundaries"))
    order = call.arguments.get("sorter")
    edges = edges if order is None else np.take_along_axis(edges, order, -1)
    lost = ~np.all(edges[..., 1:] >= edges[..., :-1], axis=-1, keepdims=edges.ndim > 1)
    return [np.where(lost, np.inf, 0.0)]


def lerp(call: BoundedCall) -> Errors:
    """Allow ``self + w · (end - self)``, and ``end - (1 - w) · (end - self)``.

    Source: torch takes the second from a weight of ½ on. The weighed sum of both is allowed, too.
    """
    (result,) = call.results
    weight = widened(np.asarray(call["weight"]))
    first, second, rest = call.size("self"), call.size("end"), np.abs(1 - weight)
    factor = np.maximum(np.abs(weight), rest)
    apart = factor * np.abs(call.wide("end") - call.wide("self"))
    terms = np.maximum(3 * apart, 2 * rest * first + np.abs(weight) * second) + moduli(result)
    scale = COMPLEX_PRODUCT if is_complex(result.dtype) else 1
    way = np.maximum(factor, 1) * (first + second)  # their difference, before it is weighted
    return [call.opened(call.unit * scale * terms, way)]


def gelu(call: BoundedCall) -> Errors:
    """Allow ``½ x (1 + erf(x / √2))``: where the sum cancels, what is added still is rounded.

    torch's vectorized erf is ``1 - p(t) e^(-x²)`` of Abramowitz and Stegun (7.1.26), whatever x is
    off by 1.5e-7 (2.5 units), half of that times x here, and by the roundings of what is taken
    from 1, which fades with erfc: half of it times x is the smaller of ``|y|`` and ``|x| - |y|``.
    On processors with AVX-512 it calls oneDNN, whose polynomials are good to 5.7 units of x
    between 2 and 5, and better elsewhere (measured at 14 million numbers).
    """
    (result,) = call.results
    sizes, made = call.size("self"), moduli(result)
    if call["approximate"] == "tanh":
        return [call.opened(call.unit * (4 * made + 1.5 * sizes), sizes**3)]
    with np.errstate(invalid="ignore"):
        taken = np.minimum(made, np.abs(sizes - made))
        erf = np.where((sizes >= 2) & (sizes <= 5), 6, 1.55)
    return [call.opened(call.unit * (2 * made + erf * sizes + 8 * taken), 2 * sizes)]


def round_decimals(call: BoundedCall) -> Errors:
    """Allow the next number of so many decimals by a tie, which ``self · 10ᵈ`` is rounded to."""
    (result,) = call.results
    decimals = call["decimals"]
    if not decimals or not is_inexact(result.dtype):
        return [None]
    scale = 10.0 ** abs(decimals)
    scaled = call.wide("self") * scale if decimals > 0 else call.wide("self") / scale
    with np.errstate(all="ignore"):
        is_near = np.abs(scaled - np.floor(scaled) - 0.5) <= 2 * call.unit * np.abs(scaled)
    step = 1 / scale if decimals > 0 else scale
    error = np.where(is_near, step + 2 * call.result_unit * moduli(result), 0)
    return [call.opened(error, scaled)]


def softplus(call: BoundedCall) -> Errors:
    """Bound ``ln(1 + e^(beta · x)) / beta``: the rounded exponent, by its slope, e^ and ln(1 + …).

    The value past the threshold is allowed too, where ``beta · x`` may be rounded to there.
    """
    (result,) = call.results
    beta, threshold = call.arguments.get("beta", 1), call.arguments.get("threshold", 20)
    exponents = call.size("self") * abs(beta)
    x = call.wide("self")
    with np.errstate(all="ignore"):
        slope = np.nan_to_num(1 / (1 + np.exp(-x * beta)))
        turned = np.where(np.isfinite(x), np.abs(x), 0) * slope
        error = call.unit * (4 * moduli(result) + turned)
        step = np.abs(np.logaddexp(0, x * beta) / beta - x)
        is_near = np.abs(x * beta - threshold) <= 4 * call.unit * exponents
    return [error + np.where(is_near & np.isfinite(step), step, 0)]


def logit(call: BoundedCall) -> Errors:
    """Bound ``ln(x / (1 - x))``: the quotient's relative error is the logarithm's absolute one.

    By 0 the logarithm of what is near 1 is relative: ``1 - x`` of x from ½ on is exact, and half
    types round the difference and the quotient as they do, which is computed here.
    """
    (result,) = call.results
    x, eps = call.wide("self"), call["eps"]
    inside = between(x, eps, result.dtype)
    error = call.unit * (4 * moduli(result) + np.where(inside >= 0.5, 2, 3))
    if call.is_narrow:
        rest = rounded_to(1 - inside, result.dtype).astype("float64")
        quotient = rounded_to(rounded_to(inside, result.dtype) / rest, result.dtype)
        stepped = np.log(quotient.astype("float64"))
        off = np.abs(stepped - call.meant()[0])
        error = error + np.where(np.isfinite(off), off, call.result_unit * 3)
    if eps and 0 < eps < 1:  # 1 - eps is rounded
        error = error + call.unit / min(eps, 1 - eps) * (x > 1 - 2 * eps)
    return [error]


def sinc(call: BoundedCall) -> Errors:
    """Bound ``sin(πx) / (πx)``: πx is rounded, by which the sine is off by u·πx at worst."""
    (result,) = call.results
    steep = COMPLEX_FUNCTION if is_complex(result.dtype) else 1
    growth = np.cosh(np.pi * np.imag(call.wide("self"))) if steep > 1 else 1.0
    way = np.maximum(growth, np.pi * call.size("self"))
    return [call.opened(call.unit * 4 * steep * (moduli(result) + growth), way)]


def log_gamma(call: BoundedCall) -> Errors:
    """Bound by 1 what is 0 at 1 and 2, and by ``x ln |x|`` where it is reflected, below 0.

    It is open where that overflows, though the result does not.
    """
    (result,) = call.results
    wide = call.wide("self")
    finite = np.where(np.isfinite(wide), np.abs(wide), 0)
    product = finite * np.log1p(finite)
    error = call.unit * 8 * (moduli(result) + 1 + np.where(wide < 0, product, 0))
    return [call.opened(error, product)]


def log_of_two(call: BoundedCall) -> Errors:
    """Bound ``max + ln(1 + e^(min - max))``, which is 0 where the two cancel."""
    (result,) = call.results
    first, second = call.wide("self"), call.wide("other")
    sizes = np.maximum(np.abs(first), np.abs(second))
    if is_complex(result.dtype):
        error = call.unit * 8 * (moduli(result) + turned_by(first, second))
        return [np.where(is_lost(call, first, second), np.inf, error)]
    peak = np.minimum(sizes, np.abs(np.maximum(np.real(first), np.real(second))) + 1)
    return [call.unit * 4 * (moduli(result) + peak)]


def is_lost(call: BoundedCall, first: Array, second: Array) -> Array:
    """Whether ``e^(low - high)`` is below the normal numbers: kernels may make it NaN."""
    apart = -np.abs(np.real(first) - np.real(second))
    return np.isfinite(apart) & (np.exp(apart) < least_normal(call.dtype))


def turned_by(first: Array, second: Array) -> Array:
    """How far ``ln(1 + w)``, ``w = e^(low - high)``, is off by its exponent, in units."""
    sizes = np.abs(first) + np.abs(second)
    apart = np.where(first.real < second.real, first - second, second - first)
    power = np.exp(apart)
    rest = np.abs(1 + power)
    return np.nan_to_num(sizes + np.abs(power) * (sizes + 2) / rest, nan=0.0, posinf=np.inf)


def linspace(call: BoundedCall) -> Errors:
    """Bound ``start + i · step`` from the nearer end: both ends' roundings, and the step's."""
    (result,) = call.results
    if not is_inexact(result.dtype):
        return [None]
    ends = max(float(moduli(call[name])) for name in ("start", "end"))
    step = 2 * call.result_unit if call.is_narrow else 0  # rounded to the type
    return [(call.unit * 4 + step) * ends]
