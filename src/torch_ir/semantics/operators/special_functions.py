"""Functions of mathematical physics and of statistics, of real numbers.

Integers and booleans are taken as float32. Where a definition has no closed form it is computed by
one that converges to float64's precision: an integral of a smooth function by equal steps or
Gauss's points, a continued fraction, an asymptotic series.

Source: NIST Digital Library of Mathematical Functions; the pages of ``torch.special``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from torch_ir.semantics.dtypes import Array
from torch_ir.semantics.operators.elementwise import declare_functions
from torch_ir.semantics.pointwise import floating, is_real, pointwise, require_type
from torch_ir.semantics.registry import declare, denotes

FAR = 25.0
"""From there on asymptotic series of Bessel functions are as precise as float64."""
STEPS = 128
"""Of half a period: more than ``FAR`` and what an integral converges by."""
SERIES, GAUSS = 2.0, 80
MOST_FACTORS = 170
"""Of the greatest factorial in float64."""
LEAST, NEAR_POLE = 5e-324, 1e-20
"""The least number, and where K is its pole, K₀ a logarithm, to float64's precision."""
CHUNK = 1024


def _each(function: Callable[..., float]) -> Callable[..., Array]:
    """A function of Python numbers as one of float64 arrays of one shape; NaN of NaN."""

    def at(*numbers: float) -> float:
        return math.nan if any(map(math.isnan, numbers)) else function(*numbers)

    return _all(at)


def _all(function: Callable[..., float]) -> Callable[..., Array]:
    """The same of a function that takes NaN, too."""
    return lambda *arrays: np.asarray(np.vectorize(function, otypes=[np.float64])(*arrays))


# -- Bessel functions -----------------------------------------------------------------------------


