"""Bounds of special functions, by how kernels approximate them.

Where torch's approximation itself is worse than float64, what it lacks is added in every type.
"""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np

from torch_ir.semantics.bounds.call import BoundedCall, Errors, moduli
from torch_ir.semantics.dtypes import Array
from torch_ir.semantics.operators.polynomials import RECURRENCES, by_recurrence
from torch_ir.semantics.operators.special_functions import LEAST, zeta

_LACKING = {
    "j0": (500, 1.74e5, 4.84e7, 1.12e10, 2.11e12, 3.11e14, 3.18e16, 1.71e18),
    "j1": (621, 2.57e5, 8.35e7, 2.22e10, 4.75e12, 7.84e14, 8.95e16, 5.32e18),
    "y0": (1041, 6.26e5, 2.69e8, 8.64e10, 2.03e13, 3.17e15, 2.51e17),
    "y1": (594, 2.36e5, 7.35e7, 1.88e10, 3.88e12, 6.21e14, 6.87e16, 3.97e18),
    "far 0": (64.3, 856, 3880, 7240, 5930, 2060, 242),
    "far 1": (74.7, 1060, 4980, 9560, 8000, 2830, 336),
    "airy even": (13.4, 32.7, 26.7, 9.19, 1.48, 0.116, 4.40e-3, 7.55e-5, 4.52e-7),
    "airy odd": (
        *(9.31, 19.8, 15.6, 5.48, 0.954, 0.0865, 4.13e-3, 1.01e-4, 1.17e-6),
        4.92e-9,
    ),
}
"""Denominators of torch's approximations by polynomials, which Cephes has with a first coefficient
of 1. torch begins them with 0, so that what it computes is off in any type, by 4e-7 at 5."""
NEAR, AIRY_NEAR = 5.0, 2.09
"""Where polynomials of x² end, and power series."""
SERIES_OF_I = 8.0
"""The same of modified Bessel functions."""
_ZEROS = 723
"""The squares of the first zeros of J₁, multiplied: by them x times a small quotient is multiplied
last, with the rounding of what may be below the normal numbers."""
_PI = 3e-8
"""What π is off by in float32, which torch's incomplete gamma functions take in every type."""


def _lacked(name: str, power: Array) -> Array:
    """What a quotient grows by, relatively, as its denominator lacks the highest power."""
    return np.asarray(power ** len(_LACKING[name]) / np.polyval(_LACKING[name], power))


def waves(call: BoundedCall) -> Errors:
    """Bound J and Y by what they are made of, and their waves by a rounded phase of size x.

    What torch's denominators lack is added. A wave is off by no more than its height, twice; an
    infinite phase has no cosine: 0, which it means, is NaN of some kernels.
    """
    (result,) = call.results
    name, x, sizes = call.op_type.split(".")[1][-2:], call.size("self"), moduli(result)
    order = int(name[1])
    t = np.clip(x, LEAST, NEAR)
    if name[0] == "j":
        least = float(ml_dtypes.finfo(call.dtype).smallest_subnormal)
        near = call.unit * 8 * np.minimum(t, 1) ** order + sizes * _lacked(name, t * t)
        near = near + least * _ZEROS * order
    else:
        parts = np.abs(np.log(t)) * np.minimum(t / 2, 1) ** order
        near = call.unit * 8 * (parts + order * (t > 1)) + call.unit * 8 / t**order
        lost = (sizes + parts + order / t) * _lacked(name, t * t)
        near = near + lost + parts * _lacked(f"j{order}", t * t)
        near = np.where(x > 0, call.opened(near, 1 / t**order), near)
    far = np.maximum(np.where(np.isfinite(x), x, NEAR), NEAR)
    height = math.sqrt(2 / math.pi) / np.sqrt(far)
    part = (1 + 2 * order) / (8 * far) * _lacked(f"far {order}", (NEAR / far) ** 2)
    wave = height * np.minimum(call.unit * (8 + 2 * far) + part, 2)
    return [np.where(np.isinf(x), np.inf, np.where(x <= NEAR, near, wave))]


