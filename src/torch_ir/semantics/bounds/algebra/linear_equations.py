"""Bounds of what solves linear equations: the backward error, weighed by the inverse.

Elimination gives the exact factors, and solutions, of a matrix that is off by no more than
``E = u · c(n) · |L| |U|``, element by element (Higham, "Accuracy and stability of numerical
algorithms", theorems 8.5, 9.4 and 10.4), c being a walk of √n roundings. What that moves results
by is of the first order in ``|A⁻¹| E``; where this is not below one half, the result is open. What
is less than normal numbers may be nothing to a kernel, which each product of E counts.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import ml_dtypes
import numpy as np

from torch_ir.semantics.bounds.call import BoundedCall, Errors, least_normal, moduli
from torch_ir.semantics.dtypes import Array, is_complex, real_of
from torch_ir.semantics.operators.linear_equations import (
    adjoint,
    factored,
    lower_of,
    order_of,
    read_by_columns,
    upper_of,
)

FEW = 2
COMPLEX = 2
"""A complex product is off by √2 · 2u (Higham, lemma 3.5) and added with u: 3.8 u, of 2 u else."""
_STEP = 0.75
"""How far a walk of n roundings goes, in units of √n: few of them are as large as may be."""
_SCALE = {"float32": 3.01, "float64": 1.09}
"""The norm from which an exponential is that of a part, squared (Bader, Blanes and Casas)."""
_HALVINGS = 1000
"""Of what is greater the exponential overflows, however often it is halved."""
_DEGREE_8 = {"float32": (0.051, 0.581), "float64": (3.3e-4, 0.05)}
_FIFTH = 900
"""Of norms between these torch takes a polynomial of degree 8, which is off by ``A⁵ / 1000``."""
REACH = 4
"""How much greater than the norm numbers on the way to orthogonal factors may be."""
MOST = 0.5
"""Where the first order says how far a result moves."""


def _count(call: BoundedCall, size: int) -> float:
    scale = COMPLEX if any(is_complex(r.dtype) for r in call.results) else 1
    return call.unit * scale * (FEW + _STEP * sqrt(size))


def spread_of(call: BoundedCall, matrix: Array) -> Array:
    """Return the norm of what orthogonal factors of each matrix of a batch are exact factors of.

    That is how far it is from the matrix: ``c(n) · u`` of the norm (Higham, theorem 19.4).
    """
    norm = norm_of(_finite(matrix), call.dtype)[..., 0, 0]
    is_known = REACH * norm < float(ml_dtypes.finfo(call.dtype).max)
    return np.where(is_known, 4 * _count(call, max(matrix.shape[-2:])) * norm, np.inf)


def norm_of(
    matrix: Array, dtype: np.dtype[Any] | None = None, axes: tuple[int, ...] = (-2, -1)
) -> Array:
    """Return the Frobenius norm of each matrix of a batch, of shape [*, 1, 1].

    That is at most √n times the greatest singular value. It is at least so much that all places
    of the type are normal numbers.

    Args:
        matrix: The matrices.
        dtype: The type; that of the matrices if None.
        axes: What is taken together: of columns the first axis of a matrix alone.
    """
    info = ml_dtypes.finfo(real_of(dtype or matrix.dtype))
    least, sizes = float(info.smallest_normal) / float(info.eps), moduli(matrix)
    greatest = np.maximum(np.max(sizes, axes, keepdims=True, initial=0), least)
    parts = np.sum((sizes / greatest) ** 2, axes, keepdims=True)
    return np.asarray(least + greatest * np.sqrt(parts))


def _backward(call: BoundedCall, grown: Array) -> Array:
    """E, given ``|L| |U|`` of a square matrix."""
    size = grown.shape[-1]
    return np.asarray(_count(call, size) * grown + size * least_normal(call.dtype))


def _finite(matrix: Array) -> Array:
    return np.where(np.isfinite(matrix), matrix, 0)


def _lost(matrix: Array) -> Array:
    """Which matrices of a batch hold what is not finite: whether that is a pivot is no law."""
    return np.asarray(~np.isfinite(matrix).all((-2, -1)))


def _overflow(call: BoundedCall, *ways: Array) -> Array:
    """Which matrices of a batch have something on the way that overflows in the type."""
    largest = float(ml_dtypes.finfo(call.dtype).max)
    over = [~(np.max(np.abs(way), (-2, -1), initial=0) < largest) for way in ways]
    return np.asarray(np.any(np.broadcast_arrays(*over), 0))


def inverse_of(matrix: Array) -> Array:
    """Return |A⁻¹| of each matrix of a batch; infinite of what has none."""
    left, sizes, right = np.linalg.svd(_finite(matrix))
    scaled = adjoint(right) / np.where(sizes == 0, np.nan, sizes)[..., None, :]
    return np.nan_to_num(np.abs(scaled @ adjoint(left)), nan=np.inf, posinf=np.inf)


def _grown(matrix: Array) -> Array:
    """|L| |U| in the order of the matrix's rows."""
    factors, rows, _ = factored(matrix)
    grown = np.abs(lower_of(factors)) @ np.abs(upper_of(factors))
    return np.take_along_axis(grown, _places(rows)[..., None], -2)


