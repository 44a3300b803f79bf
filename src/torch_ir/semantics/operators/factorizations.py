"""Orthogonal factors, singular values and eigenvalues, and the pseudoinverse.

Matrices are the last two axes; what stands before is a batch. Singular values fall, eigenvalues of
Hermitian matrices rise. Signs, phases and the order of other eigenvalues are those of LAPACK where
a program is evaluated, and left to kernels where these are judged: what has to hold between a
matrix and its factors is in :mod:`torch_ir.semantics.bounds.algebra.relations`.

Source: torch.linalg; LAPACK's geqrf, gesdd, heevd and geev.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.dtypes import Array, is_complex, real_of, rounded
from torch_ir.semantics.operators.linear_equations import adjoint, wide
from torch_ir.semantics.registry import denotes


def finite(matrix: Array, name: str = "A") -> Array:
    """Return a matrix in working precision, with 0 for NaN and infinities: of those all is open.

    Raises:
        InvalidIRError: It is none of these.
    """
    taken = wide(matrix, name)
    return np.where(np.isfinite(taken), taken, 0)


def hermitian(matrix: Array, half: str) -> Array:
    """Return the matrix of which one triangle is read, with a real diagonal.

    Example:
        >>> hermitian(np.array([[1.0, 7.0], [2.0, 3.0]]), "L").tolist()
        [[1.0, 2.0], [2.0, 3.0]]
    """
    lower = np.tril(matrix if half.upper() == "L" else adjoint(matrix), -1)
    diagonal = np.real(np.diagonal(matrix, axis1=-2, axis2=-1))
    return lower + adjoint(lower) + np.eye(matrix.shape[-1]) * diagonal[..., None, :]


@denotes("aten.linalg_qr.default")
def qr(A: Array, mode: str = "reduced") -> tuple[Array, Array]:
    """``A = Q R``, Q with orthonormal columns and R upper triangular; for ``"r"`` R alone."""
    if mode not in ("reduced", "complete", "r"):
        raise InvalidIRError(f"there is no mode {mode!r} of a QR factorization")
    matrix = finite(A)
    if mode == "r":
        first, second = np.zeros(0), np.linalg.qr(matrix, "r")
    else:
        first, second = np.linalg.qr(matrix, mode)  # type: ignore[call-overload]  # of two words
    return rounded(first, A.dtype), rounded(second, A.dtype)


@denotes("aten._linalg_svd.default")
def svd(
    A: Array, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None
) -> tuple[Array, Array, Array]:
    """``A = U diag(S) Vᴴ``; U and Vᴴ are empty where they are not asked for."""
    matrix, none = finite(A), np.zeros(0, A.dtype)
    if not compute_uv:
        sizes = np.linalg.svd(matrix, compute_uv=False)
        return none, rounded(sizes, real_of(A.dtype)), none
    left, sizes, right = np.linalg.svd(matrix, full_matrices)
    return rounded(left, A.dtype), rounded(sizes, real_of(A.dtype)), rounded(right, A.dtype)


@denotes("aten._linalg_eigh.default")
def eigh(A: Array, UPLO: str = "L", compute_v: bool = True) -> tuple[Array, Array]:
    """``A = V diag(L) Vᴴ`` of the matrix of which one triangle is read; V may be left out."""
    matrix = finite(hermitian(wide(A), UPLO))
    values, vectors = np.linalg.eigh(matrix)
    kept = rounded(vectors, A.dtype) if compute_v else np.zeros(0, A.dtype)
    return rounded(values, real_of(A.dtype)), kept


def _complex_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype if is_complex(dtype) else np.result_type(dtype, "complex64")


@denotes("aten.linalg_eig.default")
def eig(self: Array) -> tuple[Array, Array]:
    """``A V = V diag(L)``, the columns of V of length 1; both are complex."""
    kind = _complex_of(self.dtype)
    values, vectors = np.linalg.eig(finite(self, "self"))
    return rounded(values.astype("complex128"), kind), rounded(vectors.astype("complex128"), kind)


@denotes("aten.linalg_eigvals.default", "aten._linalg_eigvals.default")
def eigvals(self: Array) -> Array:
    """The eigenvalues of a matrix, complex, each as often as it is one."""
    values = np.linalg.eigvals(finite(self, "self"))
    return rounded(values.astype("complex128"), _complex_of(self.dtype))


@denotes("aten.linalg_pinv.atol_rtol_tensor")
def pseudoinverse(
    self: Array, *, atol: Array | None = None, rtol: Array | None = None, hermitian: bool = False
) -> Array:
    """``V diag(1 / S) Uᴴ`` of the singular values above ``max(atol, rtol · max S)``.

    ``rtol`` is by default the larger size times ε, and 0 where only ``atol`` is given.
    """
    if not self.size:
        return np.zeros((*self.shape[:-2], self.shape[-1], self.shape[-2]), self.dtype)
    left, sizes, right = np.linalg.svd(inverted(self, hermitian=hermitian), full_matrices=False)
    kept = sizes > cut(self, sizes, atol, rtol)[..., None]
    scaled = adjoint(right) * np.where(kept, 1 / np.where(kept, sizes, 1), 0)[..., None, :]
    return rounded(scaled @ adjoint(left), self.dtype)


def inverted(matrix: Array, *, hermitian: bool) -> Array:
    """Return what a pseudoinverse is taken of: for Hermitian ones, by the lower triangle."""
    taken = finite(matrix, "self")
    return _hermitian(taken, "L") if hermitian else taken


_hermitian = hermitian


def cut(matrix: Array, sizes: Array, atol: Array | None, rtol: Array | None) -> Array:
    """Return the singular value of each matrix of a batch up to which it counts as 0."""
    largest = np.max(sizes, axis=-1, initial=0)
    eps = float(np.finfo(real_of(matrix.dtype)).eps) if matrix.dtype.kind in "fc" else 0.0
    usual = max(matrix.shape[-2:], default=0) * eps
    first = np.zeros(()) if atol is None else np.asarray(atol, "float64")
    second = np.where(first > 0, 0.0, usual) if rtol is None else np.asarray(rtol, "float64")
    return np.maximum(first, second * largest)
