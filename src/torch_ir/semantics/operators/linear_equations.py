"""Linear equations: triangular and Cholesky factors, LU with exchanged rows, and solutions.

Matrices are the last two axes; what stands before is a batch. All compute in float64 (complex128),
matrix by matrix, and round once. Of an LU factorization the pivot of each column is its first
element of the greatest modulus (the sum of moduli of both parts, for complex numbers, as LAPACK
has it). Where a matrix has no such factors, numbers are what elimination leaves of it, and
``info`` counts from 1 the column at which that is seen.

Source: torch.linalg; LAPACK's getrf, getrs, potrf, potri, potrs and trtrs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.dtypes import Array, is_complex, is_inexact, real_of, rounded, widened
from torch_ir.semantics.registry import denotes, restate


def adjoint(matrix: Array) -> Array:
    """Return the conjugate transpose."""
    return np.conj(np.swapaxes(matrix, -1, -2))


def eliminated(matrix: Array, *, pivot: bool = True) -> tuple[Array, Array, int]:
    """Return LU factors in one matrix, the row that each step exchanges, and the info.

    Args:
        matrix: One matrix, in float64 or complex128.
        pivot: Whether rows are exchanged.

    Example:
        >>> factors, rows, info = eliminated(np.array([[1.0, 2.0], [4.0, 4.0]]))
        >>> factors.tolist(), rows.tolist(), info
        ([[4.0, 4.0], [0.25, 1.0]], [2, 2], 0)
    """
    factors = matrix.copy()
    count = min(factors.shape)
    rows, info = np.arange(1, count + 1, dtype="int32"), 0
    for k in range(count):
        column = factors[k:, k]
        place = k + int(np.argmax(np.abs(column.real) + np.abs(column.imag))) if pivot else k
        rows[k] = place + 1
        factors[[k, place]] = factors[[place, k]]
        if factors[k, k] == 0:
            info = info or k + 1
            continue
        factors[k + 1 :, k] /= factors[k, k]
        factors[k + 1 :, k + 1 :] -= np.outer(factors[k + 1 :, k], factors[k, k + 1 :])
    return factors, rows, info


def order_of(rows: Array, count: int) -> Array:
    """Return which row comes to stand at each place after the exchanges of a factorization.

    Example:
        >>> order_of(np.array([2, 2]), 3).tolist()
        [1, 0, 2]
    """
    order = np.arange(count)
    for k, place in enumerate(rows):
        order[[k, int(place) - 1]] = order[[int(place) - 1, k]]
    return order


def lower_of(factors: Array) -> Array:
    """Return the factor L of both in one matrix, with ones on its diagonal."""
    count = min(factors.shape[-2:])
    return np.tril(factors[..., :count], -1) + np.eye(factors.shape[-2], count)


def upper_of(factors: Array) -> Array:
    """Return the factor U of both in one matrix."""
    return np.triu(factors[..., : min(factors.shape[-2:]), :])


def substituted(matrix: Array, given: Array, *, upper: bool, unit: bool = False) -> Array:
    """Return the solution of ``matrix · x = given`` for triangular matrices, row by row."""
    batch, count = np.broadcast_shapes(matrix.shape[:-2], given.shape[:-2]), matrix.shape[-1]
    dtype = np.result_type(matrix, given)
    solved = np.broadcast_to(given, (*batch, *given.shape[-2:])).astype(dtype)
    for k in reversed(range(count)) if upper else range(count):
        known = slice(k + 1, count) if upper else slice(0, k)
        terms = matrix[..., k : k + 1, known] @ solved[..., known, :]
        solved[..., k : k + 1, :] = solved[..., k : k + 1, :] - terms
        if not unit:
            solved[..., k : k + 1, :] /= matrix[..., k : k + 1, k : k + 1]
    return solved


def wide(matrix: Array, name: str = "A") -> Array:
    """Return a matrix in working precision.

    Raises:
        InvalidIRError: It is none, or of a type that no equations are solved in.
    """
    if matrix.ndim > 1 and not matrix.size:  # of no elements, whatever their type
        return np.zeros(matrix.shape)
    if matrix.ndim < 2 or not is_inexact(matrix.dtype) or matrix.dtype.itemsize < 4:
        raise InvalidIRError(f"{name} of {matrix.dtype}{list(matrix.shape)} is no matrix of these")
    return widened(matrix)


def by_matrix(
    function: Callable[[Array], Sequence[Any]], matrix: Array, shapes: Sequence[tuple[int, ...]]
) -> list[Array]:
    """Apply a function to each matrix of a batch; ``shapes`` are those of its results."""
    batch = matrix.shape[:-2]
    found = [function(matrix[place]) for place in np.ndindex(*batch)]
    if not found:
        return [np.zeros((*batch, *shape)) for shape in shapes]
    columns = zip(*found, strict=True)
    return [np.stack(c).reshape((*batch, *s)) for c, s in zip(columns, shapes, strict=True)]


def _square(matrix: Array) -> Array:
    if matrix.shape[-1] != matrix.shape[-2]:
        raise InvalidIRError(f"a matrix of shape {list(matrix.shape)} is not square")
    return matrix


def factored(matrix: Array, *, pivot: bool = True) -> tuple[Array, Array, Array]:
    """Return LU factors, pivots and infos of a batch in working precision."""
    least = min(matrix.shape[-2:])
    shapes = (matrix.shape[-2:], (least,), ())
    factors, rows, info = by_matrix(lambda one: eliminated(one, pivot=pivot), matrix, shapes)
    return factors, rows.astype("int32"), info.astype("int32")


@denotes("aten.linalg_lu_factor_ex.default")
def lu_factor(A: Array, *, pivot: bool = True, check_errors: bool = False) -> tuple[Array, ...]:
    """L below the diagonal and U on and above it, the exchanged rows, and the info."""
    factors, rows, info = factored(wide(A), pivot=pivot)
    return rounded(factors, A.dtype), rows, info


def _permutations(rows: Array, count: int) -> Array:
    """P of ``A = P L U``: the row that came to stand at place ``i`` is column ``i``."""
    flat = [
        np.eye(count)[:, order_of(rows[place], count)] for place in np.ndindex(*rows.shape[:-1])
    ]
    return np.array(flat).reshape((*rows.shape[:-1], count, count))


@denotes("aten.linalg_lu.default")
def lu(A: Array, *, pivot: bool = True) -> tuple[Array, Array, Array]:
    """``A = P L U``; without exchanges P is empty."""
    factors, rows, _ = factored(wide(A), pivot=pivot)
    order = _permutations(rows, A.shape[-2]) if pivot else np.zeros(0)
    parts = (order, lower_of(factors), upper_of(factors))
    return tuple([rounded(part, A.dtype) for part in parts])  # type: ignore[return-value]  # three


@denotes("aten.lu_unpack.default")
def lu_unpack(
    LU_data: Array, LU_pivots: Array, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Array, Array, Array]:
    """P, L and U of factors in one matrix; what is not asked for is empty."""
    none = np.zeros(0, LU_data.dtype)
    order = none
    if unpack_pivots:
        order = _permutations(LU_pivots, LU_data.shape[-2]).astype(LU_data.dtype)
    if not unpack_data:
        return order, none, none
    return order, lower_of(LU_data).astype(LU_data.dtype), upper_of(LU_data)


def read_by_columns(A: Array) -> Array:
    """Return in working precision what a determinant is computed of.

    LAPACK reads columns, so that of a real matrix that lies row by row it is the transpose.
    """
    matrix = _square(wide(A))
    is_turned = A.flags.c_contiguous and not is_complex(A.dtype)
    return np.swapaxes(matrix, -1, -2) if is_turned else matrix


@denotes("aten._linalg_det.default")
def determinant(A: Array) -> tuple[Array, Array, Array]:
    """The product of U's diagonal, with the sign of the exchanges; the factors.

    They are those of the transpose, where A is real and contiguous.
    """
    factors, rows, _ = factored(read_by_columns(A))
    exchanges = np.sum(rows != np.arange(1, rows.shape[-1] + 1), -1)
    value = (-1.0) ** exchanges * np.prod(np.diagonal(factors, axis1=-2, axis2=-1), -1)
    return rounded(np.asarray(value), A.dtype), rounded(factors, A.dtype), rows


@denotes("aten._linalg_slogdet.default")
def log_determinant(A: Array) -> tuple[Array, Array, Array, Array]:
    """The determinant's sign, or phase, and the logarithm of its modulus; its factors."""
    factors, rows, _ = factored(read_by_columns(A))
    sign, log = np.linalg.slogdet(wide(A))
    kept = rounded(np.asarray(sign), A.dtype), rounded(np.asarray(log), real_of(A.dtype))
    return *kept, rounded(factors, A.dtype), rows