def airy(call: BoundedCall) -> Errors:
    """Bound Ai relative to the result with its rounded exponent; below 0 as :func:`waves`."""
    (result,) = call.results
    x = call.wide("x")
    far = np.maximum(np.abs(x), AIRY_NEAR)
    zeta = 2 / 3 * far**1.5
    z = 1 / zeta
    height = 1 / np.sqrt(math.pi * np.sqrt(far))
    part = 0.0371 * z**2 * _lacked("airy even", z * z) + 0.0694 * z * _lacked("airy odd", z * z)
    wave = height * np.minimum(call.unit * (8 + 4 * zeta) + part, 2)
    error = np.where(
        x < 0, call.opened(wave, 2 * far**1.5), call.unit * (8 + 4 * zeta) * moduli(result)
    )
    error = np.where(np.abs(x) < AIRY_NEAR, call.unit * 16, error)
    return [np.where(np.isinf(x), np.inf, error)]


def grown(call: BoundedCall) -> Errors:
    """Bound modified Bessel functions relative to the result: a series, an exponential, a root.

    The exponent is the operand itself, which nothing rounds. Where the exponential overflows the
    result is open. Up to 8 torch adds Chebyshev's polynomials up to what ``e^(−|x|) I(x)`` is of
    what it is by 0, 1 or ``x / 2``: coefficients of both signs, whose roundings stay.
    """
    (result,) = call.results
    scaled = "scaled" in call.op_type or call.op_type.endswith("e.default")
    x = call.size("x" if "x" in call.arguments else "self")
    error = call.unit * 16 * moduli(result)
    if "_k" in call.op_type:
        error = error + _halved(call, x, _order(call))
    else:
        grows = 1.0 if scaled else np.exp(np.minimum(x, SERIES_OF_I))
        first = grows * (x / 2 if _order(call) else 1.0)
        added = np.where(x <= SERIES_OF_I, first, moduli(result))
        error = call.unit * (8 * moduli(result) + added)
    if scaled and call.is_narrow:  # some kernels compute in a narrow type itself
        return [error + call.result_unit * 8 * moduli(result)]
    if scaled:
        return [error]
    return [call.opened(error, np.exp(x))]


def _order(call: BoundedCall) -> int:
    return int("1" in call.op_type)


def _halved(call: BoundedCall, x: Array, order: int) -> Array:
    """What the logarithm of x / 2 is off where that is no number of the type: all, where it is 0.

    K₁ takes it times x / 2.
    """
    info = np.finfo(call.dtype)
    is_inexact = (x > 0) & (x < 2 * float(info.smallest_normal))
    part = np.where(is_inexact, float(info.smallest_subnormal) / x, 0)
    off = -np.log1p(-np.minimum(part, 1))
    return np.where(np.isinf(off), off, 0) if order else off


def digamma(call: BoundedCall) -> Errors:
    """Bound by 1 what is 0 near 1.46; where it is reflected ``π / tan πr``, by a rounded πr.

    r is the operand's fraction, which is exact. In float32, too, torch takes that in float64.
    """
    (result,) = call.results
    sizes = np.nan_to_num(moduli(result), posinf=0.0)
    part, _ = np.modf(call.wide("self"))
    with np.errstate(all="ignore"):
        turned = np.abs(part) * (math.pi / np.sin(math.pi * part)) ** 2
    reflected = np.where((part < 0) & np.isfinite(turned), turned, 0)
    error = call.unit * 8 * (sizes + 2)
    return [error + (call.unit * 2 * reflected if call.dtype == np.float64 else 0)]


def quantile(call: BoundedCall) -> Errors:
    """Bound the quantile by 1 where it is 0, at ½."""
    (result,) = call.results
    return [call.unit * 4 * (moduli(result) + 1)]