def _places(rows: Array) -> Array:
    """Where each row of a square matrix came to stand."""
    orders = [order_of(rows[place], rows.shape[-1]) for place in np.ndindex(*rows.shape[:-1])]
    return np.argsort(np.array(orders, int).reshape(rows.shape), -1)


def _solved(inverse: Array, error: Array, solution: Array) -> tuple[Array, Array]:
    """How far a solution moves, and which matrices of the batch are open."""
    reach = inverse @ error
    moved = reach @ np.abs(solution)
    is_open = ~(np.max(np.sum(reach, -1), -1, initial=0) < MOST)
    return np.where(is_open[..., None, None], np.inf, moved), is_open


def _overflowing(call: BoundedCall, factors: Array, found: Array, *, transposed: bool) -> Array:
    """Which columns of a solution have something on the way that overflows in the type.

    That is what one substitution gives the other, its terms, and reciprocals of pivots, by which
    libraries multiply.
    """
    inner, outer = np.abs(upper_of(factors)), np.abs(lower_of(factors))
    pivots: Array = np.diagonal(inner, axis1=-2, axis2=-1)
    if transposed:
        inner, outer = np.swapaxes(outer, -1, -2), np.swapaxes(inner, -1, -2)
    between = inner @ np.abs(found)
    way = np.maximum(between, outer @ between)
    largest = float(ml_dtypes.finfo(call.dtype).max)
    is_over = np.max(way, -2, keepdims=True, initial=0) >= largest
    return is_over | (1 / np.min(pivots, -1, initial=1) >= largest)[..., None, None]


def _opened(is_open: Array, result: Array) -> Array:
    """Infinite where a matrix of the batch is open."""
    axes = tuple(range(is_open.ndim, result.ndim))
    return np.broadcast_to(np.expand_dims(np.where(is_open, np.inf, 0.0), axes), result.shape)


def solution(call: BoundedCall) -> Errors:
    """Bound ``|A⁻¹| E |x|``, of an inverse too; and the factors of A."""
    matrix, result = _finite(call.wide("A")), call.results[0]
    found = np.asarray(result)
    is_vector = found.ndim == matrix.ndim - 1
    found = found[..., None] if is_vector else found
    inverse, grown = inverse_of(matrix), _grown(matrix)
    error, is_over = _backward(call, grown), _overflow(call, grown)
    if call["left"] is False:
        inverse, error, found = (np.swapaxes(part, -1, -2) for part in (inverse, error, found))
    sizes, is_right = moduli(found), call["left"] is False
    moved, is_open = _solved(inverse, error, sizes)
    whole, _, _ = factored(matrix)
    moved = np.where(_overflowing(call, whole, sizes, transposed=is_right), np.inf, moved)
    lost = np.broadcast_to(_lost(call["A"]) | is_over, is_open.shape)
    moved, is_open = np.where(lost[..., None, None], np.inf, moved), is_open | lost
    moved = np.swapaxes(moved, -1, -2) if call["left"] is False else moved
    moved = moved[..., 0] if is_vector else moved
    beside = _of_factors(call, matrix) if len(call.results) > 2 else []
    batch = is_open if is_open.ndim == call.results[-1].ndim else np.any(is_open)
    return [moved, *beside, _opened(np.asarray(batch), call.results[-1])]


