"""Other shapes and other orders of the same elements.

No operator here computes: each result holds elements of its operand, bit for bit, in its dtype.
Where torch's result shares memory with the operand is not part of the meaning, and neither is
whether torch's layout in memory allowed a view: ``view`` and ``reshape`` mean one thing.

Source: each function's page in torch's documentation, and that of ``torch.Tensor.view``.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from torch_ir.errors import InvalidIRError, counted
from torch_ir.semantics.axes import axis, distinct_axes
from torch_ir.semantics.broadcast import broadcast_to
from torch_ir.semantics.dtypes import Array
from torch_ir.semantics.registry import denotes, restate

# -- other shapes ---------------------------------------------------------------------------------


@denotes(
    "aten.view.default",
    "aten.view_copy.default",
    "aten._unsafe_view.default",
    "aten._reshape_copy.default",
)
def view(self: Array, size: Sequence[int]) -> Array:
    """The elements, taken row by row, in another shape with as many.

    One size may be −1: it is what makes the counts equal.
    """
    sizes = list(size)
    refused = InvalidIRError(f"a tensor of shape {list(self.shape)} is none of shape {sizes}")
    if min(sizes, default=0) < -1 or sizes.count(-1) > 1:
        raise refused
    if -1 in sizes:
        known = prod(size for size in sizes if size != -1)
        if known == 0 or self.size % known:
            raise refused
        sizes[sizes.index(-1)] = self.size // known
    if prod(sizes) != self.size:
        raise refused
    return self.reshape(sizes)


restate(view, "aten.reshape.default", shape="size")
restate(
    *(view, "aten._reshape_alias.default", "aten._reshape_alias_copy.default"),
    without=("stride",),  # which says where elements lie, not what they are
)


@denotes("aten.view_as.default", "aten.reshape_as.default")
def view_as(self: Array, other: Array) -> Array:
    """The elements in the other tensor's shape; see ``view``."""
    return view(self, other.shape)


@denotes("aten.flatten.using_ints")
def flatten(self: Array, start_dim: int = 0, end_dim: int = -1) -> Array:
    """The dimensions from ``start_dim`` to ``end_dim`` as one; without dimensions, shape [1]."""
    start, end = axis(start_dim, self.ndim), axis(end_dim, self.ndim)
    if start > end:
        raise InvalidIRError(f"dimension {start_dim} does not come before {end_dim}")
    shape = self.shape
    return self.reshape(*shape[:start], prod(shape[start : end + 1]), *shape[end + 1 :])


@denotes("aten.ravel.default")
def ravel(self: Array) -> Array:
    """The elements row by row: shape [n]."""
    return self.reshape(-1)


@denotes("aten.unflatten.int")
def unflatten(self: Array, dim: int, sizes: Sequence[int]) -> Array:
    """One dimension as several; one of their sizes may be −1."""
    place = axis(dim, self.ndim)
    inner = view(np.empty(self.shape[place]), sizes).shape
    return self.reshape(*self.shape[:place], *inner, *self.shape[place + 1 :])


@denotes("aten.squeeze.default", "aten.squeeze_copy.default")
def squeeze(self: Array) -> Array:
    """Without its dimensions of size 1."""
    return self.reshape([size for size in self.shape if size != 1])


@denotes(
    "aten.squeeze.dim",
    "aten.squeeze.dims",
    "aten.squeeze_copy.dim",
    "aten.squeeze_copy.dims",
)
def squeeze_dims(self: Array, dim: int | Sequence[int]) -> Array:
    """Without those of the named dimensions that have size 1; with no name, as it is."""
    dims = distinct_axes([dim] if isinstance(dim, int) else dim, self.ndim)
    kept = [size for place, size in enumerate(self.shape) if size != 1 or place not in dims]
    return self.reshape(kept)


@denotes("aten.unsqueeze.default", "aten.unsqueeze_copy.default")
def unsqueeze(self: Array, dim: int) -> Array:
    """With a dimension of size 1 put in, which then is ``dim``."""
    return np.expand_dims(self, axis(dim, self.ndim + 1))


@denotes("aten.expand.default", "aten.expand_copy.default", "aten.broadcast_to.default")
def expand(self: Array, size: Sequence[int], *, implicit: bool = False) -> Array:
    """In a larger shape, elements repeating along dimensions of size 1 and along new ones.

    −1 keeps a dimension's size; new dimensions stand in front and have no size to keep.
    """
    added = len(size) - self.ndim
    if added < 0 or any(number < 0 for number in size[:added]):
        raise InvalidIRError(f"shape {list(self.shape)} does not expand to {list(size)}")
    kept = zip(size[added:], self.shape, strict=True)
    shape = [*size[:added], *(old if new == -1 else new for new, old in kept)]
    return broadcast_to(self, shape)


@denotes("aten.expand_as.default")
def expand_as(self: Array, other: Array) -> Array:
    """In the other tensor's shape; see ``expand``."""
    return broadcast_to(self, other.shape)


