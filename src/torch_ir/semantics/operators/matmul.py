"""Products of matrices and vectors.

All compute in float64 (complex128) and round once; integers wrap. The order of the summands is
not part of the meaning. Operands must have one dtype, which is the result's; there is no
promotion. A product over no elements is 0.

Source: torch.mm, torch.matmul and the others on their pages of torch's documentation.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.dtypes import (
    Array,
    is_bool,
    is_integer,
    result_dtype,
    rounded,
    widened,
    working,
)
from torch_ir.semantics.pointwise import pointwise
from torch_ir.semantics.registry import denotes


def product(first: Array, second: Array) -> Array:
    """The product as ``numpy.matmul`` has it, in working precision.

    Raises:
        InvalidIRError: The operands differ in dtype or are booleans, or their sizes do not match.
    """
    is_of_truth = is_bool(first.dtype) and first.size and second.size  # of no terms, it is False
    if first.dtype != second.dtype or is_of_truth:
        raise InvalidIRError(f"a product of {first.dtype} and {second.dtype} has no meaning")
    wide = working(first.dtype)
    try:
        return np.matmul(first.astype(wide), second.astype(wide))
    except ValueError as error:
        shapes = f"{list(first.shape)} and {list(second.shape)}"
        raise InvalidIRError(f"{shapes} cannot be multiplied as matrices") from error


def _ranks(*expected: tuple[Array, int]) -> None:
    for values, rank in expected:
        if values.ndim != rank:
            raise InvalidIRError(f"a tensor of shape {list(values.shape)} has not rank {rank}")


def _scaled_sum(self: Array, beta: complex, term: Array, alpha: complex, dtype: Any) -> Array:
    """``beta · self + alpha · term``; without ``self`` where beta is 0, even if it has NaN."""
    if self.dtype != dtype:
        raise InvalidIRError(f"{self.dtype} cannot be added to a product of {dtype}")
    if is_integer(dtype):
        beta, alpha = (int(factor.real) for factor in (beta, alpha))
    scaled = term if alpha == 1 else alpha * term
    try:
        shape = np.broadcast_shapes(self.shape, term.shape)
    except ValueError:
        shape = ()
    if shape != term.shape:
        raise InvalidIRError(f"{list(self.shape)} does not broadcast to {list(term.shape)}")
    if beta != 0:
        scaled = scaled + beta * widened(self)
    return rounded(scaled, dtype)


@denotes("aten.mm.default")
def mm(self: Array, mat2: Array) -> Array:
    """Matrix product: ``result[i, j] = Σₖ self[i, k] · mat2[k, j]``.

    Shapes: [m, n], [n, p] → [m, p]. With n = 0, zeros.
    """
    _ranks((self, 2), (mat2, 2))
    return rounded(product(self, mat2), self.dtype)


@denotes("aten.bmm.default")
def bmm(self: Array, mat2: Array) -> Array:
    """One matrix product for each index of the batch, which does not broadcast.

    Shapes: [b, m, n], [b, n, p] → [b, m, p].
    """
    _ranks((self, 3), (mat2, 3))
    if self.shape[0] != mat2.shape[0]:
        raise InvalidIRError(f"batches of {self.shape[0]} and {mat2.shape[0]} matrices differ")
    return rounded(product(self, mat2), self.dtype)


def behind_groups(shape: Sequence[int], first: int, second: int, offs: Array) -> Array:
    """Mark the rows or columns of a grouped product that no group has.

    Args:
        shape: Of the product.
        first: The rank of its first operand.
        second: That of the second.
        offs: Where each group ends.

    Example:
        >>> behind_groups((3, 1), 2, 3, np.array([1, 2])).tolist()
        [[False], [False], [True]]
    """
    behind = np.zeros(shape, bool)
    if first != second and len(offs):
        rest = slice(int(offs[-1]), None)
        behind[rest if first == 2 else (slice(None), rest)] = True
    return behind


@denotes("aten._grouped_mm.default")
def grouped_mm(
    self: Array,
    mat2: Array,
    offs: Array | None = None,
    bias: Array | None = None,
    out_dtype: np.dtype[Any] | None = None,
) -> Array:
    """One matrix product for each group; ``offs`` [g] says where each ends on an axis.

    Shapes: [m, n], [g, n, p] → [m, p], groups of rows; [g, m, n], [n, p] → [m, p], of columns;
    [m, n], [n, p] → [g, m, p], of what is summed; [g, m, n], [g, n, p] → [g, m, p] without
    ``offs``. Rows and columns behind the last group have any values; here they are 0.
    """
    if bias is not None:
        raise InvalidIRError("no kernel of a grouped product takes a bias")
    if self.ndim not in (2, 3) or mat2.ndim not in (2, 3):
        shapes = f"{list(self.shape)} and {list(mat2.shape)}"
        raise InvalidIRError(f"{shapes} are not matrices or groups of matrices")
    dtype = out_dtype or self.dtype
    if (offs is None) != (self.ndim == mat2.ndim == 3):
        raise InvalidIRError("offsets are for a side of two dimensions, and it needs them")
    if offs is None:
        return rounded(product(self, mat2), dtype)
    ends = [int(end) for end in offs]
    spans = [slice(start, end) for start, end in pairwise([0, *ends])]
    if self.ndim == mat2.ndim:
        parts = [product(self[:, span], mat2[span]) for span in spans]
        return rounded(np.stack(parts), dtype)
    if len(ends) != len(self if self.ndim == 3 else mat2):
        raise InvalidIRError(f"{len(ends)} offsets do not go with the groups of matrices")
    result = np.zeros((self.shape[-2], mat2.shape[-1]), working(self.dtype))
    for group, span in enumerate(spans):
        if self.ndim == 2:
            result[span] = product(self[span], mat2[group])
        else:
            result[:, span] = product(self[group], mat2[:, span])
    return rounded(result, dtype)


@denotes("aten.addmm.default")
def addmm(
    self: Array, mat1: Array, mat2: Array, *, beta: complex = 1, alpha: complex = 1
) -> Array:
    """Matrix product and sum: ``beta · self + alpha · (mat1 @ mat2)``, rounded once.

    ``self`` broadcasts to the product. With beta = 0 it is ignored: its NaN and inf stay out. For
    integers both factors are truncated.
    """
    _ranks((mat1, 2), (mat2, 2))
    return _scaled_sum(self, beta, product(mat1, mat2), alpha, mat1.dtype)


@denotes("aten.baddbmm.default")
def baddbmm(
    self: Array, batch1: Array, batch2: Array, *, beta: complex = 1, alpha: complex = 1
) -> Array:
    """For each index of the batch, ``beta · self + alpha · (batch1 @ batch2)``.

    ``self`` broadcasts to the product. With beta = 0 it is ignored.
    """
    _ranks((batch1, 3), (batch2, 3))
    return _scaled_sum(self, beta, product(batch1, batch2), alpha, batch1.dtype)


@denotes("aten.addbmm.default")
def addbmm(
    self: Array, batch1: Array, batch2: Array, *, beta: complex = 1, alpha: complex = 1
) -> Array:
    """``beta · self + alpha · Σ_b (batch1[b] @ batch2[b])``, a matrix."""
    _ranks((batch1, 3), (batch2, 3))
    term = product(batch1, batch2).sum(axis=0, dtype=working(batch1.dtype))
    return _scaled_sum(self, beta, term, alpha, batch1.dtype)


@denotes("aten.addmv.default")
def addmv(self: Array, mat: Array, vec: Array, *, beta: complex = 1, alpha: complex = 1) -> Array:
    """``beta · self + alpha · (mat @ vec)``, a vector."""
    _ranks((mat, 2), (vec, 1))
    return _scaled_sum(self, beta, product(mat, vec), alpha, mat.dtype)


@denotes("aten.addr.default")
def addr(self: Array, vec1: Array, vec2: Array, *, beta: complex = 1, alpha: complex = 1) -> Array:
    """``beta · self + alpha · (vec1 ⊗ vec2)``; unlike a matrix product it promotes types."""
    _ranks((vec1, 1), (vec2, 1))
    dtype = result_dtype(self, vec1, vec2)
    wide = working(dtype)
    if is_integer(dtype) and not (isinstance(beta, int) and isinstance(alpha, int)):
        raise InvalidIRError(f"beta {beta} and alpha {alpha} are not both integers, as {dtype} is")
    if is_bool(dtype):
        outer_product = np.logical_and.outer(vec1, vec2) & bool(alpha)
        return np.asarray(outer_product | (self & bool(beta)))
    term = np.multiply.outer(vec1.astype(wide), vec2.astype(wide))
    return _scaled_sum(self.astype(dtype), beta, term, alpha, dtype)


@denotes("aten.mv.default")
def mv(self: Array, vec: Array) -> Array:
    """``result[i] = Σₖ self[i, k] · vec[k]``; shapes: [m, n], [n] → [m]."""
    _ranks((self, 2), (vec, 1))
    return rounded(product(self, vec), self.dtype)


@denotes("aten.dot.default")
def dot(self: Array, tensor: Array) -> Array:
    """``Σₖ self[k] · tensor[k]``, without conjugation; shapes: [n], [n] → []."""
    _ranks((self, 1), (tensor, 1))
    return rounded(product(self, tensor), self.dtype)


@denotes("aten.vdot.default")
def vdot(self: Array, other: Array) -> Array:
    """``Σₖ conj(self[k]) · other[k]``; shapes: [n], [n] → []."""
    _ranks((self, 1), (other, 1))
    return rounded(product(np.conjugate(self), other), self.dtype)


@denotes("aten.outer.default", "aten.ger.default")
def outer(self: Array, vec2: Array) -> Array:
    """``result[i, j] = self[i] · vec2[j]``, in the dtype that the two have together."""
    _ranks((self, 1), (vec2, 1))
    dtype = result_dtype(self, vec2)
    wide = working(dtype)
    return rounded(np.multiply.outer(self.astype(wide), vec2.astype(wide)), dtype)


@denotes("aten.matmul.default")
def matmul(self: Array, other: Array) -> Array:
    """Matrix product over the last two axes; the axes before them broadcast.

    A vector on the left is a row, on the right a column; the axis of size 1 that this adds is
    dropped again. Shapes: [*, m, n], [*, n, p] → [*, m, p]; [n], [n] → [].
    """
    if not self.ndim or not other.ndim:
        raise InvalidIRError("a tensor without dimensions has no matrix product")
    return rounded(product(self, other), self.dtype)


@denotes("aten.inner.default")
def inner(self: Array, other: Array) -> Array:
    """``Σₖ self[…, k] · other[…, k]`` for all pairs of the other axes; numbers just multiply.

    Shapes: [*a, n], [*b, n] → [*a, *b].
    """
    if not self.ndim or not other.ndim:
        return pointwise(lambda a, b: a * b, self, other)
    if self.dtype != other.dtype or (is_bool(self.dtype) and self.size and other.size):
        raise InvalidIRError(f"a product of {self.dtype} and {other.dtype} has no meaning")
    wide = working(self.dtype)
    first, second = self.astype(wide), other.astype(wide)
    if self.shape[-1] != other.shape[-1]:
        raise InvalidIRError(f"last axes of {self.shape[-1]} and {other.shape[-1]} differ")
    return rounded(np.tensordot(first, second, (-1, -1)), self.dtype)


@denotes("aten.linear.default")
def linear(input: Array, weight: Array, bias: Array | None = None) -> Array:
    """``input @ weightᵀ + bias``, rounded once.

    Shapes: [*, n], [p, n] or [n], [p] or [] → [*, p] or [*].
    """
    if not input.ndim or weight.ndim not in (1, 2):
        raise InvalidIRError(
            f"linear maps no {list(input.shape)} by a weight of {list(weight.shape)}"
        )
    total = product(input, weight.T)
    if bias is not None:
        total = total + bias.astype(total.dtype)
    return rounded(total, input.dtype)
