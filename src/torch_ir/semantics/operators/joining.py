"""Tensors put together, cut apart, repeated and framed; elements move, bit for bit.

Source: each function's page in torch's documentation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from torch_ir.errors import InvalidIRError, counted
from torch_ir.semantics.axes import axis
from torch_ir.semantics.broadcast import broadcast_all
from torch_ir.semantics.dtypes import Array, rounded
from torch_ir.semantics.dtypes import result_dtype as common_dtype
from torch_ir.semantics.numbers import element
from torch_ir.semantics.operators.slicing import exchanged
from torch_ir.semantics.registry import denotes, restate

# -- together -------------------------------------------------------------------------------------


@denotes("aten.cat.default", "aten.concat.default", "aten.concatenate.default")
def cat(tensors: Sequence[Array], dim: int = 0) -> Array:
    """Tensors one after another along a dimension.

    ``result[…, n₀ + … + nₖ₋₁ + i, …] = tensors[k][…, i, …]``: there the sizes add, elsewhere they
    are equal. The dtype is what all have together. A tensor of shape [0] has no elements to give
    and fits any shape.
    """
    if not tensors or not all(tensor.ndim for tensor in tensors):
        raise InvalidIRError("only tensors with dimensions are concatenated, and at least one")
    dtype = common_dtype(*tensors)
    given = [tensor for tensor in tensors if tensor.shape != (0,)]
    if not given:
        return np.empty(0, dtype)
    place = axis(dim, given[0].ndim)
    others = [(*shape[:place], None, *shape[place + 1 :]) for shape in (t.shape for t in given)]
    if any(shape != others[0] for shape in others):
        shapes = " and ".join(str(list(tensor.shape)) for tensor in given)
        raise InvalidIRError(f"shapes {shapes} differ elsewhere than in dimension {place}")
    return np.concatenate([rounded(tensor, dtype) for tensor in given], axis=place)


@denotes("aten.stack.default")
def stack(tensors: Sequence[Array], dim: int = 0) -> Array:
    """Tensors of one shape along a new dimension: ``result[…, k, …] = tensors[k][…, …]``."""
    if not tensors or any(tensor.shape != tensors[0].shape for tensor in tensors):
        shapes = [list(tensor.shape) for tensor in tensors]
        raise InvalidIRError(f"only tensors of one shape are stacked, not {shapes}")
    place = axis(dim, tensors[0].ndim + 1)
    return cat([np.expand_dims(tensor, place) for tensor in tensors], place)


@denotes("aten.hstack.default")
def hstack(tensors: Sequence[Array]) -> Array:
    """Side by side: along dimension 1, vectors along 0."""
    rows = [np.atleast_1d(tensor) for tensor in tensors]
    return cat(rows, 0 if rows and rows[0].ndim == 1 else 1)


@denotes("aten.vstack.default")
def vstack(tensors: Sequence[Array]) -> Array:
    """One below another: along dimension 0, vectors as rows."""
    return cat([np.atleast_2d(tensor) for tensor in tensors])


@denotes("aten.column_stack.default")
def column_stack(tensors: Sequence[Array]) -> Array:
    """Side by side along dimension 1, vectors as columns."""
    return cat([t if t.ndim > 1 else t.reshape(-1, 1) for t in tensors], 1)


@denotes("aten.dstack.default")
def dstack(tensors: Sequence[Array]) -> Array:
    """One behind another along dimension 2, which matrices and vectors get."""
    return cat([np.atleast_3d(tensor) for tensor in tensors], 2)


@denotes("aten.block_diag.default")
def block_diag(tensors: Sequence[Array]) -> Array:
    """Matrices along the diagonal of a larger one, 0 elsewhere; vectors count as rows."""
    blocks = [np.atleast_2d(tensor) for tensor in tensors]
    result = np.zeros(np.sum([block.shape for block in blocks], axis=0), common_dtype(*blocks))
    row = column = 0
    for block in blocks:
        height, width = block.shape
        result[row : row + height, column : column + width] = block
        row, column = row + height, column + width
    return result


@denotes("aten.meshgrid.default", "aten.meshgrid.indexing")
def meshgrid(tensors: Sequence[Array], indexing: str = "ij") -> tuple[Array, ...]:
    """Coordinates of a grid: ``results[k][i₀, i₁, …] = tensors[k][iₖ]``.

    With ``indexing`` "xy", the first two dimensions of the results are swapped.
    """
    lines = [np.atleast_1d(tensor) for tensor in tensors]
    return tuple(np.array(grid) for grid in np.meshgrid(*lines, indexing=_indexing(indexing)))


def _indexing(name: str) -> Any:
    if name not in ("ij", "xy"):
        raise InvalidIRError(f'indexing is "ij" or "xy", not {name!r}')
    return name


# -- apart ----------------------------------------------------------------------------------------


@denotes(
    "aten.split_with_sizes.default",
    "aten.split_with_sizes_copy.default",
    "aten.unsafe_split_with_sizes.default",
)
def split_with_sizes(self: Array, split_sizes: Sequence[int], dim: int = 0) -> tuple[Array, ...]:
    """Consecutive pieces of such sizes along a dimension."""
    sizes = list(split_sizes)
    place, length = _line(self, dim)
    if sum(sizes) != length or min(sizes, default=0) < 0:
        raise InvalidIRError(f"pieces of sizes {sizes} do not make up size {length}")
    ends = np.cumsum(sizes, dtype="int64")[:-1]
    return tuple(np.split(self, ends, axis=place)) if sizes else ()


restate(split_with_sizes, "aten.split.sizes", split_size="split_sizes")


def _line(self: Array, dim: int) -> tuple[int, int]:
    """An axis that must exist, and its size."""
    if not self.ndim:
        raise InvalidIRError("a tensor without dimensions is in one piece")
    place = axis(dim, self.ndim)
    return place, self.shape[place]


@denotes("aten.split.Tensor", "aten.split_copy.Tensor", "aten.unsafe_split.Tensor")
def split(self: Array, split_size: int, dim: int = 0) -> tuple[Array, ...]:
    """Consecutive pieces of ``split_size`` elements, the last one smaller where need be.

    At least one, also of a dimension of size 0.
    """
    _, length = _line(self, dim)
    if split_size < 0 or (split_size == 0 and length):
        raise InvalidIRError(f"a dimension of size {length} has no pieces of {split_size}")
    count = max(-(-length // max(split_size, 1)), 1)
    sizes = [min(split_size, length - split_size * k) for k in range(count)]
    return split_with_sizes(self, sizes, dim)


@denotes("aten.chunk.default", "aten.unsafe_chunk.default")
def chunk(self: Array, chunks: int, dim: int = 0) -> tuple[Array, ...]:
    """Pieces of ⌈n / chunks⌉ elements; that may give fewer pieces than asked for.

    Of a dimension of size 0, ``chunks`` empty ones.
    """
    if chunks < 1:
        raise InvalidIRError(f"{chunks} pieces are none")
    _, length = _line(self, dim)
    if not length:
        return split_with_sizes(self, [0] * chunks, dim)
    return split(self, -(-length // chunks), dim)


@denotes("aten.tensor_split.sections")
def tensor_split(self: Array, sections: int, dim: int = 0) -> tuple[Array, ...]:
    """``sections`` pieces; the first n mod sections have one element more than the others."""
    if sections < 1:
        raise InvalidIRError(f"{sections} pieces are none")
    _, length = _line(self, dim)
    small, larger = divmod(length, sections)
    return split_with_sizes(self, [small + (k < larger) for k in range(sections)], dim)


@denotes("aten.tensor_split.indices")
def tensor_split_indices(self: Array, indices: Sequence[int], dim: int = 0) -> tuple[Array, ...]:
    """Pieces from 0, each index, and to the end, bounds as those of a Python slice."""
    place, _ = _line(self, dim)
    bounds = zip([0, *indices], [*indices, None], strict=True)
    line = np.moveaxis(self, place, 0)
    return tuple(np.moveaxis(line[start:end], 0, place) for start, end in bounds)


@denotes("aten.unbind.int", "aten.unbind_copy.int")
def unbind(self: Array, dim: int = 0) -> tuple[Array, ...]:
    """The slices at each place of a dimension, which they lose."""
    place, length = _line(self, dim)
    return tuple(np.asarray(np.take(self, k, axis=place)) for k in range(length))


# -- repeated -------------------------------------------------------------------------------------


@denotes("aten.repeat.default")
def repeat(self: Array, repeats: Sequence[int]) -> Array:
    """The whole tensor ``repeats[i]`` times along dimension i; new dimensions stand in front.

    ``result[i, j, …] = self[i mod n₀, j mod n₁, …]``.
    """
    if len(repeats) < self.ndim or min(repeats, default=0) < 0:
        raise InvalidIRError(f"shape {list(self.shape)} does not repeat {list(repeats)} times")
    return np.tile(self, list(repeats))


@denotes("aten.tile.default")
def tile(self: Array, dims: Sequence[int]) -> Array:
    """As ``repeat``, with missing numbers in front taken as 1."""
    return repeat(self, [1] * (self.ndim - len(dims)) + list(dims))


@denotes("aten.repeat_interleave.Tensor")
def repeat_interleave_places(repeats: Array, *, output_size: int | None = None) -> Array:
    """Each place k, ``repeats[k]`` times: int32 for int32 numbers, else int64."""
    _repeatable(repeats)
    dtype = np.dtype("int32" if repeats.dtype == np.int32 else "int64")
    return np.repeat(np.arange(repeats.size, dtype=dtype), repeats)


@denotes("aten.repeat_interleave.self_int", "aten.repeat_interleave.self_Tensor")
def repeat_interleave(
    self: Array, repeats: int | Array, dim: int | None = None, *, output_size: int | None = None
) -> Array:
    """Each slice along a dimension repeated in place; without one, each element in a row.

    ``repeats`` is one number for all, or one for each.
    """
    values = self.reshape(-1) if dim is None else np.atleast_1d(self)
    place = axis(dim or 0, values.ndim)
    times = np.broadcast_to(_repeatable(np.asarray(repeats)), values.shape[place])
    return np.repeat(values, times, axis=place)


def _repeatable(repeats: Array) -> Array:
    if repeats.ndim > 1 or (repeats.size and repeats.min() < 0):
        raise InvalidIRError(f"{repeats.tolist()} are no numbers of repetitions")
    return repeats


# -- framed and triangular ------------------------------------------------------------------------


@denotes("aten.constant_pad_nd.default")
def constant_pad_nd(self: Array, pad: Sequence[int], value: complex = 0) -> Array:
    """With ``pad`` more elements of one value: before and after, from the last dimension on.

    A negative number takes away as many. The value becomes one of the operand's dtype.
    """
    if len(pad) % 2 or len(pad) > 2 * self.ndim:
        raise InvalidIRError(f"padding {list(pad)} is not for {counted(self.ndim, 'dimension')}")
    pairs = list(zip(pad[::2], pad[1::2], strict=True))[::-1]
    ends = [(0, 0)] * (self.ndim - len(pairs)) + pairs
    cut: list[slice] = []
    for size, (before, after) in zip(self.shape, ends, strict=True):
        first, last = max(-before, 0), size - max(-after, 0)
        if first > last:
            raise InvalidIRError(f"padding {list(pad)} leaves less than 0 of {list(self.shape)}")
        cut.append(slice(first, last))
    added = [(max(before, 0), max(after, 0)) for before, after in ends]
    if not any(map(any, added)):
        return self[tuple(cut)]
    return np.pad(self[tuple(cut)], added, constant_values=element(value, self.dtype))


@denotes("aten.tril.default")
def tril(self: Array, diagonal: int = 0) -> Array:
    """Lower triangle of the last two dimensions: ``self[…, i, j]``, 0 where j > i + diagonal."""
    return np.where(_triangle(self, diagonal), self, np.zeros((), self.dtype))


@denotes("aten.triu.default")
def triu(self: Array, diagonal: int = 0) -> Array:
    """Upper triangle of the last two dimensions: ``self[…, i, j]``, 0 where j < i + diagonal."""
    return np.where(_triangle(self, diagonal - 1), np.zeros((), self.dtype), self)


def _triangle(self: Array, diagonal: int) -> Array:
    if self.ndim < 2:
        raise InvalidIRError(f"a tensor of shape {list(self.shape)} has no triangle")
    rows, columns = np.arange(self.shape[-2]), np.arange(self.shape[-1])
    return columns <= rows[:, None] + diagonal


@denotes("aten.diagonal.default", "aten.diagonal_copy.default")
def diagonal(self: Array, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Array:
    """``result[…, i] = self[…, i, …, i + offset, …]``; a negative offset moves down instead.

    Empty where the offset lies outside.
    """
    first, second = _plane(self.ndim, dim1, dim2)
    return np.diagonal(self, offset, first, second)


def _plane(rank: int, dim1: int, dim2: int) -> tuple[int, int]:
    first, second = axis(dim1, rank), axis(dim2, rank)
    if first == second:
        raise InvalidIRError(f"dimensions {dim1} and {dim2} are one, and have no diagonal")
    return first, second


@denotes("aten.diagonal_scatter.default")
def diagonal_scatter(
    self: Array, src: Array, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Array:
    """The tensor with ``src`` in its diagonal's place; see ``diagonal``."""
    places = diagonal(np.arange(self.size).reshape(self.shape), offset, dim1, dim2)
    return exchanged(self.reshape(-1), places, src).reshape(self.shape)


@denotes("aten.diag_embed.default")
def diag_embed(self: Array, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Array:
    """Zeros with the last dimension along a diagonal: the inverse of ``diagonal``."""
    first, second = _plane(self.ndim + 1, dim1, dim2)
    side = self.shape[-1] + abs(offset) if self.ndim else 0
    shape = list(self.shape[:-1])
    for place in sorted((first, second)):
        shape.insert(place, side)
    return diagonal_scatter(np.zeros(shape, self.dtype), self, offset, first, second)


@denotes("aten.broadcast_tensors.default")
def broadcast_tensors(tensors: Sequence[Array]) -> tuple[Array, ...]:
    """The tensors in the shape that they have together."""
    return broadcast_all(*tensors)
