"""Functions of one number: signs, roundings, roots, exponentials, angles.

Where nothing else is said, integers and booleans are taken as float32, and the result has the
operand's floating-point or complex type. NaN gives NaN. Source of all, unless it is named: the
operator's page in torch's documentation, and C99 Annex F (for complex numbers: Annex G) for
special values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.dtypes import Array, is_bool, is_complex, is_inexact, real_of, rounded
from torch_ir.semantics.operators.complex_numbers import log_of_one_and
from torch_ir.semantics.pointwise import (
    floating,
    is_number,
    is_real,
    is_real_number,
    pointwise,
    require_type,
    whole,
)
from torch_ir.semantics.registry import declare, denotes


def _floating(function: Callable[[Array], Any], values: Array) -> Array:
    """The function of each element, in the operand's floating-point type, or float32."""
    return pointwise(function, values, dtype=floating(values))


def _real(name: str, function: Callable[[Array], Any], values: Array) -> Array:
    """As :func:`_floating`; refuses complex numbers."""
    require_type(name, is_real, values)
    return _floating(function, values)


def _one_by_one(function: Callable[[float], float]) -> Callable[[Array], Array]:
    """A function of Python numbers as one of float64 arrays."""
    return lambda values: np.fromiter(
        map(function, values.ravel().tolist()), np.float64, values.size
    ).reshape(values.shape)


# -- signs and roundings --------------------------------------------------------------------------


@denotes(
    "aten.neg.default",
    "aten.negative.default",
    "aten._neg_view.default",
    "aten._neg_view_copy.default",
)
def neg(self: Array) -> Array:
    """``−self``; integers wrap; does not exist on booleans."""
    require_type("neg", is_number, self)
    return pointwise(np.negative, self)


@denotes("aten.positive.default")
def positive(self: Array) -> Array:
    """The operand itself; does not exist on booleans."""
    require_type("positive", is_number, self)
    return self.copy()


@denotes("aten.abs.default", "aten.absolute.default")
def abs(self: Array) -> Array:
    """``|self|``: of a complex number its modulus, a real number; the lowest integer wraps."""
    require_type("abs", is_number, self)
    return pointwise(np.abs, self, result=real_of(self.dtype))


@denotes("aten.sign.default")
def sign(self: Array) -> Array:
    """−1, 0 or 1 as the number is below, at or above zero; 0 for NaN. Not of complex numbers."""
    require_type("sign", is_real, self)
    if is_bool(self.dtype):
        return self.copy()
    return pointwise(lambda x: (x > 0).astype(x.dtype) - (x < 0).astype(x.dtype), self)


@denotes("aten.sgn.default")
def sgn(self: Array) -> Array:
    """``self / |self|``, 0 at 0; of real numbers :func:`sign`."""
    if not is_complex(self.dtype):
        return sign(self)
    return pointwise(lambda z: np.where(z == 0, 0, z / np.where(z == 0, 1, np.abs(z))), self)


@denotes("aten.signbit.default")
def signbit(self: Array) -> Array:
    """Whether the sign bit is set, as it is in −0 and −NaN; of integers whether they are < 0."""
    require_type("signbit", is_real, self)
    if is_bool(self.dtype):
        return np.zeros(self.shape, bool)
    return np.asarray(np.signbit(self) if not whole(self) else self < 0)


def _to_integer(name: str, function: Callable[[Array], Any], values: Array) -> Array:
    require_type(name, is_real_number, values)
    return values.copy() if whole(values) else pointwise(function, values)


def _declare_rounding(names: str, function: Callable[[Array], Any], meaning: str) -> None:
    def denoted(self: Array) -> Array:
        return _to_integer(names.split()[0], function, self)

    declare(denoted, meaning, *[f"aten.{name}.default" for name in names.split()])


for _row in (
    ("floor", np.floor, "The largest integer not above; keeps −0 and ±inf. Integers stay."),
    (
        *("ceil", np.ceil),
        "The smallest integer not below, −0 for (−1, 0); keeps −0 and ±inf. Integers stay.",
    ),
    (
        *("trunc fix", np.trunc),
        "The integer next toward zero, with the sign kept; keeps ±inf. Integers stay.",
    ),
    (
        "round",
        np.rint,
        "The nearest integer, of two the even one, with the sign kept. Integers stay.",
    ),
):
    _declare_rounding(*_row)


