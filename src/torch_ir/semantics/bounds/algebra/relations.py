"""Relations between operands and results that an operator leaves free.

A factorization has many right answers: signs and phases of vectors, bases of the space that equal
values share, the order of eigenvalues. No answer is compared with another one, but what the matrix
is with what its factors make, orthonormal columns with the identity, values with values. Each is
off by ``c(n) · u`` of the matrix's norm (Higham, "Accuracy and stability of numerical algorithms",
theorem 19.4; Anderson et al., "LAPACK users' guide", chapter 4), whatever its condition. The
eigenvalues of a matrix that is not normal move by as much more as their vectors are near to
dependent (Bauer and Fike), and never by more than Elsner's bound. Of a matrix that is not finite,
or the norm of which overflows on the way in its type, all is open; products that are less than
normal numbers are off by these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import ml_dtypes
import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.bounds.algebra.factorizations import FEW, STEP
from torch_ir.semantics.bounds.algebra.linear_equations import MOST, REACH, inverse_of, norm_of
from torch_ir.semantics.dtypes import Array, is_complex, real_of, widened
from torch_ir.semantics.operators.factorizations import finite, hermitian
from torch_ir.semantics.operators.least_squares import columns_of, rank_limit
from torch_ir.semantics.operators.linear_equations import adjoint
from torch_ir.semantics.operators.reflectors import reflected
from torch_ir.semantics.operators.symmetric_factors import blocks_of, rebuilt, symmetric


@dataclass(frozen=True, slots=True)
class Equation:
    """Two sides that have to be equal, up to a bound.

    Attributes:
        result: The index of the result of which it tells.
        expected: What follows from the operands.
        got: What follows from the results.
        bound: How far each element may be off.
    """

    result: int
    expected: Array
    got: Array
    bound: Array


Relation = Callable[[Mapping[str, Any], Sequence[Array]], Iterator[Equation]]


def relation(op_type: str) -> Relation | None:
    """Return what holds between the arguments and results of an overload, if that judges it.

    Example:
        >>> relation("aten.linalg_qr.default") is not None, relation("aten.add.Tensor")
        (True, None)
    """
    return _RELATIONS.get(op_type)


_LEFT_FREE: Mapping[str, tuple[int, ...]] = {
    "aten._linalg_eigh.default": (1,),
    "aten._linalg_svd.default": (0, 2),
    "aten.geqrf.default": (0, 1),
    "aten.linalg_eig.default": (0, 1),
    "aten.linalg_ldl_factor_ex.default": (0, 1),
    "aten.linalg_qr.default": (0, 1),
}
"""The results whose signs, or whose order, are left to kernels."""


def left_free(op_type: str) -> tuple[int, ...]:
    """Return which results of an overload may be others that make up the same.

    Example:
        >>> left_free("aten._linalg_svd.default"), left_free("aten.add.Tensor")
        ((0, 2), ())
    """
    return _LEFT_FREE.get(op_type, ())


def _unit(matrix: Array, size: int) -> Array:
    """``c(n) · u`` of the type of each matrix, of shape [*, 1, 1]; infinite where all is open."""
    scale = 2 if is_complex(matrix.dtype) else 1
    info = ml_dtypes.finfo(real_of(matrix.dtype))
    unit = scale * float(info.eps) * (FEW + STEP * sqrt(size))
    with np.errstate(all="ignore"):
        is_known = REACH * norm_of(matrix) < float(info.max)
    return np.where(is_known, unit, np.inf)


def _orthonormal(result: int, columns: Array, unit: Array) -> Equation:
    made = adjoint(columns) @ columns
    identity = np.broadcast_to(np.eye(made.shape[-1]), made.shape).astype(made.dtype)
    return Equation(result, identity, made, np.broadcast_to(unit, made.shape))


def _equal(result: int, expected: Array, got: Array, bound: Any) -> Equation:
    """An equation of two arrays in their common type."""
    kind = np.result_type(expected, got)
    shape = np.broadcast_shapes(expected.shape, got.shape)
    whole = np.nan_to_num(np.broadcast_to(np.asarray(bound, "float64"), shape), nan=np.inf)
    whole = np.where(whole == np.finfo("float64").max, np.inf, whole)
    return Equation(result, expected.astype(kind), got.astype(kind), whole)


def _of_qr(arguments: Mapping[str, Any], results: Sequence[Array]) -> Iterator[Equation]:
    """``Q R = A``, ``Qᴴ Q = 1``, and R upper triangular; of R alone, ``Rᴴ R = Aᴴ A``."""
    matrix, (first, second) = finite(arguments["A"]), map(widened, results)
    unit = _unit(arguments["A"], max(matrix.shape[-2:]))
    lengths = norm_of(arguments["A"], axes=(-2,))
    if arguments.get("mode", "reduced") == "r":
        bound = 2 * unit * np.swapaxes(lengths, -1, -2) * lengths
        yield _equal(1, adjoint(matrix) @ matrix, adjoint(second) @ second, bound)
    else:
        yield _equal(1, matrix, first @ second, unit * lengths)
        yield _orthonormal(0, first, unit)
    yield _equal(1, np.triu(second), second, np.where(np.isfinite(unit), 0.0, np.inf))


def _of_svd(arguments: Mapping[str, Any], results: Sequence[Array]) -> Iterator[Equation]:
    """``U diag(S) Vᴴ = A``, both orthonormal, and S the singular values, falling."""
    matrix, (left, sizes, right) = finite(arguments["A"]), map(widened, results)
    unit, norm = _unit(arguments["A"], max(matrix.shape[-2:])), norm_of(arguments["A"])
    meant = np.linalg.svd(matrix, compute_uv=False)
    yield _equal(1, meant, sizes, (unit * norm)[..., 0])
    if not arguments.get("compute_uv", True):
        return
    count = sizes.shape[-1]
    made = (left[..., :, :count] * sizes[..., None, :]) @ right[..., :count, :]
    yield _equal(0, matrix, made, 3 * unit * norm)  # divided and conquered, in many steps
    yield _orthonormal(0, left, unit)
    yield _orthonormal(2, adjoint(right), unit)


def _of_eigh(arguments: Mapping[str, Any], results: Sequence[Array]) -> Iterator[Equation]:
    """``V diag(L) Vᴴ = A``, V orthonormal, and L the eigenvalues, rising."""
    taken = hermitian(arguments["A"], arguments.get("UPLO", "L")).astype(arguments["A"].dtype)
    matrix = finite(taken)
    values, vectors = map(widened, results)
    unit, norm = _unit(taken, matrix.shape[-1]), norm_of(taken)
    yield _equal(0, np.linalg.eigvalsh(matrix), values, (unit * norm)[..., 0])
    if not arguments.get("compute_v", True):
        return
    yield _equal(1, matrix, (vectors * values[..., None, :]) @ adjoint(vectors), unit * norm)
    yield _orthonormal(1, vectors, unit)


def _of_eig(arguments: Mapping[str, Any], results: Sequence[Array]) -> Iterator[Equation]:
    """``A V = V diag(L)``, columns of length 1, and L the eigenvalues in some order."""
    matrix = finite(arguments["self"], "self")
    unit, norm = _unit(arguments["self"], matrix.shape[-1]), norm_of(arguments["self"])
    values, *vectors = map(widened, results)
    meant, basis = np.linalg.eig(matrix)
    bound = _moved_values(basis, norm[..., 0], (unit * norm)[..., 0])
    yield _equal(0, _in_order_of(values, meant.astype("complex128")), values, bound)
    for found in vectors:
        yield _equal(1, matrix @ found, found * values[..., None, :], unit * norm)
        lengths = np.sqrt(np.sum(np.abs(found) ** 2, -2))
        yield _equal(1, np.ones_like(lengths), lengths, unit[..., 0])


def _moved_values(basis: Array, norm: Array, error: Array) -> Array:
    """How far eigenvalues move where a matrix is off by an error: Bauer and Fike, or Elsner."""
    size = max(basis.shape[-1], 1)
    with np.errstate(all="ignore"):
        spread = np.linalg.svd(basis, compute_uv=False)
        condition = np.max(spread, -1, keepdims=True, initial=0) / np.min(
            spread, -1, keepdims=True, initial=np.inf
        )
        first = size * np.nan_to_num(condition, nan=np.inf, posinf=np.inf) * error
        other = (2 * norm + error) ** (1 - 1 / size) * error ** (1 / size)
        return np.fmin(first, size * other)


def _in_order_of(values: Array, meant: Array) -> Array:
    """Numbers in the order in which others are next to them, each taken once."""
    ordered = np.full_like(meant, np.nan)
    for place in np.ndindex(*meant.shape[:-1]):
        apart = np.abs(values[place][:, None] - meant[place][None, :])
        apart = np.where(np.isnan(apart), np.inf, apart)
        for _ in range(meant.shape[-1]):
            row, column = np.unravel_index(int(np.argmin(apart)), apart.shape)
            ordered[(*place, row)] = meant[(*place, column)]
            apart[row, :], apart[:, column] = np.inf, np.inf
    return ordered


_GROWN = 36
"""How much greater than A, times its size, ``|L| |D| |Lᵀ|`` may be (Higham, theorem 11.4)."""


def _of_geqrf(arguments: Mapping[str, Any], results: Sequence[Array]) -> Iterator[Equation]:
    """``Q R = A``, and ``Qᴴ Q = 1``, Q being what the reflectors make."""
    matrix, (packed, scales) = finite(arguments["self"], "self"), map(widened, results)
    unit = _unit(arguments["self"], max(matrix.shape[-2:]))
    rows, count = matrix.shape[-2], scales.shape[-1]
    identity = np.broadcast_to(np.eye(rows, count), (*matrix.shape[:-1], count))
    factor = reflected(packed, scales, identity.astype(packed.dtype))
    upper = np.triu(packed[..., :count, :])
    yield _equal(0, matrix, factor @ upper, unit * norm_of(arguments["self"], axes=(-2,)))
    yield _orthonormal(1, factor, unit)


def _of_ldl(arguments: Mapping[str, Any], results: Sequence[Array]) -> Iterator[Equation]:
    """``L D Lᵀ = A``, L lower triangular, and the info the first row where D is 0."""
    is_hermitian = bool(arguments.get("hermitian"))
    whole = np.where(np.isfinite(arguments["self"]), arguments["self"], 0)
    matrix = symmetric(widened(whole.astype(arguments["self"].dtype)), hermitian=is_hermitian)
    packed, pivots, info = widened(results[0]), results[1], results[2]
    unit, size = _unit(arguments["self"], matrix.shape[-1]), matrix.shape[-1]
    try:
        made, reach = rebuilt(packed, pivots, hermitian=is_hermitian)
        singular = _first_zero(packed, pivots)
    except InvalidIRError:  # they are no pivots, and nothing is right
        made, reach = np.full_like(packed, np.nan), np.zeros(packed.shape)
        singular = info
    norm = norm_of(matrix.astype(arguments["self"].dtype))
    least = norm_of(np.zeros_like(results[0]))
    yield _equal(0, matrix, made, unit * (np.minimum(reach, _GROWN * size * norm) + least))
    is_open = np.where(np.isinf(unit), np.inf, 0.0)
    yield _equal(0, np.tril(packed), packed, is_open)
    yield Equation(2, singular.astype(info.dtype), info, is_open[..., 0, 0])


def _first_zero(packed: Array, pivots: Array) -> Array:
    found = np.zeros(packed.shape[:-2], "int64")
    for place in np.ndindex(*packed.shape[:-2]):
        steps = [start for start, step, _ in blocks_of(pivots[place]) if step == 1]
        zeros = [start + 1 for start in steps if packed[(*place, start, start)] == 0]
        found[place] = min(zeros, default=0)
    return found


def _of_ldl_solve(arguments: Mapping[str, Any], results: Sequence[Array]) -> Iterator[Equation]:
    """``A X = B`` up to what the factors of A, and X, are in size (Higham, theorem 11.3)."""
    packed, other = widened(arguments["LD"]), widened(arguments["B"])
    found, is_hermitian = widened(results[0]), bool(arguments.get("hermitian"))
    made, reach = rebuilt(packed, arguments["pivots"], hermitian=is_hermitian)
    unit = _unit(arguments["LD"], made.shape[-1]) / 4  # element by element
    terms = reach @ np.abs(found) + np.abs(other)
    most = float(ml_dtypes.finfo(real_of(arguments["LD"].dtype)).max)
    carried = np.sum(inverse_of(made) @ (unit * reach), -1)
    is_open = ~(np.max(carried, -1, initial=0) < MOST) | ~(REACH * terms < most).all((-2, -1))
    bound = np.where(is_open[..., None, None], np.inf, unit * terms)
    yield _equal(0, np.broadcast_to(other, found.shape), made @ found, bound)


def _of_lstsq(arguments: Mapping[str, Any], results: Sequence[Array]) -> Iterator[Equation]:
    """``Aᴴ A X = Aᴴ B`` and ``A⁺ A X = X``, open where roundings decide the rank."""
    given, matrix = arguments["self"], finite(arguments["self"], "self")
    other = columns_of(given, arguments["b"])
    found = columns_of(np.swapaxes(given, -1, -2), results[0])
    left, sizes, right = np.linalg.svd(matrix, full_matrices=False)
    unit, norm = _unit(given, max(matrix.shape[-2:])), norm_of(given)
    limit = rank_limit(given, sizes, arguments.get("rcond"))[..., None]
    kept = sizes > (0 if arguments.get("driver") == "gels" else limit)
    near = (sizes * _UNDECIDED > limit) & (sizes < limit * _UNDECIDED)
    unit = np.where(np.any(near, -1)[..., None, None], np.inf, unit)
    shortened = (left * np.where(kept, sizes, 0)[..., None, :]) @ right
    lengths = np.sqrt(np.sum(np.abs(found) ** 2, -2, keepdims=True))
    sides = np.sqrt(np.sum(np.abs(other) ** 2, -2, keepdims=True))
    off = unit * (norm * lengths + sides)
    turned = adjoint(shortened)
    yield _equal(0, turned @ other, turned @ shortened @ found, norm * off)
    least = np.min(np.where(kept, sizes, np.inf), -1, initial=np.inf)[..., None, None]
    directions = adjoint(right) * kept[..., None, :]
    along = directions @ (adjoint(directions) @ found)
    yield _equal(0, along, found, 2 * unit * norm / least * (lengths + sides / least))
    if results[1].size:
        rest, shape = (
            np.sum(np.abs(other - matrix @ found) ** 2, -2, keepdims=True),
            results[1].shape,
        )
        bound = np.broadcast_to(2 * np.sqrt(rest) * off + off**2 + unit * rest, rest.shape)
        yield _equal(1, rest.reshape(shape), results[1], bound.reshape(shape))
    if results[2].size:
        is_open = np.where(np.isinf(unit), np.inf, 0.0)[..., 0, 0]
        yield Equation(2, np.asarray(np.sum(kept, -1), "int64"), results[2], is_open)
    if results[3].size:
        own = _unit(given, max(matrix.shape[-2:])) * norm
        yield _equal(3, sizes, widened(results[3]), own[..., 0])


_UNDECIDED = 50
"""How far a driver may be off that estimates which singular values count as 0."""

_RELATIONS: Mapping[str, Relation] = {
    "aten.linalg_lstsq.default": _of_lstsq,
    "aten.geqrf.default": _of_geqrf,
    "aten.linalg_ldl_factor_ex.default": _of_ldl,
    "aten.linalg_ldl_solve.default": _of_ldl_solve,
    "aten.linalg_qr.default": _of_qr,
    "aten._linalg_svd.default": _of_svd,
    "aten._linalg_eigh.default": _of_eigh,
    "aten.linalg_eig.default": _of_eig,
    "aten.linalg_eigvals.default": _of_eig,
    "aten._linalg_eigvals.default": _of_eig,
}