def _hankel(order: float, x: Array, sign: int) -> tuple[Array, Array]:
    """The even and the odd terms of the asymptotic series; every other with another sign or not.

    Source: DLMF 10.17.
    """
    even, odd, term = np.zeros_like(x), np.zeros_like(x), np.ones_like(x)
    for k in range(24):
        flip = sign ** (k // 2)
        if k % 2:
            odd = odd + flip * term
        else:
            even = even + flip * term
        term = term * (4 * order**2 - (2 * k + 1) ** 2) / (8 * (k + 1)) / x
    return even, odd


def _waves(order: float, x: Array) -> tuple[Array, Array]:
    """J and Y far from 0."""
    even, odd = _hankel(order, x, -1)
    turned = (order / 2 + 0.25) * math.pi
    cosine = np.cos(x) * math.cos(turned) + np.sin(x) * math.sin(turned)
    sine = np.sin(x) * math.cos(turned) - np.cos(x) * math.sin(turned)
    size = math.sqrt(2 / math.pi) / np.sqrt(x)
    return size * (even * cosine - odd * sine), size * (even * sine + odd * cosine)


def _periods(function: Callable[[Array, Array], Array], x: Array) -> Array:
    """The mean of an even function over half a period of its angle."""
    angles = np.linspace(0, math.pi, STEPS + 1)
    weights = np.full(STEPS + 1, 1 / STEPS)
    weights[[0, -1]] /= 2
    return _summed(lambda part: function(part[:, None], angles) @ weights, x)


def _summed(function: Callable[[Array], Array], x: Array) -> Array:
    """A function of some elements at a time, as it makes many numbers of each."""
    flat = x.reshape(-1)
    parts = [function(flat[i : i + CHUNK]) for i in range(0, flat.size, CHUNK)]
    return np.concatenate([*parts, np.zeros(0)]).reshape(x.shape)


def _powers(order: int, size: Array, sign: int) -> Array:
    """The power series of J (−1) or I (1), for arguments up to 1, precise however small these are.

    Source: DLMF 10.2.2 and 10.25.2.
    """
    half, total = np.minimum(size, 1) / 2, np.zeros_like(size)
    for k in range(12):
        term = half ** (2 * k + order) / (math.factorial(k) * math.factorial(k + order))
        total = total + sign**k * term
    return total


def bessel_j(order: int, x: Array) -> Array:
    """``1/π · ∫₀^π cos(nθ − x sin θ) dθ``; below 1 by its power series."""
    size = np.abs(x)
    near = _periods(lambda v, a: np.cos(order * a - v * np.sin(a)), np.minimum(size, FAR))
    far = np.where(np.isinf(x), 0, _waves(order, np.maximum(size, FAR))[0])
    found = np.where(size <= FAR, near, far)
    found = np.where(size < 1, _powers(order, size, -1), found)
    return found * np.where(x < 0, (-1) ** order, 1)


def bessel_y(order: int, x: Array) -> Array:
    """The second solution: −inf at 0, NaN below."""
    points, weights = np.polynomial.legendre.leggauss(GAUSS)

    def between(v: Array) -> Array:
        angles = (points + 1) * (math.pi / 2)
        waves = np.sin(v[:, None] * np.sin(angles) - order * angles) @ weights / 2
        ends = np.arcsinh(745 / v)[:, None]
        t = (points + 1) * ends / 2
        powers = np.exp(order * t) + (-1) ** order * np.exp(-order * t)
        tail = (powers * np.exp(-v[:, None] * np.sinh(t))) @ weights * ends[:, 0] / 2
        return waves - tail / math.pi

    middle = _summed(between, np.clip(x, SERIES, FAR))
    near = _y_series(order, np.clip(x, LEAST, SERIES))
    far = np.where(np.isinf(x), 0, _waves(order, np.maximum(x, FAR))[1])
    found = np.where(x < SERIES, near, np.where(x <= FAR, middle, far))
    return np.where(x == 0, -np.inf, np.where(x > 0, found, np.nan))


def _y_series(order: int, x: Array) -> Array:
    """Source: DLMF 10.8.1."""
    half, total = x / 2, np.zeros_like(x)
    digammas = [-np.euler_gamma]
    for k in range(1, 40):
        digammas.append(digammas[-1] + 1 / k)
    for k in range(24):
        factor = (digammas[k] + digammas[k + order]) / (
            math.factorial(k) * math.factorial(k + order)
        )
        total = total + factor * (-(half**2)) ** k
    poles = 2 / math.pi / x if order else 0.0
    regular = 2 * (np.log(x) - math.log(2)) * bessel_j(order, x) - half**order * total
    return regular / math.pi - poles


def scaled_bessel_i(order: int, x: Array) -> Array:
    """``e^(−|x|) · 1/π · ∫₀^π e^(x cos θ) cos nθ dθ``; below 1 by its power series."""
    size = np.abs(x)

    def wave(v: Array, a: Array) -> Array:
        return np.exp(v * (np.cos(a) - 1)) * np.cos(order * a)

    even, odd = _hankel(order, np.maximum(size, FAR), 1)
    far = (even - odd) / (math.sqrt(2 * math.pi) * np.sqrt(np.maximum(size, FAR)))
    near = _periods(wave, np.minimum(size, FAR))
    found = np.where(size <= FAR, near, far)
    found = np.where(size < 1, _powers(order, size, 1) * np.exp(-np.minimum(size, 1)), found)
    return found * np.where(x < 0, (-1) ** order, 1)


def scaled_bessel_k(order: float, x: Array) -> Array:
    """``eˣ · ∫₀^∞ e^(−x cosh t) cosh(nt) dt``: inf at 0, NaN below."""
    steps = np.arange(1000) * 0.1
    weights = np.full(1000, 0.1)
    weights[0] /= 2

    def near(v: Array) -> Array:
        decays = v[:, None] * (np.cosh(steps) - 1)
        return (np.exp(-decays + order * steps) + np.exp(-decays - order * steps)) @ weights / 2

    even, odd = _hankel(order, np.maximum(x, FAR), 1)
    height = math.sqrt(math.pi / 2) / np.sqrt(np.maximum(x, FAR))
    far = np.where(np.isinf(x), 0, (even + odd) * height)
    found = np.where(x <= FAR, _summed(near, np.clip(x, NEAR_POLE, FAR)), far)
    least = np.clip(x, LEAST, NEAR_POLE)
    poles = 1 / least if order else math.log(2) - np.euler_gamma - np.log(least)
    found = np.where(x < NEAR_POLE, poles, found)
    return np.where(x == 0, np.inf, np.where(x > 0, found, np.nan))


def airy(x: Array) -> Array:
    """``1/2π · ∫ e^(t³/3 − xt) ds`` on ``t = a + is``, the line that passes the saddle."""
    steps = np.arange(-700, 701) * 0.025

    def near(v: Array) -> Array:
        line = np.sqrt(np.maximum(v, 0.09))[:, None] + 1j * steps
        return np.real(np.exp(line**3 / 3 - v[:, None] * line)).sum(-1) * (0.025 / (2 * math.pi))

    zeta = 2 / 3 * np.abs(x) ** 1.5
    waves = _waves(1 / 3, np.maximum(zeta, FAR))
    far = np.sqrt(np.abs(x)) / 2 * (waves[0] - waves[1] / math.sqrt(3))
    far = np.where(np.isinf(zeta), 0, far)  # the wave has no phase, and is lower than any number
    edge = -((1.5 * FAR) ** (2 / 3))
    return np.where(x < edge, far, _summed(near, np.clip(x, edge, 110)))


def spherical_j0(x: Array) -> Array:
    """``sin x / x``: 1 at 0, 0 at ±inf."""
    return np.where(x == 0, 1, np.where(np.isinf(x), 0, np.sin(x) / np.where(x == 0, 1, x)))


# -- gamma and zeta functions ---------------------------------------------------------------------

_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)