def _columns(A: Array, B: Array) -> tuple[Array, bool]:
    """The right-hand side as a matrix, and whether it was a batch of vectors."""
    is_vector = B.ndim == 1 or (A.ndim - 1 == B.ndim and B.shape == A.shape[:-1])
    return (B[..., None] if is_vector else B), is_vector


@denotes("aten._linalg_solve_ex.default")
def solve(
    A: Array, B: Array, *, left: bool = True, check_errors: bool = False
) -> tuple[Array, ...]:
    """The solution of ``A x = B`` (``x A = B``), the factors of A and the info."""
    matrix = _square(wide(A))
    given, is_vector = _columns(A, wide(B) if B.ndim > 1 else wide(B[:, None])[:, 0])
    factors, rows, info = factored(matrix)
    right = given if left else np.swapaxes(given, -1, -2)
    result = _solved(factors, rows, right, transposed=not left)
    result = result if left else np.swapaxes(result, -1, -2)
    result = result[..., 0] if is_vector else result
    return rounded(result, A.dtype), rounded(factors, A.dtype), rows, info


def _solved(factors: Array, rows: Array, given: Array, *, transposed: bool = False) -> Array:
    """The solution by factors of A, or of its transpose: exchanged, and substituted twice."""
    if not transposed:
        moved = _exchanged(rows, given)
        first = substituted(lower_of(factors), moved, upper=False, unit=True)
        return substituted(upper_of(factors), first, upper=True)
    lower, upper = (np.swapaxes(part(factors), -1, -2) for part in (lower_of, upper_of))
    first = substituted(upper, given, upper=False)
    return _exchanged(rows, substituted(lower, first, upper=True, unit=True), back=True)


