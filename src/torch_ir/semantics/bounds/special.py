"""Bounds of special functions, by how kernels approximate them.

Several kernels of torch hold in every type what is good enough for float32; of these the unit is
float32's at least, and the reason is beside it.
"""

from __future__ import annotations

import math

import numpy as np

from torch_ir.semantics.bounds.call import BoundedCall, Errors, moduli
from torch_ir.semantics.dtypes import Array
from torch_ir.semantics.operators.polynomials import RECURRENCES, by_recurrence
from torch_ir.semantics.operators.special_functions import zeta

SINGLE = 2.0**-24
COARSE = 4e-9
"""What torch's trigamma and incomplete gamma functions are off by in float64, relatively."""


def waves(call: BoundedCall) -> Errors:
    """Bound J, Y and Ai: in every type off by 7e-7 from 5 on, and by the roundings of a phase."""
    (result,) = call.results
    x = call.size("x" if "x" in call.arguments else "self")
    phase, count = (x**1.5, 64) if "airy" in call.op_type else (np.sqrt(x), 16)
    rounded = call.unit * 2 * np.nan_to_num(phase, posinf=0.0)
    return [max(SINGLE, call.unit) * count * (moduli(result) + 1) + rounded]


def grown(call: BoundedCall) -> Errors:
    """Bound modified Bessel functions relative to the result, with the rounded exponential.

    Where that overflows the result is open.
    """
    (result,) = call.results
    scaled = "scaled" in call.op_type or call.op_type.endswith("e.default")
    if scaled:  # some kernels compute in a narrow type itself
        return [(call.unit * 16 + call.is_narrow * call.result_unit * 8) * moduli(result)]
    error = call.unit * (16 + np.minimum(call.size("self"), 1e3)) * moduli(result)
    return [call.opened(error, np.exp(call.size("self")))]


def digamma(call: BoundedCall) -> Errors:
    """Bound by 1 what is 0 near 1.46, and by the square where it is reflected, near poles."""
    (result,) = call.results
    sizes = np.nan_to_num(moduli(result), posinf=0.0)
    reflected = np.where(call.wide("self") < 0, sizes**2, 0)
    return [call.unit * 8 * (sizes + 2 + reflected)]


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
    """Bound a sum of powers by their moduli, which below 0 are of both signs."""
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
    if "n" not in call.arguments:
        return [call.unit * 8 * (sizes + terms)]
    terms = terms * math.factorial(min(call["n"], 150))
    if call["n"] == 0:
        return digamma(call)
    if call["n"] == 1:  # π² / sin² πx, of a rounded πx
        steep = np.where(x < 0.5, 2 * math.pi * np.abs(x) * sizes**1.5, 0)
        return [(call.unit * 8 + COARSE) * (sizes + 1) + call.unit * 4 * steep]
    return [call.unit * 8 * (sizes + terms)]


def incomplete_gamma(call: BoundedCall) -> Errors:
    """Bound by the exponent ``a ln x − x − ln Γ(a)``, and by 1 where it is what is left to 1.

    Operands below normal numbers may be taken for 0, at which it is 0 or 1.
    """
    (result,) = call.results
    order, x = np.broadcast_arrays(call.size("self"), call.size("other"))
    gamma = np.vectorize(_log_gamma, otypes=[np.float64])
    exponent: Array = order * np.abs(np.log(np.where(x > 0, x, 1))) + x + np.abs(gamma(order))
    sizes = moduli(result)
    relative = call.unit * 4 * (2 + np.nan_to_num(exponent, posinf=0.0)) + COARSE
    least = float(np.finfo(call.dtype).smallest_normal)
    lost = ((order < least) & (order > 0)) | ((x < least) & (x > 0))
    return [np.where(lost, 1.0, relative * sizes + call.unit * 8)]


def _log_gamma(x: float) -> float:
    return math.lgamma(x) if 0 < x < 1e300 else 0.0


def polynomial(call: BoundedCall) -> Errors:
    """Bound by the recurrence at moduli; Chebyshev's by what an angle's rounding does.

    Those are at most 1 (n, of the other kinds) in [-1, 1], and steeper by n² at its ends.
    """
    (result,) = call.results
    name = call.op_type.split(".")[1].removeprefix("special_")
    degrees = np.maximum(np.trunc(call.wide("n")), 0)
    if "chebyshev" in name:
        largest = np.maximum(moduli(result), 1 if name.endswith("t") else degrees + 1)
        return [call.unit * 4 * (degrees + 1) ** 2 * largest]
    _, step, _ = RECURRENCES[name]
    x, degrees = np.broadcast_arrays(call.size("x"), degrees)
    first = {"hermite_polynomial_h": 2 * x, "laguerre_polynomial_l": 1 + x}.get(name, x)
    turned = -x if name.startswith("laguerre") else x  # so that moduli are added
    added = by_recurrence(lambda _: first, lambda k, v, p, q: step(k, v, p, -q), turned, degrees)
    way = np.abs(added) * (2 * degrees + 1 + x)
    return [call.opened(call.unit * 2 * (degrees + 2) * np.abs(added), way)]