def _digamma(x: float) -> float:
    if x == 0:
        return -math.copysign(math.inf, x)
    if math.isinf(x):
        return x if x > 0 else math.nan
    if x < 0:
        if x == math.floor(x):
            return math.nan
        return _digamma(1 - x) - math.pi / math.tan(math.pi * math.fmod(x, 1))
    total = 0.0
    while x < 10:
        total -= 1 / x
        x += 1
    tail = sum(b / (2 * k) * _power(x, -2 * k) for k, b in enumerate(_BERNOULLI, 1))
    return total + math.log(x) - 1 / (2 * x) - tail


digamma = _each(_digamma)


def _zeta(s: float, q: float) -> float:
    """``Σ (q + k)^(−s)`` over k ≥ 0: infinite of the order 1, and at poles, also of NaN."""
    is_pole = q <= 0 and (math.isinf(q) or q == math.floor(q))
    if s == 1 or (is_pole and not s < 1):
        return math.inf
    if s < 1 or math.isnan(s) or math.isnan(q):
        return math.nan
    if math.isinf(q) or math.isinf(s):
        return 0.0 if q > 1 else 1.0 if q == 1 else math.inf
    if q > 0:
        return _zeta_of_positive(s, q)
    if s != math.floor(s):
        return math.nan
    part, rest, below = q - math.floor(q), -q - math.floor(-q), -math.floor(q)  # exact, all three
    terms = _zeta_of_positive(s, rest) - _zeta_of_positive(s, rest + below)
    return _zeta_of_positive(s, part) + (-1) ** int(s % 2) * terms


def _zeta_of_positive(s: float, q: float) -> float:
    """The rest of the sum is by Euler and Maclaurin."""
    total, enough = 0.0, max(20, 2 * min(s, 1e3))
    while q < enough and (q <= 1 or _power(q, -s) > total * 1e-18):
        total += _power(q, -s)
        q += 1
    total += _power(q, 1 - s) / (s - 1) + _power(q, -s) / 2
    if q < enough or not _power(q, -s):  # the rest is nothing, or its series does not converge
        return total
    factor = s
    for k, bernoulli in enumerate(_BERNOULLI, 1):
        total += bernoulli / math.factorial(2 * k) * factor * _power(q, -s - 2 * k + 1)
        factor *= (s + 2 * k - 1) * (s + 2 * k)
    return total


zeta = _all(_zeta)


def _power(base: float, exponent: float) -> float:
    try:
        return float(base**exponent)
    except (OverflowError, ZeroDivisionError):
        return math.inf


_UNIFORM = 1e8
"""Orders from which the expansion that is uniform in ``x / a`` ends with its first term."""


def _igamma_of_large(a: float, x: float, *, upper: bool) -> float:
    """The same of a large order.

    Source: DLMF 8.12.3 and 8.12.4.
    """
    off = x / a - 1
    if off == -1:  # x is nothing beside the order
        return float(upper)
    turned = math.copysign(math.sqrt(max(2 * (off - math.log1p(off)), 0.0)), off)
    if not turned or abs(off) < 1e-4:
        turned, first = off * (1 - off / 3), -1 / 3 + off / 12
    else:
        first = 1 / off - 1 / turned
    exponent = turned * math.sqrt(a / 2)
    rest = first * math.exp(-min(exponent * exponent, 745.0)) / math.sqrt(2 * math.pi * a)
    part = math.erfc(exponent if upper else -exponent) / 2
    return part + rest if upper else part - rest