def erfcx(call: BoundedCall) -> Errors:
    """Bound relative to the result: below 0 the exponent x² is rounded."""
    (result,) = call.results
    x = call.wide("self")
    return [call.unit * (8 + 2 * np.where(x < 0, np.minimum(x * x, 1e3), 0)) * moduli(result)]


def log_ndtr(call: BoundedCall) -> Errors:
    """Bound relative to the result: above 0 the exponent of the rest is rounded."""
    (result,) = call.results
    x = call.wide("self")
    least = float(np.finfo(call.dtype).smallest_normal)
    roundings = (
        4 if call.dtype == np.float64 else 2
    )  # of x / √2, and its square; the meaning's too
    rest = np.where(x > 0, roundings * np.minimum(x * x, 1e3), 0)
    return [call.unit * (8 + rest) * moduli(result) + 2 * least]


def zetas(call: BoundedCall) -> Errors:
    """Bound a sum of powers by their moduli, which below 0 are of both signs.

    Kernels add ``q · q⁻ˢ / (s − 1)`` as the rest, in float64: of an infinite q that is no number,
    and the power may be less than numbers are. Of a sum that is 0 they compute the rest of the
    rest, too, whose 24 factors may overflow: it is open.
    """
    (result,) = call.results
    order, x = (
        (float(call["n"] + 1), call.wide("self"))
        if "n" in call.arguments
        else (call.wide("self"), call.wide("other"))
    )
    sizes = np.nan_to_num(moduli(result), posinf=0.0)
    part = x - np.floor(x)
    both = zeta(order, np.where(x < 0, part, 1.0)) + zeta(order, np.where(x < 0, 1 - part, 1.0))
    terms = np.where((x < 0) & np.isfinite(both), both, 0)
    lost = LEAST * np.abs(x) / np.maximum(order - 1, LEAST)
    if "n" not in call.arguments:
        largest = float(np.finfo(call.dtype).max)
        is_open = (result == 0) & ((order**24 >= largest) | np.isinf(x))
        return [np.where(is_open, np.inf, call.unit * 8 * (sizes + terms) + lost)]
    factorial = np.exp(math.lgamma(call["n"] + 1))
    if call["n"] == 0:
        return digamma(call)
    if call["n"] == 1:
        # π² / sin² πx, of a rounded πx: no pole; a series from 6 on ends before x⁻⁹ / 30
        steep = np.where(x < 0.5, 2 * math.pi * np.abs(x) * sizes**1.5, 0)
        rest = (np.maximum(x, 1 - x) + 6) ** -9.0 / 30
        is_pole = (x <= 0) & (part == 0)
        return [np.where(is_pole, np.inf, call.unit * (8 * sizes + 4 * steep) + rest)]
    steps = 8 + math.lgamma(call["n"] + 1)  # n! as an exponential
    error = call.unit * steps * (sizes + terms * factorial) + lost * factorial
    if call.is_narrow:  # the sum is rounded to the type, and then n! times as large
        error = error + factorial * call.stepped(1, sizes / factorial)
    is_open = (result == 0) & np.isinf(x)
    return [np.where(is_open, np.inf, call.opened(error, factorial))]