def _exchanged(rows: Array, given: Array, *, back: bool = False) -> Array:
    """The rows of a matrix in the order of the exchanges, or out of it again."""
    count = given.shape[-2]
    orders = [order_of(rows[place], count) for place in np.ndindex(*rows.shape[:-1])]
    order = np.array(orders, dtype="int64").reshape((*rows.shape[:-1], count, 1))
    order = np.argsort(order, -2) if back else order
    batch = np.broadcast_shapes(order.shape[:-2], given.shape[:-2])
    wanted = np.broadcast_to(order, (*batch, count, 1))
    return np.take_along_axis(np.broadcast_to(given, (*batch, *given.shape[-2:])), wanted, -2)


@denotes("aten.linalg_inv_ex.default")
def inverse(A: Array, *, check_errors: bool = False) -> tuple[Array, Array]:
    """The inverse and the info of its factorization."""
    factors, rows, info = factored(_square(wide(A)))
    return rounded(_solved(factors, rows, np.eye(A.shape[-1])), A.dtype), info


@denotes("aten.linalg_lu_solve.default")
def lu_solve(
    LU: Array, pivots: Array, B: Array, *, left: bool = True, adjoint: bool = False
) -> Array:
    """The solution of ``A x = B`` by factors of A, or with A on the right, or its adjoint."""
    factors, given = wide(LU, "LU"), wide(B, "B")
    factors = np.conj(factors) if adjoint else factors
    given = given if left else np.swapaxes(given, -1, -2)
    found = _solved(factors, pivots, given, transposed=adjoint == left)
    return rounded(found if left else np.swapaxes(found, -1, -2), B.dtype)


# -- triangles and Cholesky factors ---------------------------------------------------------------


