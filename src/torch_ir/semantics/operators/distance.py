"""Distances between vectors.

``‖d‖ₚ = (Σₖ |dₖ|ᵖ)^(1/p)``; for p = 0 the number of dₖ ≠ 0, for p = ∞ the greatest |dₖ|. Without
elements it is 0. A NaN makes the distance NaN. (torch loses it for p = ∞ and short vectors.)

Source: torch.cdist, torch.nn.functional.pdist.
"""

from __future__ import annotations

from math import inf

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.dtypes import Array, is_float, rounded, working
from torch_ir.semantics.registry import denotes


def norm(values: Array, p: float) -> Array:
    """``‖values‖ₚ`` over the last axis, in the dtype of the values."""
    sizes = np.abs(values)
    if p == 0:
        return np.sum(np.where(np.isnan(values), values, values != 0), axis=-1)
    if p == inf:
        return np.max(sizes, axis=-1, initial=0)
    if p == 1:
        return np.sum(sizes, axis=-1)
    if p == 2:
        return np.sqrt(np.sum(sizes * sizes, axis=-1))
    return np.sum(sizes**p, axis=-1) ** (1 / p)


def _require(p: float, *operands: Array) -> None:
    if not p >= 0:
        raise InvalidIRError(f"there is no norm of order {p}")
    for values in operands:
        if not is_float(values.dtype) and values.size:
            raise InvalidIRError(f"distances are of floating-point numbers, not {values.dtype}")


@denotes("aten._cdist_forward.default", "aten.cdist.default")
def cdist(x1: Array, x2: Array, p: float = 2.0, compute_mode: int | None = None) -> Array:
    """``result[…, i, j] = ‖x1[…, i, :] - x2[…, j, :]‖ₚ``; batches broadcast.

    Shapes: [*, m, k], [*, n, k] → [*, m, n]; dtype: the operands'. ``compute_mode`` chooses how
    torch computes p = 2, not what: with products of matrices it loses about half of the digits of
    vectors that are close to each other.
    """
    _require(p, x1, x2)
    if min(x1.ndim, x2.ndim) < 2 or x1.shape[-1] != x2.shape[-1] or x1.dtype != x2.dtype:
        operands = f"{x1.dtype}{list(x1.shape)} and {x2.dtype}{list(x2.shape)}"
        raise InvalidIRError(f"{operands} do not hold vectors of one length and dtype")
    wide = working(x1.dtype)
    first, second = x1.astype(wide), x2.astype(wide)
    batch = np.broadcast_shapes(first.shape[:-2], second.shape[:-2])
    total = np.zeros((*batch, first.shape[-2], second.shape[-2]), wide)
    for row in range(first.shape[-2]):  # all pairs at once would take k times the result's memory
        total[..., row, :] = norm(first[..., row, None, :] - second, p)
    return rounded(total, x1.dtype)


@denotes("aten._pdist_forward.default", "aten.pdist.default")
def pdist(self: Array, p: float = 2.0) -> Array:
    """``‖self[i] - self[j]‖ₚ`` for i < j, in the order (0, 1), (0, 2), …, (1, 2), ….

    Shapes: [n, k] → [n · (n - 1) / 2]; dtype: the same.
    """
    _require(p, self)
    if self.ndim != 2:
        raise InvalidIRError(f"a tensor of shape {list(self.shape)} is no list of vectors")
    values = self.astype(working(self.dtype) if self.size else "float64")
    parts = [norm(values[i] - values[i + 1 :], p) for i in range(len(values))]
    return rounded(np.concatenate([*parts, np.zeros(0, values.dtype)]), self.dtype)