def determinant(call: BoundedCall) -> Errors:
    """Bound ``Σ |adj A| E``, for the logarithm as a part of the determinant; and the factors.

    Of a random matrix of 5 rows that is 60 ε of the determinant, 130 ε of a complex one, though
    torch's own error is a tenth: any entry's rounding moves it, by as much as its minor weighs.
    """
    matrix = _finite(read_by_columns(call["A"]))
    left, sizes, right = np.linalg.svd(matrix)
    count = matrix.shape[-1]
    others = [np.prod(np.delete(sizes, k, -1), -1) for k in range(count)]
    minors = np.stack(others, -1) if count else sizes
    adjugate = (np.abs(adjoint(right)) * minors[..., None, :]) @ np.abs(adjoint(left))
    unit = _count(call, count)
    value = np.prod(sizes, -1)
    rows = _grown(matrix)
    grown = unit * rows
    error = np.sum(np.swapaxes(adjugate, -1, -2) * grown, (-2, -1)) + unit * value
    # of a matrix that lacks two ranks, each minor is 0: what is left is of a higher order
    # (Ipsen and Rehman, Perturbation Bounds for Determinants, 2008)
    norm = np.sqrt(np.sum(grown**2, (-2, -1)))
    higher = np.prod(sizes + norm[..., None], -1) - value - np.sum(minors, -1) * norm
    error = error + np.maximum(np.where(np.isnan(higher), 0, higher), 0)
    error = np.where(_lost(call["A"]) | _overflow(call, rows), np.inf, error)
    beside = _of_factors(call, matrix)
    if len(call.results) == 3:
        pivots: Array = np.diagonal(call.results[1], axis1=-2, axis2=-1)
        way = np.prod(np.maximum(moduli(pivots), 1), -1)  # of a product in any order
        least = float(ml_dtypes.finfo(call.dtype).smallest_subnormal)
        return [call.opened(error + count * least * way, way), *beside]
    part = error / value
    is_sure = part < MOST
    sign = np.where(is_sure, unit if is_complex(call.results[0].dtype) else 0.0, np.inf)
    sign = sign + (part if is_complex(call.results[0].dtype) else 0)
    terms = np.sum(np.abs(np.log(sizes)), -1)
    return [sign, np.where(is_sure, 2 * part + unit * terms, np.inf), *beside]


def factors(call: BoundedCall) -> Errors:
    """Bound L and U by ``|L| tril(|L⁻¹| E |U⁻¹|)`` and the like; open where pivots nearly tie."""
    matrix, pivot = _finite(call.wide("A")), call["pivot"] is not False
    if len(call.results) == 3 and call.results[-1].ndim == matrix.ndim:  # P, L, U
        whole, _, _ = factored(matrix, pivot=pivot)
        off_lower, off_upper, is_open = _of_triangles(call, whole, pivot)
        return [_opened(is_open, call.results[0]), off_lower, off_upper]
    packed, pivots = _of_factors(call, matrix, pivot=pivot)
    return [packed, pivots, *[np.where(np.any(pivots, -1), np.inf, 0) for _ in call.results[2:]]]


def _of_factors(call: BoundedCall, matrix: Array, *, pivot: bool = True) -> tuple[Array, Array]:
    """The bounds of both factors in one matrix, and of the exchanged rows."""
    whole, rows, _ = factored(matrix, pivot=pivot)
    off_lower, off_upper, is_open = _of_triangles(call, whole, pivot)
    tall, wide = whole.shape[-2:]
    count, axes = min(tall, wide), [(0, 0)] * (whole.ndim - 2)
    low = np.pad(off_lower, [*axes, (0, 0), (0, wide - count)])
    high = np.pad(off_upper, [*axes, (0, tall - count), (0, 0)])
    kept = np.tril(np.ones(whole.shape[-2:]), -1) > 0
    return np.where(kept, low, high), _opened(is_open, rows)


def _of_triangles(call: BoundedCall, whole: Array, pivot: bool) -> tuple[Array, Array, Array]:
    """The bounds of L and of U, and which matrices are open."""
    lower, upper = lower_of(whole), upper_of(whole)
    count = lower.shape[-1]
    first, second = inverse_of(lower[..., :count, :]), inverse_of(upper[..., :count])
    sizes, tops = np.abs(lower), np.abs(upper)
    error = _count(call, count) * (sizes @ tops) + count * least_normal(call.dtype)
    inner = first @ error[..., :count, :count] @ second
    square = np.triu(inner) @ tops[..., :count]
    beyond = first @ (error[..., :count, count:] + np.tril(inner) @ tops[..., count:])
    off_upper = np.concatenate([square, beyond], -1)
    off_lower = (error[..., :count] + sizes @ square) @ second
    off_lower[..., :count, :] = sizes[..., :count, :] @ np.tril(inner, -1)
    pivots = np.diagonal(upper, axis1=-2, axis2=-1)[..., None, :]
    rivals = np.tril(_added(lower * pivots) / _added(pivots), -1)
    is_near = pivot & (rivals + 2 * off_lower >= 1) & (rivals > 0)
    is_open = ~(np.max(np.sum(inner, -1), -1, initial=0) < MOST) | np.any(is_near, (-2, -1))
    is_open |= _lost(call["A"]) | _overflow(call, sizes @ tops)
    place = is_open[..., None, None]
    return np.where(place, np.inf, off_lower), np.where(place, np.inf, off_upper), is_open