@denotes("aten.round.decimals")
def round_decimals(self: Array, decimals: int) -> Array:
    """``round(self · 10ᵈ) / 10ᵈ``; integers are refused where ``d ≠ 0``."""
    if decimals and whole(self):
        raise InvalidIRError("integers have no decimals to round to")
    scale = 10.0 ** math.fabs(decimals)
    if decimals < 0:
        return _to_integer("round", lambda x: np.rint(x / scale) * scale, self)
    return _to_integer("round", lambda x: np.rint(x * scale) / scale, self)


@denotes("aten.frac.default")
def frac(self: Array) -> Array:
    """``self − trunc(self)``, NaN for ±inf; of floating-point numbers."""
    if whole(self) or is_complex(self.dtype):
        raise InvalidIRError(f"frac does not exist on {self.dtype}")
    return pointwise(lambda x: x - np.trunc(x), self)


@denotes("aten.frexp.Tensor")
def frexp(self: Array) -> tuple[Array, Array]:
    """``self = mantissa · 2^exponent``, the modulus in [1/2, 1); of 0, inf and NaN, itself and 0.

    The mantissa has the type of ``self``, the exponent is int32.
    """
    if not is_inexact(self.dtype) or is_complex(self.dtype):
        raise InvalidIRError(f"{self.dtype} has no mantissa")
    mantissa, exponent = np.frexp(self.astype("float64"))
    return rounded(mantissa, self.dtype), np.asarray(exponent, "int32")


@denotes("aten.nan_to_num.default")
def nan_to_num(
    self: Array,
    nan: float | None = None,
    posinf: float | None = None,
    neginf: float | None = None,
) -> Array:
    """NaN replaced by ``nan`` (or 0), inf and −inf by theirs (or the largest finite numbers).

    Of complex numbers, in each part.
    """
    if is_complex(self.dtype):
        parts = [nan_to_num(part, nan, posinf, neginf) for part in (self.real, self.imag)]
        return np.asarray(parts[0] + 1j * parts[1]).astype(self.dtype)
    if whole(self):
        return self.copy()
    import ml_dtypes

    largest = float(ml_dtypes.finfo(self.dtype).max)
    high = largest if posinf is None else posinf
    low = -largest if neginf is None else neginf
    return pointwise(
        lambda x: np.where(
            np.isnan(x), nan or 0.0, np.where(x == np.inf, high, np.where(x == -np.inf, low, x))
        ),
        self,
    )


# -- roots, exponentials, logarithms, angles ------------------------------------------------------

_FLOATING: Mapping[str, tuple[Callable[[Array], Any], str]] = {
    "reciprocal": (lambda x: 1 / x, "``1 / self``: ±inf at ±0."),
    "sqrt": (
        np.sqrt,
        "``√self``: NaN below zero, −0 at −0; of a complex number the root with real part ≥ 0.",
    ),
    "rsqrt": (lambda x: 1 / np.sqrt(x), "``1 / √self``: ±inf at ±0, NaN below zero, 0 at inf."),
    "exp": (np.exp, "``eˢᵉˡᶠ``: 0 at −inf, inf at inf."),
    "exp2 special_exp2": (
        lambda x: np.power(2.0, x) if is_complex(x.dtype) else np.exp2(x),
        "``2ˢᵉˡᶠ``: 0 at −inf, inf at inf.",
    ),
    "expm1 special_expm1": (
        np.expm1,
        "``eˢᵉˡᶠ − 1`` without cancellation near 0: −0 at −0, −1 at −inf.",
    ),
    "log": (
        np.log,
        "``ln self``: −inf at ±0, NaN below; of a complex number with imaginary part in (−π, π].",
    ),
    "log2": (np.log2, "``log₂ self``: −inf at ±0, NaN below."),
    "log10": (np.log10, "``log₁₀ self``: −inf at ±0, NaN below."),
    "log1p special_log1p": (
        log_of_one_and,
        "``ln(1 + self)`` without cancellation near 0: −0 at −0, −inf at −1, NaN below.",
    ),
    "sin": (np.sin, "The sine: −0 at −0, NaN at ±inf."),
    "cos": (np.cos, "The cosine: NaN at ±inf."),
    "tan": (np.tan, "The tangent: −0 at −0, NaN at ±inf."),
    "asin arcsin": (np.arcsin, "The angle in [−π/2, π/2] with that sine; NaN outside [−1, 1]."),
    "acos arccos": (np.arccos, "The angle in [0, π] with that cosine; NaN outside [−1, 1]."),
    "atan arctan": (np.arctan, "The angle in [−π/2, π/2] with that tangent; ±π/2 at ±inf."),
    "sinh": (np.sinh, "``(eˣ − e⁻ˣ)/2``: −0 at −0, ±inf at ±inf."),
    "cosh": (np.cosh, "``(eˣ + e⁻ˣ)/2``: inf at ±inf."),
    "tanh": (np.tanh, "``sinh x / cosh x``: −0 at −0, ±1 at ±inf."),
    "asinh arcsinh": (
        np.arcsinh,
        "The number with that hyperbolic sine, ``ln(x + √(x² + 1))``; ±inf at ±inf.",
    ),
    "acosh arccosh": (
        np.arccosh,
        "The number ≥ 0 with that hyperbolic cosine, ``ln(x + √(x² − 1))``; NaN below 1.",
    ),
    "atanh arctanh": (
        np.arctanh,
        "The number with that hyperbolic tangent; ±inf at ±1, NaN outside [−1, 1].",
    ),
    "sigmoid special_expit": (
        lambda x: 1 / (1 + np.exp(-x)),
        "``1 / (1 + e⁻ˣ)``: 0 at −inf, 1 at inf.",
    ),
    "sinc special_sinc": (
        lambda x: np.where(x == 0, 1, np.sin(np.pi * x) / np.where(x == 0, 1, np.pi * x)),
        "``sin(πx) / (πx)``, 1 at 0.",
    ),
}
"""The function and the meaning of each operator on floating-point and complex numbers."""

