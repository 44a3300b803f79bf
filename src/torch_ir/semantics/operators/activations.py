"""Activations: functions of one number that stand between the layers of a network.

The result has the operand's type; except where it is said, they exist on real floating-point
numbers alone. NaN gives NaN. They mean their formula, rounded once; torch's kernels round between,
so what cancels (GELU for large negative numbers) is exact here and not there.
Source: the operator's page in torch's documentation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.ops.clamps import clamp_cuts_bounds
from torch_ir.semantics.axes import axis
from torch_ir.semantics.dtypes import Array, compared_as, is_float, is_inexact
from torch_ir.semantics.operators.elementwise import declare_functions
from torch_ir.semantics.pointwise import (
    bound_as,
    is_real_number,
    number_as,
    pointwise,
    require_type,
)
from torch_ir.semantics.registry import denotes


def _activation(name: str, function: Callable[[Array], Any], values: Array) -> Array:
    require_type(name, is_float, values)
    return pointwise(function, values)


@denotes("aten.relu.default")
def relu(self: Array) -> Array:
    """0 below zero, else ``self``: −0 stays. Of integers too."""
    require_type("relu", is_real_number, self)
    return np.where(self < 0, np.zeros((), self.dtype), self)


@denotes("aten.relu6.default")
def relu6(self: Array) -> Array:
    """``min(max(self, 0), 6)``. Of integers too."""
    return hardtanh(self, 0, 6)


@denotes("aten.hardtanh.default")
def hardtanh(self: Array, min_val: complex = -1, max_val: complex = 1) -> Array:
    """``min(max(self, min_val), max_val)``. Of integers too.

    Before torch 2.15 not of unsigned integers below zero; since then bounds are those of clamp.
    """
    require_type("hardtanh", is_real_number, self)
    if self.dtype.kind == "u" and min_val.real < 0 and not clamp_cuts_bounds():
        raise InvalidIRError("hardtanh does not bound unsigned integers below zero")
    low = bound_as(min_val, self.dtype, np.maximum)
    high = bound_as(max_val, self.dtype, np.minimum)
    return pointwise(
        lambda x, a, b: np.minimum(np.maximum(x, a), b), self, low, high, dtype=self.dtype
    )


@denotes("aten.leaky_relu.default")
def leaky_relu(self: Array, negative_slope: float = 0.01) -> Array:
    """``self`` above zero, else ``negative_slope · self``."""
    return _activation("leaky_relu", lambda x: np.where(x > 0, x, x * negative_slope), self)


@denotes("aten.prelu.default", "aten._prelu_kernel.default")
def prelu(self: Array, weight: Array) -> Array:
    """``self`` above zero, else ``weight · self``.

    ``weight`` has one element, or one per channel (dimension 1), or a shape that broadcasts.
    """
    require_type("prelu", is_float, self, weight)
    if weight.ndim == 1 and weight.size == 1:
        weight = weight.reshape(())
    elif weight.ndim == 1 and self.ndim > 1:
        if weight.size != self.shape[1]:
            raise InvalidIRError(f"prelu has {weight.size} weights for {self.shape[1]} channels")
        weight = weight.reshape(-1, *[1] * (self.ndim - 2))
    return pointwise(lambda x, w: np.where(x > 0, x, w * x), self, weight, dtype=self.dtype)


@denotes("aten.elu.default")
def elu(self: Array, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Array:
    """``scale · self`` above zero, else ``scale · alpha · (e^(input_scale · self) − 1)``."""
    return _activation(
        "elu",
        lambda x: np.where(x > 0, scale * x, scale * alpha * np.expm1(x * input_scale)),
        self,
    )


@denotes("aten.celu.default")
def celu(self: Array, alpha: float = 1.0) -> Array:
    """``self`` above zero, else ``alpha · (e^(self / alpha) − 1)``; alpha is not 0."""
    if alpha == 0:
        raise InvalidIRError("celu divides by its alpha, which is 0")
    return elu(self, alpha, 1, 1 / alpha)


@denotes("aten.selu.default")
def selu(self: Array) -> Array:
    """:func:`elu` with alpha 1.6732632423543772 and scale 1.0507009873554805."""
    return elu(self, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


@denotes("aten.gelu.default")
def gelu(self: Array, approximate: str = "none") -> Array:
    """``x · Φ(x)`` with the normal distribution ``Φ(x) = ½ (1 + erf(x/√2)) = ½ erfc(−x/√2)``.

    With ``"tanh"`` instead ``½ x (1 + tanh(√(2/π) (x + 0.044715 x³)))``. At inf it is inf (torch's
    vectorized kernel gives NaN there), at −inf NaN.
    """
    if approximate == "tanh":
        return _activation(
            "gelu",
            lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
            self,
        )
    if approximate != "none":
        raise InvalidIRError(
            f"gelu has no approximation {approximate!r}", remedy='"none" or "tanh".'
        )

    def normal_distribution(x: Array) -> Array:
        tails = map(math.erfc, (x * -math.sqrt(0.5)).ravel().tolist())
        return np.fromiter(tails, np.float64, x.size).reshape(x.shape) / 2

    return _activation("gelu", lambda x: x * normal_distribution(x), self)


@denotes("aten.silu.default")
def silu(self: Array) -> Array:
    """``x / (1 + e⁻ˣ)``; of complex numbers too."""
    require_type("silu", is_inexact, self)
    return pointwise(lambda x: x / (1 + np.exp(-x)), self)


@denotes("aten.softplus.default")
def softplus(self: Array, beta: float = 1, threshold: float = 20) -> Array:
    """``ln(1 + e^(beta · x)) / beta``, and ``x`` where ``beta · x > threshold``."""
    return _activation(
        "softplus",
        lambda x: np.where(x * beta > threshold, x, np.logaddexp(0, x * beta) / beta),
        self,
    )


def _ramp(x: Array) -> Array:
    return np.minimum(np.maximum(x + 3, 0), 6)


declare_functions(
    {
        "mish": (lambda x: x * np.tanh(np.logaddexp(0, x)), "``x · tanh(ln(1 + eˣ))``."),
        "log_sigmoid": (
            lambda x: -np.logaddexp(0, -x),
            "``ln(1 / (1 + e⁻ˣ)) = −ln(1 + e⁻ˣ)``.",
        ),
        "hardsigmoid": (lambda x: _ramp(x) / 6, "``min(max(x + 3, 0), 6) / 6``."),
        "hardswish": (lambda x: x * _ramp(x) / 6, "``x · min(max(x + 3, 0), 6) / 6``."),
    },
    is_float,
)


@denotes("aten.hardshrink.default")
def hardshrink(self: Array, lambd: float = 0.5) -> Array:
    """0 in ``[−lambd, lambd]``, else ``self``."""
    return _activation("hardshrink", lambda x: np.where(np.abs(x) <= lambd, 0.0, x), self)


@denotes("aten.softshrink.default")
def softshrink(self: Array, lambd: float = 0.5) -> Array:
    """``x − lambd`` above lambd, ``x + lambd`` below −lambd, 0 between; lambd is not negative."""
    if lambd < 0:
        raise InvalidIRError(f"softshrink needs a lambd of 0 or more, got {lambd}")
    return _activation(
        "softshrink",
        lambda x: np.where(x > lambd, x - lambd, np.where(x < -lambd, x + lambd, x * 0.0)),
        self,
    )


@denotes("aten.threshold.default")
def threshold(self: Array, threshold: complex, value: complex) -> Array:
    """``value`` where ``self ≤ threshold``, else ``self``. Of integers too.

    Numbers of two bytes are compared as float32.
    """
    require_type("threshold", is_real_number, self)
    wide = compared_as(self.dtype)
    bound, other = number_as(threshold, wide), number_as(value, self.dtype)
    return np.where(self.astype(wide) <= bound, other, self)


@denotes("aten.glu.default")
def glu(self: Array, dim: int = -1) -> Array:
    """``a · sigmoid(b)`` for the halves ``a``, ``b`` along a dimension, whose size is even."""
    require_type("glu", is_float, self)
    place = axis(dim, self.ndim)
    if self.ndim == 0 or self.shape[place] % 2:
        raise InvalidIRError(f"glu halves an even dimension, not {dim} of {list(self.shape)}")
    first, second = np.split(self, 2, axis=place)
    return pointwise(lambda a, b: a / (1 + np.exp(-b)), first, second)