def _added(values: Array) -> Array:
    """|re| + |im|, by which LAPACK compares pivots."""
    return np.abs(values.real) + np.abs(values.imag)


def by_factors(call: BoundedCall) -> Errors:
    """Bound ``|A⁻¹| E |x|`` of a solution by given factors, which are exact."""
    whole, (result,) = call.wide("LU"), call.results
    lower, upper = lower_of(whole), upper_of(whole)
    inverse = inverse_of(lower), inverse_of(upper)
    error = _backward(call, np.abs(lower) @ np.abs(upper))
    back = _places(call["pivots"])
    reach = inverse[1] @ inverse[0]
    reach = np.take_along_axis(reach, back[..., None, :], -1)
    error = np.take_along_axis(error, back[..., None], -2)
    is_left = call["left"] is not False
    if (call["adjoint"] is True) == is_left:
        reach, error = (np.swapaxes(part, -1, -2) for part in (reach, error))
    values = moduli(result) if is_left else np.swapaxes(moduli(result), -1, -2)
    moved, _ = _solved(reach, error, values)
    is_over = _overflowing(call, whole, values, transposed=(call["adjoint"] is True) == is_left)
    moved = np.where(is_over, np.inf, moved)
    return [moved if is_left else np.swapaxes(moved, -1, -2)]


def triangular(call: BoundedCall) -> Errors:
    """Bound ``|T⁻¹| |T| |x|`` of a substitution; a copy of the matrix is exact.

    No finite unknown is made of a row that is not finite, nor of an unknown that is not; what is
    left of complex numbers that are divided by an infinity is open.
    """
    matrix = call.wide("A" if "A" in call.arguments else "self")
    beside = _lost(matrix)
    lost = is_complex(matrix.dtype) & beside
    matrix = np.where(np.isfinite(matrix), matrix, np.eye(matrix.shape[-1]))
    if call["transpose"]:
        matrix = np.swapaxes(matrix, -1, -2)
    is_upper = bool(call.arguments.get("upper", True)) != bool(call["transpose"])
    kept = np.triu(matrix) if is_upper else np.tril(matrix)
    if call["unitriangular"]:
        kept = kept + np.eye(kept.shape[-1]) - kept * np.eye(kept.shape[-1])
    is_left = call["left"] is not False
    kept = kept if is_left else np.swapaxes(kept, -1, -2)
    values = _finite(moduli(call.results[0]))
    values = values if is_left else np.swapaxes(values, -1, -2)
    error = _backward(call, np.abs(kept))
    moved, _ = _solved(inverse_of(kept), error, values)
    given = call["B" if "B" in call.arguments else "self"]
    sides = [call.meant()[0], given] if is_left else [call.meant()[0].mT, given.mT]
    is_over, grown = _substitution_overflows(call, np.abs(kept), *map(moduli, sides))
    is_over |= grown & ~beside[..., None, None]
    moved = np.where(lost[..., None, None] | is_over, np.inf, moved)
    return [moved if is_left else np.swapaxes(moved, -1, -2), *[None] * (len(call.results) - 1)]


def _substitution_overflows(
    call: BoundedCall, matrix: Array, found: Array, given: Array
) -> tuple[Array, Array]:
    """Which columns of unknowns have terms, or reciprocals of pivots, that overflow in the type.

    And which are not finite themselves, of finite numbers. Complex pivots are squared.
    """
    largest = float(ml_dtypes.finfo(call.dtype).max)
    terms = np.max(matrix @ _finite(found), -2, keepdims=True, initial=0)
    is_given = np.isfinite(given).all(-2, keepdims=True)
    grown = is_given & ~(found < largest).all(-2, keepdims=True)
    pivots: Array = np.diagonal(matrix, axis1=-2, axis2=-1)
    power = 2 if is_complex(call.results[0].dtype) else 1
    is_steep = np.min(pivots, -1, initial=1) ** -power >= largest
    return np.asarray((terms >= largest) | is_steep[..., None, None]), np.asarray(grown)


