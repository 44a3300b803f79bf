"""Orthogonal matrices as products of reflectors, ``Q = H₁ H₂ … H_k``.

``H_i = 1 - τ_i v_i v_iᴴ``, the vector v_i being 0 before place i, 1 there, and what stands below
the diagonal of column i after it. Matrices are the last two axes; what stands before is a batch.

Source: torch.geqrf, torch.linalg.householder_product and torch.ormqr; LAPACK's geqrf, orgqr and
ormqr.
"""

from __future__ import annotations

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.dtypes import Array, rounded, widened
from torch_ir.semantics.operators.factorizations import finite
from torch_ir.semantics.operators.linear_equations import adjoint, wide
from torch_ir.semantics.registry import denotes


@denotes("aten.geqrf.default")
def geqrf(self: Array) -> tuple[Array, Array]:
    """The reflectors of a QR factorization below the diagonal, R at and above it, and their τ."""
    matrix = finite(self, "self")
    if not matrix.size:
        shape = (*self.shape[:-2], min(self.shape[-2:]))
        return np.zeros(self.shape, self.dtype), np.zeros(shape, self.dtype)
    packed, scales = np.linalg.qr(matrix, "raw")
    return rounded(np.swapaxes(packed, -1, -2), self.dtype), rounded(scales, self.dtype)


def scales_of(scales: Array, packed: Array) -> Array:
    """Return τ in working precision.

    Raises:
        InvalidIRError: It is not a row for each matrix, or of another type.
    """
    if scales.dtype != packed.dtype or scales.shape[:-1] != packed.shape[:-2]:
        raise InvalidIRError(f"{scales.dtype}{list(scales.shape)} is no τ of {list(packed.shape)}")
    return widened(scales)


def vectors_of(packed: Array, count: int) -> Array:
    """Return the vectors of so many reflectors, as columns."""
    rows = packed.shape[-2]
    return np.tril(packed[..., :count], -1) + np.eye(rows, count)


def reflected(packed: Array, scales: Array, other: Array, *, transposed: bool = False) -> Array:
    """Return ``Q C``, or ``Qᴴ C``, of matrices in working precision.

    Raises:
        InvalidIRError: There are more reflectors than columns, or than rows.
    """
    count = scales.shape[-1]
    if count > min(packed.shape[-2:]) or packed.shape[-2] != other.shape[-2]:
        raise InvalidIRError(
            f"{count} reflectors of {list(packed.shape)} do not reflect {list(other.shape)}"
        )
    vectors, made = vectors_of(packed, count), other
    for k in range(count) if transposed else reversed(range(count)):
        column = vectors[..., k : k + 1]
        scale = scales[..., k][..., None, None]
        scale = np.conj(scale) if transposed else scale
        made = made - scale * column @ (adjoint(column) @ made)
    return made


@denotes("aten.linalg_householder_product.default")
def householder_product(input: Array, tau: Array) -> Array:
    """The first columns of Q, as many as the operand has."""
    packed, scales = wide(input, "input"), scales_of(tau, input)
    rows, columns = packed.shape[-2:]
    if columns > rows:
        raise InvalidIRError(f"{rows} rows have no {columns} orthogonal columns")
    identity = np.broadcast_to(np.eye(rows, columns), packed.shape).astype(packed.dtype)
    return rounded(reflected(packed, scales, identity), input.dtype)


@denotes("aten.ormqr.default")
def ormqr(
    self: Array, input2: Array, input3: Array, left: bool = True, transpose: bool = False
) -> Array:
    """``Q C``, from the right ``C Q``; with ``transpose`` Qᴴ.

    Args:
        self: The reflectors.
        input2: Their τ.
        input3: C.
        left: Whether Q stands on the left.
        transpose: Whether it is Qᴴ.
    """
    packed, scales, other = wide(self, "self"), scales_of(input2, self), wide(input3, "other")
    if left:
        return rounded(reflected(packed, scales, other, transposed=transpose), input3.dtype)
    made = reflected(packed, scales, adjoint(other), transposed=not transpose)
    return rounded(adjoint(made), input3.dtype)