@denotes("aten.view.dtype", "aten.view_copy.dtype")
def view_dtype(self: Array, dtype: np.dtype[Any]) -> Array:
    """The same bytes read as another type, little end first.

    The last dimension's size changes with the width: n · old width = m · new width.
    """
    if self.dtype.itemsize != dtype.itemsize:
        width = self.shape[-1] * self.dtype.itemsize if self.ndim else 1
        if width % dtype.itemsize:
            raise InvalidIRError(f"{self.dtype} of shape {list(self.shape)} is no {dtype}")
    return np.ascontiguousarray(self).reshape(self.shape).view(dtype)


# -- other orders ---------------------------------------------------------------------------------


@denotes("aten.permute.default", "aten.permute_copy.default")
def permute(self: Array, dims: Sequence[int]) -> Array:
    """Dimensions in another order: dimension i of the result is ``dims[i]`` of the operand."""
    order = distinct_axes(dims, self.ndim)
    if len(order) != self.ndim or len(dims) != self.ndim:
        raise InvalidIRError(f"{list(dims)} is no order of {counted(self.ndim, 'dimension')}")
    return np.transpose(self, order)


@denotes("aten.transpose.int", "aten.transpose_copy.int", "aten.swapdims.default")
def transpose(self: Array, dim0: int, dim1: int) -> Array:
    """Two dimensions in each other's place; a tensor without dimensions as it is."""
    first, second = axis(dim0, self.ndim), axis(dim1, self.ndim)
    return np.swapaxes(self, first, second) if self.ndim else self


restate(transpose, "aten.swapaxes.default", axis0="dim0", axis1="dim1")


@denotes("aten.t.default", "aten.t_copy.default")
def matrix_transpose(self: Array) -> Array:
    """A matrix with its two dimensions swapped; of lower rank, as it is."""
    if self.ndim > 2:
        raise InvalidIRError(f"a tensor of shape {list(self.shape)} is no matrix")
    return self.T


@denotes("aten.movedim.intlist", "aten.moveaxis.intlist", "aten.movedim.int", "aten.moveaxis.int")
def movedim(self: Array, source: int | Sequence[int], destination: int | Sequence[int]) -> Array:
    """Dimensions ``source`` put at ``destination``, the others in their order around them."""
    sources = distinct_axes([source] if isinstance(source, int) else source, self.ndim)
    targets = [destination] if isinstance(destination, int) else destination
    places = distinct_axes(targets, self.ndim)
    if len(sources) != len(places):
        raise InvalidIRError(f"{list(sources)} are not as many dimensions as {list(places)}")
    order = [place for place in range(self.ndim) if place not in sources]
    for place, moved in sorted(zip(places, sources, strict=True)):
        order.insert(place, moved)
    return np.transpose(self, order)


@denotes("aten.flip.default")
def flip(self: Array, dims: Sequence[int]) -> Array:
    """Backwards along each of ``dims``: ``result[…, i, …] = self[…, n − 1 − i, …]``."""
    return np.asarray(np.flip(self, distinct_axes(dims, self.ndim)))


@denotes("aten.fliplr.default")
def fliplr(self: Array) -> Array:
    """Backwards along dimension 1."""
    return flip(self, [1])


@denotes("aten.flipud.default")
def flipud(self: Array) -> Array:
    """Backwards along dimension 0."""
    return flip(self, [0])


@denotes("aten.roll.default")
def roll(self: Array, shifts: Sequence[int], dims: Sequence[int] = ()) -> Array:
    """Shifted in a circle: ``result[…, (i + shift) mod n, …] = self[…, i, …]``.

    Without ``dims``, the elements row by row, in the shape that they had. A dimension may be named
    more than once: its shifts add.
    """
    if not shifts or (len(shifts) != len(dims) and (dims or len(shifts) > 1)):
        raise InvalidIRError(f"shifts {list(shifts)} are not for dimensions {list(dims)}")
    if not dims:
        return np.roll(self.reshape(-1), shifts[0]).reshape(self.shape)
    if not self.ndim:
        raise InvalidIRError("a tensor without dimensions does not roll along one")
    for shift, dim in zip(shifts, dims, strict=True):
        self = np.roll(self, shift, axis(dim, self.ndim))
    return self


@denotes("aten.rot90.default")
def rot90(self: Array, k: int = 1, dims: Sequence[int] = (0, 1)) -> Array:
    """Turned ``k`` times by a right angle, from the first of two dimensions to the second."""
    plane = distinct_axes(dims, self.ndim)
    if len(plane) != 2:
        raise InvalidIRError(f"{list(dims)} is no plane")
    return np.rot90(self, k, plane)