_REAL: Mapping[str, tuple[Callable[[Array], Any], str]] = {
    "deg2rad": (lambda x: x * (math.pi / 180), "``self · π / 180``."),
    "rad2deg": (lambda x: x * (180 / math.pi), "``self · 180 / π``."),
    "erf special_erf": (_one_by_one(math.erf), "``2/√π · ∫₀ˣ e^(−t²) dt``: ±1 at ±inf, −0 at −0."),
    "erfc special_erfc": (
        _one_by_one(math.erfc),
        "``1 − erf x`` without cancellation: 0 at inf, 2 at −inf.",
    ),
}
"""The same of those that refuse complex numbers."""


def declare_functions(
    rows: Mapping[str, tuple[Callable[[Array], Any], str]],
    accepted: Callable[[np.dtype[Any]], bool],
    argument: Literal["self", "x"] = "self",
) -> None:
    """Declare functions of one number: the names of each, what computes it, and what it means."""

    def declare_one(names: Sequence[str], function: Callable[[Array], Any], meaning: str) -> None:
        def of_self(self: Array) -> Array:
            require_type(names[0], accepted, self)
            return _floating(function, self)

        def of_x(x: Array) -> Array:
            return of_self(x)

        denoted = of_self if argument == "self" else of_x
        declare(denoted, meaning, *[f"aten.{name}.default" for name in names])

    for names, row in rows.items():
        declare_one(names.split(), *row)


declare_functions(_FLOATING, lambda _: True)
declare_functions(_REAL, is_real)


# -- special functions ----------------------------------------------------------------------------


@denotes("aten.logit.default", "aten.special_logit.default")
def logit(self: Array, eps: float | None = None) -> Array:
    """``ln(x / (1 − x))``, of what :func:`between` gives for ``eps``; NaN outside [0, 1]."""
    require_type("logit", is_real, self)
    dtype = floating(self)
    return _floating(lambda x: np.log((y := between(x, eps, dtype)) / (1 - y)), self)


def between(x: Array, eps: float | None, dtype: np.dtype[Any]) -> Array:
    """``eps`` where x is below it, else ``1 − eps`` where x is above that, else x.

    Both bounds are numbers of the type, to which ``1 − eps`` may round as 1. None bounds nothing.
    """
    if eps is None:
        return x
    low = float(rounded(np.asarray(eps), dtype))
    high = float(rounded(np.asarray(1 - low), dtype))
    return np.where(x < low, low, np.where(x > high, high, x))


@denotes("aten.lgamma.default", "aten.special_gammaln.default")
def lgamma(self: Array) -> Array:
    """``ln |Γ(x)|``: inf at ±inf and at the poles: 0 and the negative integers."""

    def at(x: float) -> float:
        try:
            return math.inf if x <= 0 and x == math.floor(x) else math.lgamma(x)
        except OverflowError:
            return math.inf

    return _real("lgamma", _one_by_one(lambda x: at(x) if math.isfinite(x) else x * x), self)
