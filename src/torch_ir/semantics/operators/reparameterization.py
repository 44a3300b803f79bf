"""Gradients of samples by the parameters of their distributions.

A sample is ``x = F⁻¹(u; a)``, so that ``dx/da = -(∂F/∂a) / f`` for the distribution function F
and its density f. ``∂F/∂a`` is the integral of ``f · (ln t - m)`` up to x, m being the mean of
``ln t``: up to x where ``ln x ≤ m``, else from x on with the other sign, so that all of what is
added has one sign; where the density has hardly begun to fall, up to x too, as it may span all
scales from x on. Integrals over a half line are taken at ``w = exp(π/2 · sinh s)`` for equal steps
of s (double exponential), by which they are precise whatever the scale.

Source: M. Figurnov et al., "Implicit reparameterization gradients", NeurIPS 2018; H. Takahasi and
M. Mori, "Double exponential formulas for numerical integration", 1974.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from torch_ir.semantics.dtypes import Array, is_float
from torch_ir.semantics.operators.special_functions import digamma
from torch_ir.semantics.pointwise import pointwise, require_type
from torch_ir.semantics.registry import denotes

_STEP, _REACH = 1 / 24, 4.2
"""Of s, and how far it goes: ``w`` from 1e-46 to 1e45."""
_LEAST = -745.0
"""The exponential of less is 0, whatever it is multiplied by."""


def _half_line(logarithm: Callable[[Array], Array], factor: Callable[[Array], Array]) -> Array:
    """``∫₀^∞ exp(logarithm(w)) · factor(w) dw``, for functions of one number at all elements."""
    total = np.zeros(())
    for s in np.arange(-_REACH, _REACH + _STEP / 2, _STEP):
        w = np.exp(np.pi / 2 * np.sinh(s))
        weight = np.pi / 2 * np.cosh(s) * _STEP * w
        exponents = logarithm(w)
        added = np.exp(exponents) * factor(w) * weight
        total = total + np.where(exponents < _LEAST, 0, added)
    return total


def _of_gamma(a: Array, x: Array) -> Array:
    """``dx/da`` of a sample of the gamma distribution with shape a."""
    log_x, mean = np.log(x), digamma(a)
    below = (
        -x
        / a
        * _half_line(
            lambda w: -w - x * np.expm1(-w / a),  # t = x · e^(-w/a)
            lambda w: log_x - w / a - mean,
        )
    )
    above = _half_line(
        lambda w: (a - 1) * np.log1p(w / x) - w,  # t = x + w
        lambda w: np.log(x + w) - mean,
    )
    return np.where((log_x <= mean) | (x <= 1), below, above)


def _of_beta(a: Array, b: Array, x: Array) -> Array:
    """``dx/da`` of a sample of the beta distribution."""
    log_x, mean, rest = np.log(x), digamma(a) - digamma(a + b), 1 - x

    def raised(w: Array) -> Array:  # ln(t / x)
        return np.log1p(-rest / x * np.expm1(-w / b))

    below = (
        -x
        / a
        * _half_line(
            lambda w: (b - 1) * np.log1p(-x / rest * np.expm1(-w / a)) - w,  # t = x · e^(-w/a)
            lambda w: log_x - w / a - mean,
        )
    )
    above = (
        rest
        / b
        * _half_line(
            lambda w: (a - 1) * raised(w) - w,  # 1 - t = (1 - x) · e^(-w/b)
            lambda w: log_x + raised(w) - mean,
        )
    )
    return np.where((log_x <= mean) | ((x <= 0.5) & (x * b <= 1)), below, above)


@denotes("aten._standard_gamma_grad.default")
def standard_gamma_grad(self: Array, output: Array) -> Array:
    """``dx/da`` for samples ``x = output`` of the gamma distribution with shapes ``a = self``.

    Shapes broadcast. NaN of shapes and samples that are not above 0.
    """
    require_type("the gradient of samples", is_float, self, output)
    return pointwise(_where_positive(_of_gamma), self, output)


@denotes("aten._dirichlet_grad.default")
def dirichlet_grad(x: Array, alpha: Array, total: Array) -> Array:
    """``dx/dα / (1 - x)`` for samples x of the beta distribution with α and ``β = total - α``.

    A part of a sample of Dirichlet's distribution is such a sample. Shapes broadcast. NaN where x
    is not between 0 and 1, or α or β not above 0.
    """
    require_type("the gradient of samples", is_float, x, alpha, total)

    def part(x: Array, alpha: Array, total: Array) -> Array:
        return np.where(x < 1, _of_beta(alpha, total - alpha, x) / (1 - x), np.nan)

    return pointwise(_where_positive(part), x, alpha, total)


def _where_positive(function: Callable[..., Array]) -> Callable[..., Array]:
    """The function of positive numbers; NaN of others."""

    def of_positive(*numbers: Array) -> Array:
        is_positive = np.all([(n > 0) & np.isfinite(n) for n in numbers], axis=0)
        return np.where(is_positive, function(*numbers), np.nan)

    return of_positive