@denotes("aten.pixel_shuffle.default")
def pixel_shuffle(self: Array, upscale_factor: int) -> Array:
    """Channels as finer pixels: [*, c · r², h, w] → [*, c, h · r, w · r].

    ``result[c, y · r + i, x · r + j] = self[c · r² + i · r + j, y, x]``.
    """
    r = upscale_factor
    if self.ndim < 3 or r < 1 or self.shape[-3] % (r * r):
        raise InvalidIRError(f"shape {list(self.shape)} has no channels for {r} × {r} pixels")
    *batch, channels, height, width = self.shape
    n = len(batch)
    parts = self.reshape(*batch, channels // (r * r), r, r, height, width)
    parts = np.moveaxis(parts, (n + 1, n + 2), (n + 2, n + 4))
    return parts.reshape(*batch, channels // (r * r), height * r, width * r)


@denotes("aten.pixel_unshuffle.default")
def pixel_unshuffle(self: Array, downscale_factor: int) -> Array:
    """Pixels as channels, the inverse of ``pixel_shuffle``.

    Shapes: [*, c, h · r, w · r] → [*, c · r², h, w].
    """
    r = downscale_factor
    if self.ndim < 3 or r < 1 or self.shape[-1] % r or self.shape[-2] % r:
        raise InvalidIRError(f"shape {list(self.shape)} has no blocks of {r} × {r} pixels")
    *batch, channels, height, width = self.shape
    n = len(batch)
    parts = self.reshape(*batch, channels, height // r, r, width // r, r)
    parts = np.moveaxis(parts, (n + 2, n + 4), (n + 1, n + 2))
    return parts.reshape(*batch, channels * r * r, height // r, width // r)


@denotes("aten.channel_shuffle.default", "aten.native_channel_shuffle.default")
def channel_shuffle(self: Array, groups: int) -> Array:
    """Channels of the groups in turn: channel ``i · groups + g`` is channel i of group g."""
    if self.ndim < 3 or groups < 1 or self.shape[1] % groups:
        raise InvalidIRError(f"shape {list(self.shape)} has no {groups} groups of channels")
    batch, channels, *rest = self.shape
    parts = self.reshape(batch, groups, channels // groups, *rest)
    return np.swapaxes(parts, 1, 2).reshape(self.shape)


# -- windows on memory ----------------------------------------------------------------------------


@denotes("aten.as_strided.default", "aten.as_strided_copy.default")
def as_strided(
    self: Array,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> Array:
    """``result[i, j, …] = elements[offset + i · stride[0] + j · stride[1] + …]``.

    ``elements`` are the operand's row by row: it counts as laid out without gaps, from offset 0.
    A tensor that torch keeps in another layout is not what this operator means here.
    """
    places = strided_places(self.size, size, stride, storage_offset or 0)
    return np.asarray(self.reshape(-1)[places])


def strided_places(count: int, size: Sequence[int], stride: Sequence[int], offset: int) -> Array:
    """At which of ``count`` elements each element of a strided tensor lies.

    Returns:
        int64 numbers of shape ``size``.

    Raises:
        InvalidIRError: A stride is negative, or an element lies outside.
    """
    layout = f"size {list(size)}, strides {list(stride)} and offset {offset}"
    if len(size) != len(stride) or min([*size, *stride, offset]) < 0:
        raise InvalidIRError(f"{layout} are no layout")
    places = np.full(list(size), offset, "int64")
    for dimension, (length, step) in enumerate(zip(size, stride, strict=True)):
        shape = [1] * len(size)
        shape[dimension] = length
        places = places + (np.arange(length) * step).reshape(shape)
    if places.size and places.max() >= count:
        raise InvalidIRError(f"{layout} do not fit {counted(count, 'element')}")
    return places


@denotes("aten.unfold.default", "aten.unfold_copy.default")
def unfold(self: Array, dimension: int, size: int, step: int) -> Array:
    """Windows along one dimension, their elements in a new last one.

    ``result[…, w, …, k] = self[…, w · step + k, …]``, for the ⌊(n − size) / step⌋ + 1 windows that
    fit. A tensor without dimensions counts as one of size 1.
    """
    place = axis(dimension, self.ndim)
    length = self.shape[place] if self.ndim else 1
    if not 0 <= size <= length or step <= 0:
        raise InvalidIRError(f"windows of {size} by steps of {step} do not fit size {length}")
    if not self.ndim:
        return self.reshape(1)[:size]
    starts = np.arange((length - size) // step + 1) * step
    windows = starts[:, None] + np.arange(size)
    return np.moveaxis(np.take(self, windows, axis=place), place + 1, -1)


@denotes("aten.resize_.default", "aten.resize.default")
def resize(self: Array, size: Sequence[int]) -> Array:
    """In another shape, that may have more or fewer elements.

    Row by row, the first elements are the operand's. What further ones hold is undefined; here 0.
    """
    if min(size, default=0) < 0:
        raise InvalidIRError(f"{list(size)} is no shape")
    result = np.zeros(prod(size), self.dtype)
    kept = min(self.size, result.size)
    result[:kept] = self.reshape(-1)[:kept]
    return result.reshape(list(size))
