"""Elements chosen by tensors of indices, and put there.

Indices are int32 or int64. Where elements are added up, the sum is of real numbers, rounded once;
integers wrap, among booleans + is "or". Where several elements are put in one place without
adding, torch leaves open which stays; here it is the last, row by row.

Source: "Indexing" in torch's documentation, the pages of torch.index_select, Tensor.index_put_,
torch.take and others; NumPy's "Advanced indexing".
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from math import prod
from typing import TypeAlias

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.axes import axis
from torch_ir.semantics.broadcast import broadcast_all, broadcast_shape, broadcast_to
from torch_ir.semantics.dtypes import Array, is_inexact, rounded, widest, working
from torch_ir.semantics.numbers import element
from torch_ir.semantics.registry import denotes, restate


def require_index(index: Array) -> None:
    """Require int32 or int64.

    Raises:
        InvalidIRError: It has another type.
    """
    if index.dtype not in (np.int32, np.int64) and index.size:
        raise InvalidIRError(f"indices are int32 or int64, not {index.dtype}")


def in_range(index: Array, size: int, *, negative: bool = False) -> Array:
    """The indices from 0, as int64.

    Args:
        index: int32 or int64.
        size: Of the dimension.
        negative: Whether −1 means the last one, and so on.

    Raises:
        InvalidIRError: One is out of range.
    """
    require_index(index)
    low = -size if negative else 0
    outside = (index < low) | (index >= size)
    if outside.any():
        raise InvalidIRError(f"index {index[outside][0]} is out of range for size {size}")
    return np.where(index < 0, index.astype("int64") + size, index.astype("int64"))


WriteOrder: TypeAlias = Callable[[Array, Array], Array]
"""Takes places and the values that are put there; gives the positions of these, in the order in
which they are written: at each place the last one stays."""

_WRITE_ORDER: ContextVar[WriteOrder | None] = ContextVar("write order", default=None)


@contextmanager
def written_in(order: WriteOrder) -> Generator[None]:
    """Put values in another order than theirs: of several that go to one place, another stays.

    Example:
        >>> places = np.int64([0, 0])
        >>> with written_in(descending):
        ...     put(np.float32([7]), places, np.float32([1, 2]), accumulate=False)
        array([1.], dtype=float32)
    """
    token = _WRITE_ORDER.set(order)
    try:
        yield
    finally:
        _WRITE_ORDER.reset(token)


def ascending(places: Array, values: Array) -> Array:
    """Return the order of values in which the greatest is the last; of equal ones the last."""
    return np.argsort(widest(values) if is_inexact(values.dtype) else values, kind="stable")


def descending(places: Array, values: Array) -> Array:
    """Return the order of values in which the least is the last; of equal ones the first."""
    return ascending(places, values)[::-1]


def put(self: Array, places: Array, values: Array, accumulate: bool) -> Array:
    """The tensor with values at places, or added there.

    Of several values that are put at one place, the last one stays, in the order of
    :func:`written_in` if there is one.

    Args:
        self: The tensor.
        places: Numbers of elements, row by row.
        values: Of the places' shape.
        accumulate: Whether to add to what is there.
    """
    if not accumulate:
        result, order = self.reshape(-1).copy(), _WRITE_ORDER.get()
        flat, values = places.reshape(-1), values.reshape(-1)
        chosen = slice(None) if order is None else order(flat, values)
        result[flat[chosen]] = values[chosen]
        return result.reshape(self.shape)
    wide = self.reshape(-1).astype(working(self.dtype))
    np.add.at(wide, places, values.astype(wide.dtype))
    return rounded(wide, self.dtype).reshape(self.shape)


def _per_dimension(self: Array, indices: Sequence[Array | None]) -> list[Array | None]:
    """One tensor of indices for each dimension, None where all of it is taken.

    A mask of k dimensions becomes k tensors, the indices where it is true: none, if it has none.
    """
    found: list[Array | None] = []
    for index in indices:
        if index is None:
            found.append(None)
        elif index.dtype in (np.bool_, np.uint8):
            sizes = self.shape[len(found) : len(found) + index.ndim]
            if index.shape != sizes:
                raise InvalidIRError(f"a mask {list(index.shape)} does not fit {list(sizes)}")
            found.extend(np.nonzero(index) if index.ndim else ())
        else:
            require_index(index)
            found.append(index)
    if len(found) > self.ndim or all(index is None for index in found):
        raise InvalidIRError(f"{len(found)} indices do not fit {list(self.shape)}")
    return found + [None] * (self.ndim - len(found))


def indexed_places(self: Array, indices: Sequence[Array | None]) -> Array:
    """Which element, row by row, stands at each place of ``self[indices]``.

    The tensors of indices broadcast to one shape, whose dimensions stand in the result in the
    place of those indexed, or first where these do not all follow one another.
    """
    found = _per_dimension(self, indices)
    indexed = [place for place, index in enumerate(found) if index is not None]
    common = broadcast_shape(*(index.shape for index in found if index is not None))
    together = indexed == list(range(indexed[0], indexed[-1] + 1))
    front = indexed[0] if together else 0
    taken = [size for place, size in enumerate(self.shape) if found[place] is None]
    shape = [*taken[:front], *common, *taken[front:]]
    places = np.zeros(shape, "int64")
    behind = len(taken) - front
    for place, (size, index) in enumerate(zip(self.shape, found, strict=True)):
        weight = prod(self.shape[place + 1 :])
        if index is None:
            rank = sum(other is None for other in found[:place])
            after = len(taken) - rank - 1 + (len(common) if rank < front else 0)
            numbers = np.arange(size).reshape([size] + [1] * after)
        else:
            checked = in_range(index, size, negative=True) if places.size else index * 0
            numbers = broadcast_to(checked, common).reshape([*common, *[1] * behind])
        places = places + numbers * weight
    return places


@denotes("aten.index.Tensor")
def index(self: Array, indices: Sequence[Array | None]) -> Array:
    """``self[indices]``: an index tensor for each dimension, None (or too few) taking all of one.

    The index tensors broadcast to one shape C. Its dimensions stand where those indexed were, if
    these follow one another, else first: with indices at the dimensions b and c of [a, b, c, d],
    ``result[i, C…, l] = self[i, j(C…), k(C…), l]``. A mask (bool, or uint8) of k dimensions stands
    for k tensors: the places where it is true, row by row. Negative indices count from the end.
    """
    places = indexed_places(self, indices)
    return np.asarray(self.reshape(-1)[places])


@denotes("aten._unsafe_index.Tensor")
def unsafe_index(self: Array, indices: Sequence[Array | None]) -> Array:
    """``index`` without masks; that indices are in range is not promised by torch, but here."""
    for given in indices:
        if given is not None:
            require_index(given)
    return index(self, indices)


@denotes("aten.index_put.default", "aten._unsafe_index_put.default")
def index_put(
    self: Array, indices: Sequence[Array | None], values: Array, accumulate: bool = False
) -> Array:
    """The tensor with ``values`` put or added at ``self[indices]``, to whose shape they broadcast.

    A single value that is put where one mask is true is a number, as for ``masked_fill``, whose
    mask may be without dimensions: it stands for all elements.
    """
    given = [item for item in indices if item is not None]
    if values.size == 1 and not accumulate and [item.dtype for item in given] == [bool]:
        values = np.asarray(element(values.item(), self.dtype))
        if not given[0].ndim:
            return np.where(given[0], values, self)
    if values.dtype != self.dtype:
        raise InvalidIRError(f"{values.dtype} is not put into {self.dtype}")
    places = indexed_places(self, indices)
    return put(self, places, broadcast_to(values, places.shape), accumulate)


# checks are part of the meaning: ``unsafe`` only leaves torch's out
restate(index_put, "aten._index_put_impl.default", without=("unsafe",))


# -- along one dimension --------------------------------------------------------------------------


def _along(self: Array, dim: int, index: Array, *, negative: bool = False) -> Array:
    """Which element stands at each place of the tensor's parts at indices along a dimension."""
    if index.ndim > 1:
        raise InvalidIRError(f"indices of shape {list(index.shape)} are no vector")
    values = np.atleast_1d(self)
    place = axis(dim, self.ndim)
    chosen = in_range(index.reshape(-1), values.shape[place], negative=negative)
    return np.take(np.arange(values.size).reshape(values.shape), chosen, axis=place)


