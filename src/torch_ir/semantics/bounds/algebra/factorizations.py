"""Bounds of the values of factorizations; their vectors are open, where nothing relates them.

What holds between a matrix and its factors is in
:mod:`torch_ir.semantics.bounds.algebra.relations`. These are what the nodes after a factorization
carry on: singular values, and eigenvalues of Hermitian matrices, are off by ``c(n) · u`` of the
norm (Weyl).
"""

from __future__ import annotations

from math import sqrt

import ml_dtypes
import numpy as np

from torch_ir.semantics.bounds.algebra.linear_equations import (
    MOST,
    REACH,
    inverse_of,
    norm_of,
    spread_of,
)
from torch_ir.semantics.bounds.call import BoundedCall, Errors, moduli
from torch_ir.semantics.dtypes import Array, is_complex
from torch_ir.semantics.operators.factorizations import cut, inverted
from torch_ir.semantics.operators.linear_equations import adjoint
from torch_ir.semantics.operators.reflectors import vectors_of
from torch_ir.semantics.operators.symmetric_factors import rebuilt

FEW, STEP = 8, 3
"""Roundings of a factorization of n rows, in units of its norm: few, and as many times √n."""
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


def reflected(call: BoundedCall) -> Errors:
    """Bound what each reflector rounds, by how much those after it make it longer.

    ``x - τ v (vᴴ x)`` is off by ``c(n) · u · (|x| + |τ| |v| |v|ᴴ |x|)``, of whose columns the
    lengths are carried on, as blocks of reflectors mix their elements.
    """
    is_product = "tau" in call.arguments
    names = ("input", "tau") if is_product else ("self", "input2")
    packed, scales = (call.wide(name) for name in names)
    from_right = call["left"] is False
    other = np.eye(*packed.shape[-2:]) if is_product else call.wide("input3")
    other = adjoint(other) if from_right else other
    turned = not is_product and bool(call["transpose"]) != from_right
    made, unit = other, _rounded(call, packed.shape[-2])
    vectors = vectors_of(packed, scales.shape[-1])
    steps = range(scales.shape[-1])
    beyond = _norms_beyond(vectors, scales, turned=turned)
    off = np.zeros((*packed.shape[:-2], 1, other.shape[-1]))
    for k in steps if turned else reversed(steps):
        column, scale = vectors[..., k : k + 1], scales[..., k][..., None, None]
        scale = np.conj(scale) if turned else scale
        moved = np.abs(scale) * np.abs(column) * (np.abs(adjoint(column)) @ np.abs(made))
        local = unit * (np.abs(made) + moved)
        off = np.hypot(off, beyond[k] * np.sqrt(np.sum(local**2, -2, keepdims=True)))
        made = made - scale * column @ (adjoint(column) @ made)
    whole = np.broadcast_to(off, made.shape)
    (result,) = call.results
    whole = adjoint(whole) if from_right else whole
    return [call.opened(np.broadcast_to(whole, result.shape), REACH * norm_of(result, call.dtype))]


def _norms_beyond(vectors: Array, scales: Array, *, turned: bool) -> list[Array]:
    """The norm of the product of the reflectors that come after each one, of shape [*, 1, 1]."""
    rows, count = vectors.shape[-2:]
    product = np.broadcast_to(np.eye(rows), (*vectors.shape[:-1], rows)).astype(vectors.dtype)
    found: dict[int, Array] = {}
    for k in reversed(range(count)) if turned else range(count):
        found[k] = np.linalg.norm(product, 2, (-2, -1), keepdims=True)
        column, scale = vectors[..., k : k + 1], scales[..., k][..., None, None]
        scale = np.conj(scale) if turned else scale
        product = product - scale * (product @ column) @ adjoint(column)
    return [found[k] for k in range(count)]


def _rounded(call: BoundedCall, size: int) -> float:
    """``c(n) · u`` of products of so many, element by element."""
    scale = 2 if is_complex(call.results[0].dtype) else 1
    return call.unit * scale * (FEW + STEP * sqrt(size)) / 2


def by_symmetric_factors(call: BoundedCall) -> Errors:
    """Bound ``|A⁻¹| E |x|`` of a solution by given factors, E being ``c(n) · u |L| |D| |Lᵀ|``."""
    packed, is_hermitian = call.wide("LD"), bool(call["hermitian"])
    made, reach = rebuilt(packed, call["pivots"], hermitian=is_hermitian)
    unit = _rounded(call, packed.shape[-1])
    finite = np.isfinite(made).all((-2, -1), keepdims=True)
    inverse = inverse_of(made)
    carried = unit * inverse @ reach
    moved = carried @ moduli(call.results[0])
    is_open = ~(np.max(np.sum(carried, -1), -1, initial=0) < MOST)[..., None, None] | ~finite
    return [np.where(is_open, OPEN, moved)]
