"""Factors ``A = L D Lᵀ`` of symmetric matrices, rows and columns being exchanged (Bunch, Kaufman).

Only the lower triangle is read. D has blocks of one and two rows; L is 1 at its diagonal and 0
beside it within these. The exchange of a step comes before all later ones: it does not move what
stands in the columns of L before it. A pivot is the number of the row that is exchanged, from 1;
of a block of two rows it is that of the second, negative, twice.

Source: torch.linalg.ldl_factor and ldl_solve; LAPACK's sytrf, hetrf and sytrs.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.dtypes import Array, rounded
from torch_ir.semantics.operators.factorizations import hermitian as as_hermitian
from torch_ir.semantics.operators.linear_equations import wide
from torch_ir.semantics.registry import denotes

_LEAST = (1 + sqrt(17)) / 8
"""How much of the greatest element of a column a pivot has to be."""


def symmetric(matrix: Array, *, hermitian: bool) -> Array:
    """Return the matrix of which the lower triangle is read."""
    if hermitian:
        return as_hermitian(matrix, "L")
    lower = np.tril(matrix, -1)
    return np.tril(matrix) + np.swapaxes(lower, -1, -2)


def _turned(rows: Array, *, hermitian: bool) -> Array:
    return np.conj(rows.T) if hermitian else rows.T


def _exchanged(matrix: Array, first: int, second: int) -> None:
    matrix[[first, second]] = matrix[[second, first]]
    matrix[:, [first, second]] = matrix[:, [second, first]]


def _pivot(rest: Array) -> tuple[int, int]:
    """The row that the first step of a matrix exchanges, and how many rows its block has."""
    sizes = np.abs(rest)
    own, column = sizes[0, 0], sizes[1:, 0]
    most = np.max(column, initial=0)
    if own >= _LEAST * most:
        return 0, 1
    place = 1 + int(np.argmax(column))
    line = np.max(np.delete(sizes[place], place))
    if own * line >= _LEAST * most * most:
        return 0, 1
    return place, 1 if sizes[place, place] >= _LEAST * line else 2


@denotes("aten.linalg_ldl_factor_ex.default")
def ldl_factor(
    self: Array, *, hermitian: bool = False, check_errors: bool = False
) -> tuple[Array, Array, Array]:
    """L below the blocks of D in one matrix, the pivots, and the first row where D is 0, or 0.

    Pivots and info are int32. Right factors are not one only: what has to hold for them is in
    :mod:`torch_ir.semantics.bounds.algebra.relations`.
    """
    matrices = wide(self, "self")
    matrices = symmetric(np.where(np.isfinite(matrices), matrices, 0), hermitian=hermitian)
    packed, size = np.zeros_like(matrices), matrices.shape[-1]
    pivots = np.zeros(matrices.shape[:-1], "int32")
    info = np.zeros(matrices.shape[:-2], "int32")
    for place in np.ndindex(*matrices.shape[:-2]):
        rest, start = matrices[place].copy(), 0
        while start < size:
            first, step = _pivot(rest)
            _exchanged(rest, step - 1, first)
            block, under = rest[:step, :step], rest[step:, :step].copy()
            if step == 1 and block[0, 0] == 0:
                info[place] = info[place] or start + 1
            else:
                under = np.linalg.solve(block.T, under.T).T
            packed[(*place, slice(start, None), slice(start, start + step))] = np.concatenate(
                [np.tril(block), under]
            )
            named = start + first + 1
            pivots[(*place, slice(start, start + step))] = named if step == 1 else -named
            turned = _turned(under, hermitian=hermitian)
            rest = rest[step:, step:] - under @ block @ turned
            start += step
    return rounded(packed, self.dtype), pivots, info


def blocks_of(pivots: Array) -> Iterator[tuple[int, int, int]]:
    """Yield where each block starts, how many rows it has, and the row that it exchanges.

    Raises:
        InvalidIRError: They are no pivots.

    Example:
        >>> list(blocks_of(np.array([1, -3, -3])))
        [(0, 1, 0), (1, 2, 2)]
    """
    start, rows = 0, pivots.tolist()
    while start < len(rows):
        named = rows[start]
        step = 1 if named > 0 else 2
        if not start + step <= abs(named) <= len(rows) or rows[start : start + step] != (
            [named] * step
        ):
            raise InvalidIRError(f"{rows} are no pivots")
        yield start, step, abs(named) - 1
        start += step


def _block(packed: Array, start: int, step: int, *, hermitian: bool) -> tuple[Array, Array]:
    """A block of D, and the columns of L under it."""
    rows = slice(start, start + step)
    block = symmetric(packed[rows, rows], hermitian=hermitian)
    return block, packed[start + step :, rows]


def rebuilt(packed: Array, pivots: Array, *, hermitian: bool) -> tuple[Array, Array]:
    """Return the matrix that has such factors, and the same of the moduli of the factors.

    Raises:
        InvalidIRError: They are no pivots.
    """
    made, reach = np.zeros_like(packed), np.zeros(packed.shape)
    for place in np.ndindex(*packed.shape[:-2]):
        for start, step, row in reversed([*blocks_of(pivots[place])]):
            block, under = _block(packed[place], start, step, hermitian=hermitian)
            parts = ((made, block, under), (reach, np.abs(block), np.abs(under)))
            for whole, middle, below in parts:
                sides = np.concatenate([np.eye(step), below])
                whole[place][start:, start:] += (
                    sides @ middle @ _turned(sides, hermitian=hermitian)
                )
                held = whole[place][start:, start:]
                _exchanged(held, step - 1, row - start)
    return made, reach


@denotes("aten.linalg_ldl_solve.default")
def ldl_solve(
    LD: Array,  # noqa: N803  the schema's name
    pivots: Array,
    B: Array,  # noqa: N803  the schema's name
    *,
    hermitian: bool = False,
) -> Array:
    """X with ``A X = B``, A having these factors; a block of D that is 0 divides by it."""
    packed, other = wide(LD, "LD"), wide(B, "B")
    batch = np.broadcast_shapes(packed.shape[:-2], other.shape[:-2])
    packed = np.broadcast_to(packed, (*batch, *packed.shape[-2:]))
    rows = np.broadcast_to(pivots, (*batch, pivots.shape[-1]))
    found = np.broadcast_to(other, (*batch, *other.shape[-2:])).copy()
    for place in np.ndindex(*batch):
        steps, made = [*blocks_of(rows[place])], found[place]
        for start, step, row in steps:
            kept = start + step - 1
            made[[kept, row]] = made[[row, kept]]
            block, under = _block(packed[place], start, step, hermitian=hermitian)
            made[start + step :] -= under @ made[start : start + step]
            made[start : start + step] = _divided(block, made[start : start + step])
        for start, step, row in reversed(steps):
            kept = start + step - 1
            _, under = _block(packed[place], start, step, hermitian=hermitian)
            turned = _turned(under, hermitian=hermitian)
            made[start : start + step] -= turned @ made[start + step :]
            made[[kept, row]] = made[[row, kept]]
    return rounded(found, B.dtype)


def _divided(block: Array, rows: Array) -> Array:
    if len(block) == 1:
        return rows / block[0, 0]
    (a, b), (c, d) = block
    return np.stack([d * rows[0] - b * rows[1], a * rows[1] - c * rows[0]]) / (a * d - b * c)
