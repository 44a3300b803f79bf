"""Cumulative sums, products and extremes along a dimension.

Source: torch.cumsum and the others in torch's documentation.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.axes import axis
from torch_ir.semantics.dtypes import Array, is_bool, is_complex, is_inexact, rounded, working
from torch_ir.semantics.operators.complex_numbers import complex_log_sum
from torch_ir.semantics.operators.reductions import accumulated, wide_log_sum
from torch_ir.semantics.registry import denotes


def _scanned(scan: Any, self: Array, dim: int, dtype: np.dtype[Any] | None) -> Array:
    """A running sum or product in working precision, each of its values rounded once."""
    taken = accumulated(self, dtype)
    if is_bool(taken) and self.ndim and self.size:
        raise InvalidIRError("booleans have no running sum or product")
    place = axis(dim, self.ndim)
    wide = rounded(self, taken).astype(working(taken))
    if not self.ndim or is_bool(taken):
        return rounded(wide, taken)
    return rounded(scan(wide, axis=place, dtype=wide.dtype), taken)


@denotes("aten.cumsum.default")
def cumsum(self: Array, dim: int, *, dtype: np.dtype[Any] | None = None) -> Array:
    """``result[…, i, …] = Σ self[…, j, …]`` for j ≤ i, each rounded once.

    Dtype: the one asked for (elements are converted first), or int64 for integers and booleans,
    or the operand's. Integers wrap. As booleans one number is itself, and lines are refused.
    """
    return _scanned(np.cumsum, self, dim, dtype)


@denotes("aten.cumprod.default")
def cumprod(self: Array, dim: int, *, dtype: np.dtype[Any] | None = None) -> Array:
    """``result[…, i, …] = Π self[…, j, …]`` for j ≤ i; otherwise as ``cumsum``."""
    return _scanned(np.cumprod, self, dim, dtype)


@denotes("aten.logcumsumexp.default", "aten._logcumsumexp.default")
def logcumsumexp(self: Array, dim: int) -> Array:
    """``result[…, i, …] = log Σ exp(self[…, j, …])`` for j ≤ i, without overflow between.

    Of complex numbers, one logarithm after the other (:func:`complex_log_sum`).
    """
    place = axis(dim, self.ndim)
    if not is_inexact(self.dtype):
        raise InvalidIRError(f"a running sum of exponentials of {self.dtype} is not defined")
    result = np.moveaxis(np.atleast_1d(self), place, 0).astype(working(self.dtype))
    for i in range(1, len(result)):
        if is_complex(self.dtype):
            result[i] = complex_log_sum(result[i], result[i - 1])
        else:
            result[i] = wide_log_sum(result[i - 1 : i + 1][::-1], 0)[0]
    return rounded(np.moveaxis(result, 0, place).reshape(self.shape), self.dtype)


def _extremes(self: Array, dim: int, largest: bool) -> tuple[Array, Array]:
    """Running extremes and the last index where each is reached; NaN takes over and stays."""
    if not self.ndim:
        return self.copy(), np.zeros((), "int64")
    if is_complex(self.dtype):
        raise InvalidIRError(f"{self.dtype} has no order")
    line = np.moveaxis(np.atleast_1d(self), axis(dim, self.ndim), 0)
    values, places = line.copy(), np.zeros(line.shape, "int64")
    for i in range(1, len(line)):
        before, here = values[i - 1], line[i]
        reached = (here >= before) if largest else (here <= before)
        taken = (here != here) | (reached & (before == before))
        values[i] = np.where(taken, here, before)
        places[i] = np.where(taken, i, places[i - 1])
    place = axis(dim, self.ndim)
    values, places = np.moveaxis(values, 0, place), np.moveaxis(places, 0, place)
    return values.reshape(self.shape), places.reshape(self.shape)


@denotes("aten.cummax.default")
def cummax(self: Array, dim: int) -> tuple[Array, Array]:
    """The largest element up to each place, and the last index where it stands (int64).

    From the first NaN on, the value is NaN, at the last NaN's index.
    """
    return _extremes(self, dim, largest=True)


@denotes("aten.cummin.default")
def cummin(self: Array, dim: int) -> tuple[Array, Array]:
    """The smallest element up to each place, and its last index; see ``cummax``."""
    return _extremes(self, dim, largest=False)