@denotes("aten.index_select.default")
def index_select(self: Array, dim: int, index: Array) -> Array:
    """``result[…, i, …] = self[…, index[i], …]`` along ``dim``.

    Of a tensor without dimensions, itself, for one index.
    """
    if not self.ndim and index.size != 1:
        raise InvalidIRError(f"a tensor without dimensions has no {index.size} parts")
    places = _along(self, dim, index)
    result = np.asarray(self.reshape(-1)[places])
    return result if self.ndim else result.reshape(())


def _parts(places: Array, source: Array, self: Array) -> Array:
    """The source in the shape of the places that it is for."""
    shape = places.shape if self.ndim else ()
    if source.shape not in (shape, ()) or (not source.ndim and places.size != 1 and self.ndim):
        raise InvalidIRError(f"{list(source.shape)} is not the parts' {list(shape)}")
    if source.dtype != self.dtype:
        raise InvalidIRError(f"{source.dtype} is not put into {self.dtype}")
    return np.broadcast_to(source.reshape(shape or (1,)) if source.ndim else source, places.shape)


@denotes("aten.index_add.default")
def index_add(self: Array, dim: int, index: Array, source: Array, *, alpha: complex = 1) -> Array:
    """The tensor with ``alpha · source[…, i, …]`` added at ``[…, index[i], …]``."""
    places = _along(self, dim, index)
    values = _parts(places, source, self)
    factor = element(alpha, self.dtype) if self.dtype.kind in "biu" else alpha
    return put(self, places, values.astype(working(self.dtype)) * factor, accumulate=True)


