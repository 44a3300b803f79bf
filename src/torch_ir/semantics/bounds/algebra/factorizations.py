"""Bounds of the values of factorizations; their vectors are open, where nothing relates them.

What holds between a matrix and its factors is in
:mod:`torch_ir.semantics.bounds.algebra.relations`. These are what the nodes after a factorization
carry on: singular values, and eigenvalues of Hermitian matrices, are off by ``c(n) · u`` of the
norm (Weyl).
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from torch_ir.semantics.bounds.algebra.linear_equations import spread_of
from torch_ir.semantics.bounds.call import BoundedCall, Errors
from torch_ir.semantics.dtypes import Array
from torch_ir.semantics.operators.factorizations import cut, inverted

OPEN = np.inf
"""Vectors have any sign or phase, and of equal values are any basis."""


def singular_values(call: BoundedCall) -> Errors:
    """Bound S by the norm; U and Vᴴ are open."""
    return [OPEN, _off(call)[..., None], OPEN]


def hermitian_values(call: BoundedCall) -> Errors:
    """Bound the eigenvalues by the norm; the vectors are open."""
    return [_off(call)[..., None], OPEN]


def _off(call: BoundedCall) -> Array:
    """How far values are off; open of a matrix that is not finite."""
    matrix = call.wide("A")
    lost = ~np.isfinite(matrix).all((-2, -1))
    return np.where(lost, OPEN, spread_of(call, matrix))


def free(call: BoundedCall) -> Errors:
    """Leave all results open: R has any signs, and eigenvalues any order."""
    return [OPEN] * len(call.results)


def pseudoinverse(call: BoundedCall) -> Errors:
    """Bound ``2 ‖X‖² E`` (Wedin); open where E decides which singular values count as 0."""
    matrix = inverted(call["self"], hermitian=bool(call["hermitian"]))
    sizes = np.linalg.svd(matrix, compute_uv=False)
    limit = cut(call["self"], sizes, call["atol"], call["rtol"])[..., None]
    off = spread_of(call, matrix)
    least = np.min(np.where(sizes > limit, sizes, np.inf), -1, initial=np.inf)
    lost = not np.isfinite(call["self"]).all()
    is_open = lost | np.any(np.abs(sizes - limit) <= off[..., None], -1) | ~(off < least / 2)
    is_open |= ~(1 / least < float(ml_dtypes.finfo(call.dtype).max)) & (sizes > limit).any(-1)
    moved = np.where(is_open, OPEN, 2 * off / least / least + call.unit / least)
    return [np.broadcast_to(moved[..., None, None], call.results[0].shape)]