@denotes("aten.linalg_solve_triangular.default")
def solve_triangular(
    self: Array, B: Array, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Array:
    """The solution of ``A x = B``, or ``x A = B``; of A only one triangle is read."""
    matrix, given = _square(wide(self, "self")), wide(B, "B")
    if not left:
        matrix, given, upper = np.swapaxes(matrix, -1, -2), np.swapaxes(given, -1, -2), not upper
    solved = substituted(matrix, given, upper=upper, unit=unitriangular)
    return rounded(solved if left else np.swapaxes(solved, -1, -2), B.dtype)


@denotes("aten.triangular_solve.default")
def triangular_solve(
    self: Array, A: Array, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Array, Array]:
    """The same with A or its transpose on the left, and A for each batch."""
    matrix = np.swapaxes(A, -1, -2) if transpose else A
    solved = solve_triangular(matrix, self, upper=upper != transpose, unitriangular=unitriangular)
    return solved, np.broadcast_to(A, (*solved.shape[:-2], *A.shape[-2:]))


def _cholesky_factor(matrix: Array) -> tuple[Array, int]:
    """L of ``L Lᴴ``, from the lower triangle, and the first minor that is not positive."""
    factor = np.tril(matrix)
    for k in range(len(matrix)):
        rest = factor[k, k].real - np.sum(np.abs(factor[k, :k]) ** 2)
        if not rest > 0:
            return factor, k + 1
        factor[k, k] = np.sqrt(rest)
        below = factor[k + 1 :, k] - factor[k + 1 :, :k] @ np.conj(factor[k, :k])
        factor[k + 1 :, k] = below / factor[k, k]
    return factor, 0


@denotes("aten.linalg_cholesky_ex.default")
def cholesky_factor(
    self: Array, *, upper: bool = False, check_errors: bool = False
) -> tuple[Array, Array]:
    """L (its adjoint, if upper) of a positive matrix, of which one triangle is read; the info."""
    matrix = _square(wide(self, "self"))
    shapes = (matrix.shape[-2:], ())
    factor, info = by_matrix(_cholesky_factor, adjoint(matrix) if upper else matrix, shapes)
    return rounded(adjoint(factor) if upper else factor, self.dtype), info.astype("int32")


@denotes("aten.cholesky.default")
def cholesky(self: Array, upper: bool = False) -> Array:
    """The same factor of a matrix that has one; any number where roundings may give it one."""
    factor, info = cholesky_factor(self, upper=upper)
    matrix = np.tril(adjoint(wide(self)) if upper else wide(self))
    for place in map(tuple, np.argwhere(info)):
        minor = matrix[place][: info[place], : info[place]]
        sizes = np.linalg.eigvalsh(minor)
        # what LAPACK factors is off by (n + 1) u, 4 times as much of complex numbers
        off = (
            4 * len(minor) * float(ml_dtypes.finfo(real_of(self.dtype)).eps) * np.abs(sizes).max()
        )
        if not np.isfinite(minor).all() or sizes.min() < -off:
            raise InvalidIRError(f"the leading minor of order {info[place]} is not positive")
    return factor


@denotes("aten.cholesky_solve.default")
def cholesky_solve(self: Array, input2: Array, upper: bool = False) -> Array:
    """The solution of ``L Lᴴ x = self`` (``Uᴴ U``)."""
    factor = wide(input2, "input2")
    lower = adjoint(factor) if upper else factor
    first = substituted(lower, wide(self, "self"), upper=False)
    return rounded(substituted(adjoint(lower), first, upper=True), self.dtype)


restate(cholesky_solve, "aten._cholesky_solve_helper.default", A="input2")


@denotes("aten.cholesky_inverse.default")
def cholesky_inverse(self: Array, upper: bool = False) -> Array:
    """The inverse of ``L Lᴴ`` (``Uᴴ U``)."""
    return cholesky_solve(np.eye(self.shape[-1], dtype=self.dtype), self, upper)


@denotes("aten.linalg_matrix_exp.default")
def matrix_exponential(self: Array) -> Array:
    """``Σ Aᵏ / k!``: of ``A / 2ˢ``, whose norm is at most 1, and squared s times, each by its own.

    Of half types, whose products torch leaves as memory was, matrices have one element.
    """
    if self.shape[-2:] == (1, 1) and is_inexact(self.dtype):
        return rounded(np.exp(widened(self)), self.dtype)
    matrix = _square(wide(self, "self"))
    norms = np.max(np.sum(np.abs(matrix), -2), -1, initial=0)[..., None, None]
    times = np.ceil(np.log2(np.clip(np.where(np.isfinite(norms), norms, 1), 1, None)))
    term = np.broadcast_to(np.eye(matrix.shape[-1]), matrix.shape)
    total = term
    for k in range(1, 22):
        term = term @ (matrix / 2.0**times) / k
        total = total + term
    for step in range(int(np.max(times, initial=0))):
        total = np.where(step < times, total @ total, total)
    return rounded(total, self.dtype)


@denotes("aten._linalg_check_errors.default")
def check_errors(info: Array, api_name: str, *, is_matrix: bool) -> tuple[()]:
    """Nothing, where every matrix could be factored."""
    if info.any():
        raise InvalidIRError(f"{api_name}: info is {int(info.max())} for some matrix")
    return ()