@denotes("aten.index_copy.default")
def index_copy(self: Array, dim: int, index: Array, source: Array) -> Array:
    """The tensor with ``source[…, i, …]`` put at ``[…, index[i], …]``."""
    places = _along(self, dim, index)
    return put(self, places, _parts(places, source, self), accumulate=False)


@denotes("aten.index_fill.int_Scalar")
def index_fill(self: Array, dim: int, index: Array, value: complex) -> Array:
    """The tensor with one value at every ``[…, index[i], …]``; negative indices count back."""
    places = _along(self, dim, index, negative=True)
    result = self.reshape(-1).copy()
    result[places] = element(value, self.dtype)
    return result.reshape(self.shape)


@denotes("aten.index_fill.int_Tensor")
def index_fill_tensor(self: Array, dim: int, index: Array, value: Array) -> Array:
    """The tensor with one value, a tensor without dimensions, at every ``[…, index[i], …]``."""
    if value.ndim:
        raise InvalidIRError(f"the value has dimensions: {list(value.shape)}")
    return index_fill(self, dim, index, value.item())


@denotes("aten.take.default")
def take(self: Array, index: Array) -> Array:
    """Elements by their number row by row, in the indices' shape; negative ones count back."""
    return np.asarray(self.reshape(-1)[in_range(index, self.size, negative=True)])


@denotes("aten.put.default")
def put_elements(self: Array, index: Array, source: Array, accumulate: bool = False) -> Array:
    """The tensor with ``source`` put (or added) at elements by their number row by row."""
    if source.size != index.size or source.dtype != self.dtype:
        raise InvalidIRError(f"{source.dtype} {list(source.shape)} is not put there")
    places = in_range(index, self.size, negative=True)
    return put(self, places.reshape(-1), source.reshape(-1), accumulate)


