"""Elements in order, and what is found by order.

NaN is larger than all; +0 and −0 are equal. Equal elements keep the order in which they stood
(torch promises that of ``sort.stable`` only, and elsewhere leaves their indices open). Complex
numbers have no order.

Source: torch.sort, torch.topk, torch.median, torch.searchsorted, torch.unique and others in
torch's documentation.
"""

from __future__ import annotations

from math import prod

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.axes import axis
from torch_ir.semantics.dtypes import (
    Array,
    is_complex,
    is_float,
    result_dtype,
    rounded,
    widened,
    working,
)
from torch_ir.semantics.numbers import same
from torch_ir.semantics.registry import denotes, restate

Pair = tuple[Array, Array]


def in_order(values: Array, place: int, descending: bool) -> Array:
    """Return the indices along an axis in the elements' order, equal ones as they stand.

    Raises:
        InvalidIRError: The elements are complex numbers.

    Example:
        >>> in_order(np.float32([2, np.nan, 1]), 0, descending=True)
        array([1, 0, 2])
    """
    if is_complex(values.dtype):
        raise InvalidIRError(f"{values.dtype} has no order")
    wide = widened(values)
    if not descending:
        return np.argsort(wide, axis=place, kind="stable")
    backwards = np.argsort(np.flip(wide, place), axis=place, kind="stable")
    return np.flip(values.shape[place] - 1 - backwards, place)


def next_equal(values: Array, place: int) -> Array:
    """Return for each element the index along an axis of the next one that is equal, in a circle.

    Example:
        >>> next_equal(np.float32([3, 1, 3, 2, 3]), 0)
        array([2, 1, 4, 3, 0])
    """
    order = in_order(values, place, descending=False)
    line = np.take_along_axis(values, order, place)
    before = np.roll(line, 1, place)
    is_first = ~same(line, before)
    count = values.shape[place]
    steps = np.arange(count).reshape([-1 if i == place else 1 for i in range(line.ndim)])
    is_first |= steps == 0
    start = np.maximum.accumulate(np.where(is_first, steps, 0), place)
    is_last = np.roll(is_first, -1, place)
    after = np.where(is_last, start, np.minimum(steps + 1, count - 1))
    following = np.take_along_axis(order, after, place)
    result = np.empty_like(order)
    np.put_along_axis(result, order, following, place)
    return result


def _first(self: Array, count: int | None, dim: int, descending: bool) -> Pair:
    """The first elements along a dimension in order, all without a count; and their indices."""
    values = np.atleast_1d(self)
    place = axis(dim, self.ndim)
    order = in_order(values, place, descending).astype("int64")
    order = np.take(order, np.arange(values.shape[place] if count is None else count), axis=place)
    found = np.take_along_axis(values, order, place)
    if not self.ndim and order.size == 1:
        return found.reshape(()), order.reshape(())
    return found, order


@denotes("aten.sort.default", "aten.sort.stable")
def sort(
    self: Array, dim: int = -1, descending: bool = False, *, stable: bool | None = None
) -> Pair:
    """The elements in order along ``dim``, and the indices (int64) where they stood.

    Ascending with NaN last, or descending with NaN first; equal ones as they stood.
    """
    return _first(self, None, dim, descending)


restate(sort, "aten.argsort.default", "aten.argsort.stable", part=1)


@denotes("aten.msort.default")
def msort(self: Array) -> Array:
    """The elements in order along dimension 0."""
    return sort(self, 0)[0]