def _igamma(a: float, x: float, *, upper: bool) -> float:
    """``1/Γ(a) · ∫₀ˣ t^(a−1) e^(−t) dt``, or the rest to 1.

    Of one operand NaN it is the number that it is of all others in its place, if there is one.
    """
    if x < 0 or a < 0 or (a == 0 and not x > 0) or (math.isinf(a) and math.isinf(x)):
        return math.nan
    if a == 0 or math.isinf(x) or x == 0 or math.isinf(a):
        return float(upper == (a != 0 and (x == 0 or math.isinf(a))))
    if math.isnan(a) or math.isnan(x):
        return math.nan
    if a > _UNIFORM:
        return _igamma_of_large(a, x, upper=upper)
    exponent = a * math.log(x) - x
    if x < a + 1:
        term = total = 1.0
        k = a
        while abs(term) > 1e-17 * abs(total):
            k += 1
            term *= x / k
            total += term
        lower = math.exp(exponent - math.lgamma(a + 1)) * total
        return 1 - lower if upper else lower
    count = min(200 + int(10 * math.sqrt(a)), 10_000)
    fraction = x + 2 * count + 1 - a
    for k in range(count, 0, -1):  # from its end, where errors shrink
        fraction = x + 2 * k - 1 - a - k * (k - a) / fraction
    rest = math.exp(exponent - math.lgamma(a)) / fraction
    return rest if upper else 1 - rest


# -- the error function's relatives ---------------------------------------------------------------


def _erfcx(x: float) -> float:
    """``e^(x²) · erfc x``; the square is exact in two parts."""
    if x < -26.63:
        return math.inf
    if x < FAR:
        near = float(np.float32(x))
        rest = math.exp((x - near) * (x + near)) if x == x else x
        return math.exp(near * near) * rest * math.erfc(x)
    series = term = 1.0
    for k in range(8):
        term *= -(2 * k + 1) / (2 * x * x)
        series += term
    return series / (x * math.sqrt(math.pi))


def _erfc_inverse(q: float) -> float:
    """The number y ≥ 0 with ``erfc y = q``, for q in [0, 1]; by Halley's steps.

    Where q is near to nothing, by Newton's for its logarithm.
    """
    if q == 0:
        return math.inf
    root = math.sqrt(-2 * math.log(q / 2))
    y = max((root - (2.30753 + 0.27061 * root) / (1 + root * (0.99229 + 0.04481 * root))), 0.0)
    y /= math.sqrt(2)
    if q < 1e-250:
        for _ in range(4):
            scaled = _erfcx(y)
            error = math.log(scaled) - y * y - math.log(q)
            y += error * scaled * math.sqrt(math.pi) / 2
        return y
    for _ in range(4):
        error = (math.erfc(y) - q) / (-2 / math.sqrt(math.pi) * math.exp(-y * y))
        y -= error / (1 + y * error)
    return y


def _erf_inverse(x: float) -> float:
    if abs(x) > 1:
        return math.nan
    if abs(x) > 0.5:
        return math.copysign(_erfc_inverse(1 - abs(x)), x)
    y = x * math.sqrt(math.pi) / 2
    for _ in range(6):
        error = (math.erf(y) - x) / (2 / math.sqrt(math.pi) * math.exp(-y * y))
        y -= error / (1 + y * error)
    return y


def _ndtri(p: float) -> float:
    if not 0 <= p <= 1:
        return math.nan
    if 0.25 < p < 0.75:
        return math.sqrt(2) * _erf_inverse(2 * p - 1)
    rest = min(p, 1 - p)
    return math.copysign(math.sqrt(2) * _erfc_inverse(2 * rest), p - 0.5)


def _log_ndtr(x: float) -> float:
    """``ln ½ erfc(−x / √2)``."""
    turned = x / math.sqrt(2)
    square = turned * turned
    if x < -1:  # beside an infinite square the factor is nothing, and may be less than numbers are
        return -square if square == math.inf else math.log(_erfcx(-turned) / 2) - square
    return math.log1p(-math.erfc(turned) / 2)


# -- declarations ---------------------------------------------------------------------------------


def _grown(function: Callable[[Array], Array], sign: int, values: Array) -> Array:
    return function(values) * np.exp(sign * np.abs(values))