def incomplete_gamma(call: BoundedCall) -> Errors:
    """Bound by the exponent ``a ln x − x − ln Γ(a)``, and by 1 where it is what is left to 1.

    Near the order torch adds a series times ``e^(a − x) (x / a)ᵃ / √(2πa)``, about ⅓, to what is
    exact; its π is one of float32.

    Operands below normal numbers may be taken for 0, at which it is 0 or 1.
    """
    (result,) = call.results
    order, x = np.broadcast_arrays(call.size("self"), call.size("other"))
    gamma = np.vectorize(_log_gamma, otypes=[np.float64])
    exponent: Array = order * np.abs(np.log(np.where(x > 0, x, 1))) + x + np.abs(gamma(order))
    sizes = moduli(result)
    steps = 40 / np.maximum(x, 1)  # roundings that are left of a continued fraction
    relative = call.unit * (8 + 4 * np.nan_to_num(exponent, posinf=0.0) + steps)
    is_rest = (
        x < np.maximum(order + 1, 1.1) if "igammac" in call.op_type else (x > order) & (x > 1)
    )
    near = np.abs(x - order) / order < 1.001 * np.where(order <= 200, 0.3, 4.5 / np.sqrt(order))
    peak = np.exp(order - x + order * np.log(x / order)) / np.sqrt(2 * math.pi * order)
    series = np.where((order >= 20) & near, _PI / 4 * peak, 0)
    least = float(np.finfo(call.dtype).smallest_normal)
    lost = ((order < least) & (order > 0)) | ((x < least) & (x > 0))
    error = np.where(lost, 1.0, relative * np.where(is_rest, 1, sizes) + series)
    is_number = np.isfinite(order) & np.isfinite(x)
    return [np.where(is_number, call.opened(error, exponent), error)]


def _log_gamma(x: float) -> float:
    try:
        return math.lgamma(x) if 0 < x < math.inf else 0.0
    except OverflowError:
        return math.inf


def polynomial(call: BoundedCall) -> Errors:
    """Bound by the recurrence at moduli; Chebyshev's by what an angle's rounding does.

    Those are at most 1 (n, of the other kinds) in [-1, 1], and steeper by n² at its ends.
    """
    (result,) = call.results
    name = call.op_type.split(".")[1].removeprefix("special_")
    wanted = call.wide("n")
    is_taken = (wanted < 2.0**63) & ~np.isnan(result)  # of other degrees they are 0 or NaN
    degrees = np.where(is_taken, np.maximum(np.trunc(wanted), 0), 0)
    if "chebyshev" in name:
        largest = np.maximum(moduli(result), 1 if name.endswith("t") else degrees + 1)
        return [call.unit * 4 * (degrees + 1) ** 2 * largest]
    _, step, _ = RECURRENCES[name]
    x, degrees = np.broadcast_arrays(call.size("x"), degrees)

    def added(x: Array) -> Array:
        """The recurrence at moduli, so turned that all are added."""
        first = {"hermite_polynomial_h": 2 * x, "laguerre_polynomial_l": 1 + x}.get(name, x)
        turned = -x if name.startswith("laguerre") else x
        made = by_recurrence(
            lambda _: first, lambda k, v, p, q: step(k, v, p, -q), turned, degrees
        )
        return np.abs(made)

    # at 0 every other polynomial on the way is greater than the last
    way = added(np.maximum(x, 1)) * (2 * degrees + 1 + x)
    return [call.opened(call.unit * 2 * (degrees + 2) * added(x), way)]


def unwritten(call: BoundedCall) -> list[Array]:
    """Mark polynomials of NaN from degree 2 on: torch returns what nothing has written."""
    return [np.isnan(call.wide("x")) & (call.wide("n") >= 2)]


def window(call: BoundedCall) -> Errors:
    """Bound sums of cosines, and lines, by what is added; each step rounds in the type."""
    alpha, beta = (abs(call.arguments.get(name, 0.55)) for name in ("alpha", "beta"))
    return [call.result_unit * 2 * (alpha + beta * (1 + 4 * np.pi))]


def kaiser(call: BoundedCall) -> Errors:
    """Bound ``I₀(β √s)``, whose slope by s is at most β² / 4 of it, and s is off by 4 u.

    Places are counted in the type, which does not hold all of them in 16 bits.
    """
    beta, (result,) = abs(call.arguments.get("beta", 12.0)), call.results
    places = call.result_unit if result.size * call.result_unit > 1 / 2 else 0.0
    relative = call.unit * (beta**2 + 2 * beta + 16) + places * beta**2
    return [relative * moduli(result)]


def frequencies(call: BoundedCall) -> Errors:
    """Bound a quotient of two rounded numbers, in the type."""
    return [call.result_unit * 4 * moduli(call.results[0])]