@denotes("aten.topk.default")
def topk(self: Array, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Pair:
    """The ``k`` largest (smallest) elements along ``dim``, in order; and their indices (int64).

    Of equal ones the first. Where ``sorted`` is not set torch leaves the order open; here it is
    the same.
    """
    length = self.shape[axis(dim, self.ndim)] if self.ndim else 1
    if not 0 <= k <= length:
        raise InvalidIRError(f"a dimension of size {length} has no {k} elements to choose")
    if not self.ndim and not k:
        return self, np.zeros((), "int64")
    return _first(self, k, dim, descending=largest)


def _chosen(self: Array, places: Array, place: int, keepdim: bool) -> Pair:
    """The elements at one index of each line, and these indices."""
    values = np.take_along_axis(np.atleast_1d(self), places, place)
    if not self.ndim:
        return values.reshape(()), places.reshape(())
    return (values, places) if keepdim else (values.squeeze(place), places.squeeze(place))


@denotes("aten.kthvalue.default")
def kthvalue(self: Array, k: int, dim: int = -1, keepdim: bool = False) -> Pair:
    """The ``k``-th smallest element of each line, from 1, and its index (int64)."""
    place = axis(dim, self.ndim)
    values = np.atleast_1d(self)
    if not self.ndim and k == 1:  # complex too
        return self.copy(), np.zeros((), "int64")
    if not 1 <= k <= values.shape[place]:
        raise InvalidIRError(
            f"a dimension of size {values.shape[place]} has no element {k} in order"
        )
    return _chosen(self, np.take(in_order(values, place, False), [k - 1], place), place, keepdim)


def _median(self: Array, dim: int, keepdim: bool, skip_nan: bool) -> Pair:
    place = axis(dim, self.ndim)
    values = np.atleast_1d(self)
    if not values.shape[place]:
        raise InvalidIRError("a dimension of size 0 has no median")
    nan = values != values
    order = in_order(values, place, False)
    present = np.sum(~nan, axis=place, keepdims=True)
    full = np.full_like(present, values.shape[place])
    middle = np.maximum((present if skip_nan else full) - 1, 0) // 2
    places = np.take_along_axis(order, middle, place)
    if not skip_nan:
        first_nan = np.argmax(nan, axis=place, keepdims=True)
        places = np.where(present < full, first_nan, places)
    return _chosen(self, places, place, keepdim)


def _declare_median(name: str, skip_nan: bool) -> None:
    @denotes(f"aten.{name}.dim")
    def in_lines(self: Array, dim: int, keepdim: bool = False) -> Pair:
        """Each line's median, of an even number of elements the lower; and its index (int64).

        ``median`` is NaN where there is one: the first. ``nanmedian`` is that of what is not NaN;
        of nothing, NaN.
        """
        return _median(self, dim, keepdim, skip_nan)

    @denotes(f"aten.{name}.default")
    def of_all(self: Array) -> Array:
        """The median of all elements, as of a line; of none, NaN, or what a cast makes of it."""
        if self.size:
            return _median(self.reshape(-1), 0, False, skip_nan)[0]
        if self.dtype.kind in "iu":  # to which kernels cast a NaN, by way of an int32
            least = 0 if self.dtype.itemsize < 4 else np.iinfo(self.dtype).min
            return rounded(least, self.dtype)
        return np.asarray(np.nan).astype(self.dtype)  # which is True


_declare_median("median", skip_nan=False)
_declare_median("nanmedian", skip_nan=True)


@denotes("aten.mode.default")
def mode(self: Array, dim: int = -1, keepdim: bool = False) -> Pair:
    """Each line's most frequent element, the smallest of these; and its last index (int64)."""
    place = axis(dim, self.ndim)
    line = np.moveaxis(np.atleast_1d(self), place, -1)
    if not line.shape[-1]:
        raise InvalidIRError("a dimension of size 0 has no most frequent element")
    order = np.argsort(line.astype(working(self.dtype)), axis=-1, kind="stable")
    ordered = np.take_along_axis(line, order, -1)
    begins = np.ones(ordered.shape, bool)
    begins[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
    places = np.arange(ordered.shape[-1])
    since = places - np.maximum.accumulate(np.where(begins, places, 0), axis=-1)
    last = np.take_along_axis(order, np.argmax(since, axis=-1, keepdims=True), -1)
    return _chosen(self, np.moveaxis(last, -1, place), place, keepdim)


# -- searching ------------------------------------------------------------------------------------


@denotes("aten.searchsorted.Tensor", "aten.searchsorted.Scalar")
def searchsorted(
    sorted_sequence: Array,
    self: Array | float,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Array | None = None,
) -> Array:
    """How many elements of an ascending line are less (with ``right``: or equal) than each value.

    A sequence of one dimension serves all values; one of more has a line for each line of values,
    [*, n] and [*, m]. ``side`` "right" is ``right``. With ``sorter``, ``sequence[sorter]`` is the
    line in order. Dtype int64, or int32 where asked for. NaN is larger than all. Both are compared
    in their common type, to which numbers and tensors without dimensions count little.
    """
    if side not in (None, "left", "right") or (side == "left" and right):
        raise InvalidIRError(f"side {side!r} and right {right} do not say on which side")
    values = np.asarray(self)
    lines = sorted_sequence
    if sorter is not None:
        lines = np.take_along_axis(lines, sorter, -1)
    if not lines.ndim or (lines.ndim > 1 and lines.shape[:-1] != values.shape[:-1]):
        raise InvalidIRError(f"{list(lines.shape)} has no line for each of {list(values.shape)}")
    where = "right" if right or side == "right" else "left"
    common = result_dtype(sorted_sequence, self)
    lines, wanted = (widened(rounded(array, common)) for array in (lines, values))
    dtype = np.dtype("int32" if out_int32 else "int64")
    if lines.ndim == 1:
        return np.asarray(np.searchsorted(lines, wanted, where)).astype(dtype)
    found = np.empty(values.shape, dtype)
    for place in np.ndindex(*lines.shape[:-1]):
        found[place] = np.searchsorted(lines[place], wanted[place], where)
    return found


@denotes("aten.bucketize.Tensor", "aten.bucketize.Scalar")
def bucketize(
    self: Array | float, boundaries: Array, *, out_int32: bool = False, right: bool = False
) -> Array:
    """Which interval between ascending boundaries each value lies in; see ``searchsorted``."""
    if boundaries.ndim != 1:
        raise InvalidIRError(f"boundaries of shape {list(boundaries.shape)} are no line")
    return searchsorted(boundaries, self, out_int32=out_int32, right=right)


# -- distinct elements ----------------------------------------------------------------------------

Distinct = tuple[Array, Array, Array]


def _runs(starts: Array) -> tuple[Array, Array]:
    """From where runs start: the number of the run each row is in, and the runs' lengths."""
    numbers = np.cumsum(starts) - 1
    return numbers, np.bincount(numbers, minlength=int(starts.sum())).astype("int64")


def _starts(rows: Array) -> Array:
    """Which rows differ from the one before."""
    differs = (rows[1:] != rows[:-1]).any(axis=tuple(range(1, rows.ndim)))
    return np.concatenate([np.ones(min(len(rows), 1), bool), differs])


def _distinct(rows: Array, ordered: bool) -> tuple[Array, Array, Array]:
    """Distinct rows, in order or as they follow one another; each row's number; and counts."""
    order = np.arange(len(rows))
    if ordered and len(rows):
        columns = rows.reshape(len(rows), prod(rows.shape[1:])).astype(working(rows.dtype)).T
        order = np.lexsort(columns[::-1]) if len(columns) else order
    arranged = rows[order]
    starts = _starts(arranged)
    numbers, counts = _runs(starts)
    inverse = np.empty(len(rows), "int64")
    inverse[order] = numbers
    return arranged[starts], inverse, counts


@denotes("aten._unique2.default")
def unique(
    self: Array,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> Distinct:
    """Distinct elements, ascending; NaN are all distinct.

    Returns:
        The elements [n]; for each of the operand's the number of its equal, in its shape; how
        often each occurs [n]. Both int64, and [0] where not asked for. Where ``sorted`` is not set
        torch leaves the order open; here it is the same.
    """
    values, inverse, counts = _distinct(self.reshape(-1), ordered=True)
    return _asked(values, inverse.reshape(self.shape), counts, return_inverse, return_counts)


@denotes("aten._unique.default")
def unique_alone(
    self: Array, sorted: bool = True, return_inverse: bool = False
) -> tuple[Array, Array]:
    """``_unique2`` without counts."""
    values, inverse, _ = unique(self, sorted, return_inverse)
    return values, inverse


@denotes("aten.unique_dim.default")
def unique_dim(self: Array, dim: int, **_asked: bool) -> Distinct:
    """Distinct parts along a dimension, in order of their elements; as ``_unique2``."""
    return _distinct_parts(self, dim, ordered=True)


def _distinct_parts(self: Array, dim: int, ordered: bool) -> Distinct:
    place = axis(dim, self.ndim)
    values, inverse, counts = _distinct(np.moveaxis(self, place, 0), ordered)
    return np.moveaxis(values, 0, place), inverse, counts


@denotes("aten.unique_consecutive.default")
def unique_consecutive(
    self: Array,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Distinct:
    """The first of each run of equal elements (or parts along ``dim``); as ``_unique2``."""
    if dim is None or (dim == 0 and self.ndim == 1):
        values, inverse, counts = _distinct(self.reshape(-1), ordered=False)
        return _asked(values, inverse.reshape(self.shape), counts, return_inverse, return_counts)
    return _distinct_parts(self, dim, ordered=False)


@denotes("aten.unique_dim_consecutive.default")
def unique_dim_consecutive(self: Array, dim: int, **_asked: bool) -> Distinct:
    """The first of each run of equal parts along a dimension, numbers and counts in any case."""
    return _distinct_parts(self, dim, ordered=False)


def _asked(
    values: Array, inverse: Array, counts: Array, inverse_asked: bool, counts_asked: bool
) -> Distinct:
    nothing = np.empty(0, "int64")
    return values, inverse if inverse_asked else nothing, counts if counts_asked else nothing


@denotes("aten.bincount.default")
def bincount(self: Array, weights: Array | None = None, minlength: int = 0) -> Array:
    """How often each number from 0 to the largest occurs, or the sum of its weights.

    Shape [max(largest + 1, minlength)]. Dtype int64; of weights float32 for float32, else float64.
    """
    if self.dtype.kind not in "iu" or self.ndim != 1 or (self.size and self.min() < 0):
        raise InvalidIRError(f"{self.dtype} {list(self.shape)} is not counted")
    if weights is None:
        return np.bincount(self, minlength=minlength).astype("int64")
    wide = weights.astype("float64")
    counted = np.bincount(self, wide, minlength)
    return rounded(counted, np.dtype("float32" if weights.dtype == np.float32 else "float64"))


@denotes("aten.histc.default")
def histc(self: Array, bins: int = 100, min: float = 0, max: float = 0) -> Array:
    """How many elements lie in each of equally wide bins from min to max, which the last includes.

    What is outside, or NaN, is not counted. Where min is max, from the least element to the
    greatest; where these are equal too, 1 to either side. Where that is the same in the operand's
    type, all are in the middle bin. Shape [bins]; the operand's type.
    """
    low, high = histogram_range(self, min, max)
    if not is_float(self.dtype) or bins < 1 or not (low <= high and np.isfinite(high - low)):
        raise InvalidIRError(f"{self.dtype} is not counted in {bins} bins from {low} to {high}")
    values = widened(self).reshape(-1)
    values = values[(values >= low) & (values <= high)]
    parts = (values - low) / (high - low) if low < high else np.full(values.shape, 0.5)
    places = np.minimum((parts * bins).astype("int64"), bins - 1)
    return rounded(np.bincount(places, minlength=bins).astype("float64"), self.dtype)


def histogram_range(values: Array, least: float, most: float) -> tuple[float, float]:
    """Return where the first bin of :func:`histc` begins and where the last one ends."""
    low, high = (float(rounded(np.asarray(float(v)), values.dtype)) for v in (least, most))
    if low == high and values.size:
        low, high = float(values.min()), float(values.max())
    if low < high:
        return low, high
    low, high = (float(rounded(np.asarray(end), values.dtype)) for end in (low - 1, high + 1))
    return low, high