_ONE: Mapping[str, tuple[Callable[[Array], Any], str]] = {
    "special_bessel_j0": (partial(bessel_j, 0), "The Bessel function J₀: 0 at ±inf."),
    "special_bessel_j1": (partial(bessel_j, 1), "The Bessel function J₁: 0 at ±inf."),
    "special_bessel_y0": (partial(bessel_y, 0), "The Bessel function Y₀: −inf at 0, NaN below."),
    "special_bessel_y1": (partial(bessel_y, 1), "The Bessel function Y₁: −inf at 0, NaN below."),
    "special_i0e": (partial(scaled_bessel_i, 0), "``e^(−|x|) I₀(x)``."),
    "special_i1e": (partial(scaled_bessel_i, 1), "``e^(−|x|) I₁(x)``."),
    "i0 special_modified_bessel_i0": (
        partial(_grown, partial(scaled_bessel_i, 0), 1),
        "The modified Bessel function I₀.",
    ),
    "special_i1 special_modified_bessel_i1": (
        partial(_grown, partial(scaled_bessel_i, 1), 1),
        "The modified Bessel function I₁.",
    ),
    "special_modified_bessel_k0": (
        partial(_grown, partial(scaled_bessel_k, 0), -1),
        "The modified Bessel function K₀: inf at 0, NaN below.",
    ),
    "special_modified_bessel_k1": (
        partial(_grown, partial(scaled_bessel_k, 1), -1),
        "The modified Bessel function K₁: inf at 0, NaN below.",
    ),
    "digamma": (digamma, "``Γ'(x) / Γ(x)``: ∓inf at ±0, NaN at negative integers."),
    "erfinv": (_each(_erf_inverse), "The number whose erf it is: ±inf at ±1, NaN beyond."),
    "special_erfcx": (_each(_erfcx), "``e^(x²) erfc x``."),
    "special_ndtri": (
        _each(_ndtri),
        "The quantile of the normal distribution: NaN outside [0, 1].",
    ),
    "special_log_ndtr": (_each(_log_ndtr), "The logarithm of the normal distribution function."),
}
"""Functions of one number, with what they are."""

_OF_X: Mapping[str, tuple[Callable[[Array], Any], str]] = {
    "special_scaled_modified_bessel_k0": (partial(scaled_bessel_k, 0), "``eˣ K₀(x)``."),
    "special_scaled_modified_bessel_k1": (partial(scaled_bessel_k, 1), "``eˣ K₁(x)``."),
    "special_airy_ai": (airy, "Airy's function Ai."),
    "special_spherical_bessel_j0": (spherical_j0, "``sin x / x``: 1 at 0, 0 at ±inf."),
}
"""The same of those whose argument is named x."""

_TWO: Mapping[str, tuple[Callable[[Array, Array], Any], str]] = {
    "special_zeta": (zeta, "Hurwitz's zeta function ``Σ (other + k)^(−self)``, k ≥ 0."),
    "igamma": (
        _all(partial(_igamma, upper=False)),
        "The regularized lower incomplete gamma function of ``self`` at ``other``.",
    ),
    "igammac": (
        _all(partial(_igamma, upper=True)),
        "1 less :func:`igamma`, without cancellation.",
    ),
}
"""Functions of two numbers, which broadcast."""


def _declare_two(name: str, function: Callable[[Array, Array], Any], meaning: str) -> None:
    def denoted(self: Array, other: Array) -> Array:
        require_type(name, is_real, self, other)
        return pointwise(function, self, other, dtype=floating(self, other))

    declare(denoted, meaning, f"aten.{name}.default")


declare_functions(_ONE, is_real)
declare_functions(_OF_X, is_real, "x")
for _name, _pair in _TWO.items():
    _declare_two(_name, *_pair)


@denotes("aten.polygamma.default")
def polygamma(n: int, self: Array) -> Array:
    """The n-th derivative of ``digamma``: ``(−1)^(n + 1) n! ζ(n + 1, x)``."""
    require_type("polygamma", is_real, self)

    factor = float(math.factorial(n)) if n <= MOST_FACTORS else math.inf

    def at(x: float) -> float:
        if n == 0:
            return _digamma(x)
        if n == 1 and x == -math.inf:  # which torch reflects, and takes for a pole of the others
            return math.nan
        return (-1) ** (n + 1) * factor * _zeta(n + 1, x)

    return pointwise(_each(at), self, dtype=floating(self))