def cholesky(call: BoundedCall) -> Errors:
    """Bound L by ``|L| Φ(|L⁻¹| E |L⁻ᴴ|)``, Φ the lower half.

    A factor that stops at a minor is open; so is where it stops, if roundings may decide that.
    """
    matrix = _finite(call.wide("self"))
    matrix = adjoint(matrix) if call["upper"] else matrix
    lower = np.tril(matrix)
    matrix = lower + adjoint(np.tril(matrix, -1))
    made = call.meant("aten.linalg_cholesky_ex.default")
    factor = _finite(made[0])
    factor = np.tril(adjoint(factor) if call["upper"] else factor)
    inverse, sizes = inverse_of(factor), np.abs(factor)
    error = _backward(call, sizes @ np.swapaxes(sizes, -1, -2))
    inner = inverse @ error @ np.swapaxes(inverse, -1, -2)
    half = np.tril(inner) - np.where(np.eye(matrix.shape[-1]) > 0, inner / 2, 0)
    is_open = ~(np.max(np.sum(inner, -1), -1, initial=0) < MOST)
    stops = made[1] > 0
    off = np.max(error, (-2, -1), initial=0)
    is_open = np.where(stops, _is_undecided(lower, made[1], off), is_open)
    is_open = is_open | _lost(np.tril(adjoint(call["self"]) if call["upper"] else call["self"]))
    moved = np.where((is_open | stops)[..., None, None], np.inf, sizes @ half)
    moved = np.swapaxes(moved, -1, -2) if call["upper"] else moved
    return [moved, *[_opened(is_open, r) for r in call.results[1:]]]


def _is_undecided(matrices: Array, stops: Array, error: Array) -> Array:
    """Whether matrices that are off by an error may stop at another minor than they do.

    No minor before may come near to singular, and that one has to be far below 0: the least
    eigenvalue moves by no more than the norm of what the matrix is off by (Weyl).
    """
    found = np.zeros(stops.shape, bool)
    for place in np.ndindex(*stops.shape):
        order, off = int(stops[place]), float(error[place])
        matrix = matrices[place]
        for size in {order - 1, order} - {0, -1}:
            least = np.linalg.eigvalsh(matrix[:size, :size]).min()
            found[place] |= abs(least) <= size * off
    return found


def by_cholesky(call: BoundedCall) -> Errors:
    """Bound ``|A⁻¹| E |x|`` of a solution, or an inverse, by a given factor.

    A factor has a real diagonal: of another one, what LAPACK inverts is open.
    """
    (result,) = call.results
    given = next((name for name in ("input2", "A") if name in call.arguments), None)
    factor = call.wide(given or "self")
    lower = np.tril(adjoint(factor) if call["upper"] else factor)
    first, sizes = inverse_of(lower), np.abs(lower)
    inverse = np.swapaxes(first, -1, -2) @ first
    error = _backward(call, sizes @ np.swapaxes(sizes, -1, -2))
    moved, _ = _solved(inverse, error, moduli(result))
    if given is not None or not is_complex(factor.dtype):
        return [moved]
    diagonal: Array = np.diagonal(factor, axis1=-2, axis2=-1)
    turned = np.any(np.imag(diagonal) != 0, -1)
    return [np.where(turned[..., None, None], np.inf, moved)]


def exponential(call: BoundedCall) -> Errors:
    """Bound by ``exp |B|`` of a part ``B = A / 2ˢ``, and what each squaring makes of that.

    It carries what is off as ``|X| E + E |X|``, and adds the roundings of a product.
    """
    matrix = _finite(call.wide("self"))
    if matrix.shape[-1] == 1:
        return [call.unit * 8 * (1 + np.abs(matrix)) * moduli(call.results[0])]
    norms = np.max(np.sum(np.abs(matrix), -2), -1, initial=0)
    scale = _SCALE[call.dtype.name]
    halvings = np.ceil(np.log2(np.maximum(norms, scale) / scale))
    times = np.clip(halvings, 0, _HALVINGS)[..., None, None]
    forms = 4 if call.dtype == np.float64 else 2  # a polynomial is added up in some way
    count = _count(call, matrix.shape[-1]) * forms
    low, high = _DEGREE_8[call.dtype.name]
    fifth = np.linalg.matrix_power(np.abs(matrix), 5) / _FIFTH
    fifth = np.where((low <= norms) & (norms <= high), 1.0, 0.0)[..., None, None] * fifth
    part = matrix / 2.0**times
    lost = matrix.shape[-1] * least_normal(call.dtype)
    value, error = call.meant(self=part)[0], count * call.meant(self=np.abs(part))[0].real + lost
    for step in range(int(np.max(times, initial=0))):
        sizes = np.abs(value)
        squared = sizes @ sizes
        grown = call.opened(sizes @ error + error @ sizes + count * squared + lost, squared)
        is_squared = step < times
        error = np.where(is_squared, grown, error)
        value = np.where(is_squared, value @ value, value)
    return [np.nan_to_num(error + fifth, nan=np.inf, posinf=np.inf)]