@denotes("aten.take_along_dim.default")
def take_along_dim(self: Array, indices: Array, dim: int | None = None) -> Array:
    """``gather`` with operand and indices broadcast to one shape but along ``dim``.

    Along ``dim`` indices are taken modulo its size; torch's page does not say so. Without ``dim``,
    elements by their number row by row, none of which is negative.
    """
    require_index(indices)
    if dim is None:
        return np.asarray(self.reshape(-1)[in_range(indices.reshape(-1), self.size)])
    place = axis(dim, self.ndim)
    if self.ndim != indices.ndim:
        raise InvalidIRError(f"{list(self.shape)} and {list(indices.shape)} differ in rank")
    if not self.ndim:
        raise InvalidIRError(f"a tensor without dimensions has no dimension {dim}")
    values, chosen = np.moveaxis(self, place, -1), np.moveaxis(indices, place, -1)
    shape = broadcast_shape(values.shape[:-1], chosen.shape[:-1])
    values = broadcast_to(values, (*shape, values.shape[-1]))
    chosen = broadcast_to(chosen, (*shape, chosen.shape[-1]))
    if chosen.size and not values.shape[-1]:
        raise InvalidIRError(f"there is no element along dimension {place}")
    places = np.remainder(chosen, max(values.shape[-1], 1))
    return np.moveaxis(np.take_along_axis(values, places, -1), -1, place)


# -- masks ----------------------------------------------------------------------------------------


def _with_mask(self: Array, mask: Array) -> tuple[Array, ...]:
    if mask.dtype != np.bool_:
        raise InvalidIRError(f"a mask is bool, not {mask.dtype}")
    return broadcast_all(self, mask)


@denotes("aten.masked_fill.Scalar")
def masked_fill(self: Array, mask: Array, value: complex) -> Array:
    """``value where mask else self``, in the shape that the two have together.

    The value becomes an element of the operand's dtype.
    """
    values, chosen = _with_mask(self, mask)
    return np.where(chosen, element(value, self.dtype), values)


@denotes("aten.masked_fill.Tensor")
def masked_fill_tensor(self: Array, mask: Array, value: Array) -> Array:
    """``masked_fill`` with a value that is a tensor without dimensions."""
    values, chosen = _with_mask(self, mask)
    if value.ndim:
        raise InvalidIRError(f"the value has dimensions: {list(value.shape)}")
    return np.where(chosen, rounded(value, self.dtype), values)


@denotes("aten.masked_scatter.default")
def masked_scatter(self: Array, mask: Array, source: Array) -> Array:
    """The tensor with elements of ``source``, row by row, where the mask is true, row by row.

    Operand and mask broadcast.
    """
    values, chosen = _with_mask(self, mask)
    count = int(chosen.sum())
    if source.dtype != self.dtype or source.size < count:
        raise InvalidIRError(
            f"{source.dtype} {list(source.shape)} does not fill {count} of {self.dtype}"
        )
    result = values.copy()
    result[chosen] = source.reshape(-1)[:count]
    return result


@denotes("aten.masked_select.default")
def masked_select(self: Array, mask: Array) -> Array:
    """The elements where the mask is true, row by row; operand and mask broadcast. Shape [n]."""
    values, chosen = _with_mask(self, mask)
    return values[chosen]


@denotes("aten.nonzero.default", "aten.argwhere.default")
def nonzero(self: Array) -> Array:
    """The indices of elements that are not 0, row by row: int64 of shape [n, rank].

    NaN is not 0; −0 is.
    """
    found = np.nonzero(self.reshape(-1) != 0)[0]
    if not self.ndim:
        return np.empty((found.size, 0), "int64")
    return np.stack(np.unravel_index(found, self.shape), axis=1).astype("int64")


@denotes("aten.nonzero_static.default")
def nonzero_static(self: Array, *, size: int, fill_value: int = -1) -> Array:
    """The first ``size`` rows of ``nonzero``, filled up with one value."""
    found = nonzero(self)[:size]
    filled = np.full((size - len(found), self.ndim), fill_value, "int64")
    return np.concatenate([found, filled])
