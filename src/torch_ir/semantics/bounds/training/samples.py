"""Bounds of the gradients of samples, by how kernels approximate them."""

from __future__ import annotations

import numpy as np

from torch_ir.semantics.bounds.call import BoundedCall, Errors, least_normal, moduli
from torch_ir.semantics.dtypes import Array

FITTED_GAMMA, FITTED_BETA = 4e-3, 1e-2
"""What torch's gradients of samples are off by, relatively: series cut off, an expansion about a
saddle, and fits by polynomials in two variables. Measured where 2,000 shapes have their samples,
and doubled."""


def gamma_gradient(call: BoundedCall) -> Errors:
    """Allow what a fit is off by where it was made: of shapes from 0.1 on near samples' mean.

    A series is summed below 0.8, where nothing is fitted: of multiples of ``xᵃ``, which have to
    be normal numbers. Else it is open.
    """
    (result,) = call.results
    a, x = np.broadcast_arrays(call.wide("self"), call.wide("output"))
    with np.errstate(all="ignore"):
        has_power = a * np.log(x) - 2 * np.log(a) > np.log(least_normal(call.dtype)) + 1
        is_summed = (x < 0.8) & has_power
        is_fitted = is_summed | ((a >= 0.1) & (np.abs(x - a) <= 6 * (np.sqrt(a) + 1)))
    return [_fitted(call, result, is_fitted & (a > 1e-3), FITTED_GAMMA)]


def beta_gradient(call: BoundedCall) -> Errors:
    """Allow what a fit is off by within 4 deviations of the mean, of α and β from 0.01 to 100."""
    (result,) = call.results
    x, a, total = np.broadcast_arrays(*(call.wide(name) for name in ("x", "alpha", "total")))
    mean, least, most = a / total, np.minimum(a, total - a), np.maximum(a, total - a)
    deviation = np.sqrt(mean * (1 - mean) / (total + 1))
    is_fitted = (least >= 0.01) & (most <= 100) & (np.abs(x - mean) <= 4 * deviation)
    return [_fitted(call, result, is_fitted, FITTED_BETA)]


def _fitted(call: BoundedCall, result: Array, is_fitted: Array, share: float) -> Array:
    error = (share + call.unit * 8) * moduli(result)
    return np.where(is_fitted & np.isfinite(result.astype("float64")), error, np.inf)
