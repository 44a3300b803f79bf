"""Least squares: the shortest X for which ``‖A X - B‖`` is least.

Singular values up to ``rcond`` times the greatest count as 0. Matrices are the last two axes; what
stands before is a batch. Source: torch.linalg.lstsq; LAPACK's gels, gelsy, gelsd and gelss.
"""

from __future__ import annotations

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.dtypes import Array, real_of, rounded, widened
from torch_ir.semantics.operators.factorizations import finite
from torch_ir.semantics.operators.linear_equations import adjoint
from torch_ir.semantics.registry import denotes

DRIVERS = ("gels", "gelsy", "gelsd", "gelss")


def is_vector(matrix: Array, other: Array) -> bool:
    """Return whether the right side is a vector for each matrix."""
    return other.ndim == matrix.ndim - 1 and other.shape == matrix.shape[:-1]


def rank_limit(matrix: Array, sizes: Array, rcond: float | None) -> Array:
    """Return the singular value of each matrix up to which it counts as 0."""
    usual = float(np.finfo(real_of(matrix.dtype)).eps) * max(matrix.shape[-2:])
    return (usual if rcond is None else rcond) * np.max(sizes, -1, initial=0)


def columns_of(matrix: Array, other: Array) -> Array:
    """Return the right sides as columns, in working precision.

    Raises:
        InvalidIRError: They do not have as many rows as the matrices.
    """
    found = widened(other)[..., None] if is_vector(matrix, other) else widened(other)
    if found.ndim < 2 or found.shape[-2] != matrix.shape[-2]:
        raise InvalidIRError(f"{list(other.shape)} are no right sides of {list(matrix.shape)}")
    return found


@denotes("aten.linalg_lstsq.default")
def lstsq(
    self: Array, b: Array, rcond: float | None = None, *, driver: str | None = None
) -> tuple[Array, Array, Array, Array]:
    """The solution, the squares of what is left, the ranks and the singular values.

    What is left is told of matrices of full rank with more rows than columns, but by ``gelsy``,
    which is the usual driver; the rank by all but ``gels``; singular values by ``gelsd`` and
    ``gelss``. Else these are of shape [0].
    """
    by, matrix = driver or "gelsy", finite(self, "self")
    if by not in DRIVERS or b.dtype != self.dtype:
        raise InvalidIRError(f"no least squares of {self.dtype} and {b.dtype} by {by}")
    other, (rows, columns) = columns_of(self, b), matrix.shape[-2:]
    left, sizes, right = np.linalg.svd(matrix, full_matrices=False)
    kept = sizes > (0 if by == "gels" else rank_limit(self, sizes, rcond)[..., None])
    parts = np.where(kept, 1 / np.where(kept, sizes, 1), 0)[..., None]
    found = adjoint(right) @ (parts * (adjoint(left) @ other))
    ranks, real = np.sum(kept, -1), real_of(self.dtype)
    rest = np.zeros(0)
    if rows > columns and by != "gelsy" and np.all(ranks == columns):
        rest = np.sum(np.abs(other - matrix @ found) ** 2, -2)
    return (
        rounded(found[..., 0] if is_vector(self, b) else found, self.dtype),
        rounded(rest, real),
        np.zeros(0, "int64") if by == "gels" else np.asarray(ranks, "int64"),
        rounded(sizes if by in ("gelsd", "gelss") else np.zeros(0), real),
    )
