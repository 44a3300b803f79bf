"""Variance and standard deviation over dimensions.

Source: torch.var, torch.std, torch.var_mean and torch.std_mean in torch's documentation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.axes import reduced_axes
from torch_ir.semantics.dtypes import Array, is_inexact, real_of, rounded, widened
from torch_ir.semantics.operators.reductions import Dims, count, mean, wide_mean
from torch_ir.semantics.registry import declare


def wide_variance(
    wide: Array, axes: tuple[int, ...], correction: float, keepdim: bool = True
) -> Array:
    """``Σ |x − mean|² / max(n − correction, 0)`` of values in working precision, not rounded."""
    deviation = wide - wide_mean(wide, axes)
    squares = np.real(deviation) ** 2 + np.imag(deviation) ** 2
    freedom = np.maximum(count(wide.shape, axes) - correction, 0)
    return np.sum(squares, axis=axes, keepdims=keepdim) / freedom


def _declare(name: str, function: Callable[[Array], Array], meaning: str, details: str) -> None:
    """Declare a function of the variance, alone and beside the mean."""

    def measure(
        self: Array, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False
    ) -> Array:
        if not is_inexact(self.dtype):
            raise InvalidIRError(f"{self.dtype} has no variance")
        axes, less = reduced_axes(dim, self.ndim), 1 if correction is None else correction
        variance = wide_variance(widened(self), axes, less, keepdim)
        return rounded(function(variance), real_of(self.dtype))

    def with_mean(
        self: Array, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False
    ) -> tuple[Array, Array]:
        return measure(self, dim, correction=correction, keepdim=keepdim), mean(self, dim, keepdim)

    declare(measure, details, f"aten.{name}.correction")
    declare(with_mean, f"{meaning} and the mean; see ``{name}``.", f"aten.{name}_mean.correction")
    _declare_unbiased(f"aten.{name}", measure, meaning)
    _declare_unbiased(f"aten.{name}_mean", with_mean, f"{meaning} and the mean")


def _declare_unbiased(name: str, base: Callable[..., Any], meaning: str) -> None:
    """Declare the forms with ``unbiased``, for which the correction is 1, else 0."""

    def of_dims(self: Array, dim: Dims, unbiased: bool = True, keepdim: bool = False) -> Any:
        return base(self, dim, correction=int(unbiased), keepdim=keepdim)

    def of_all(self: Array, unbiased: bool = True) -> Any:
        return base(self, correction=int(unbiased))

    declare(of_dims, f"{meaning} with correction 1 where ``unbiased``, else 0.", f"{name}.dim")
    declare(of_all, f"{meaning} of all elements; see ``{name[5:]}.dim``.", f"{name}.default")


_declare(
    *("var", np.positive, "The variance"),
    """``Σ |x − mean|² / max(n − correction, 0)``, correction 1 where absent.

    Dtype: the operand's, the real one for complex. Where n ≤ correction the divisor is 0: the
    result is inf, or NaN where all elements are equal or there is none. inf and NaN give NaN.
    """,
)
_declare(
    *("std", np.sqrt, "The standard deviation"),
    "The square root of the variance, rounded once; see ``var``.",
)
