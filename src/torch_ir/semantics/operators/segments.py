"""Segments of a dimension reduced one by one, histograms by edges, and rows made shorter.

Source: torch.segment_reduce, torch.histogram and ``max_norm`` of torch.nn.Embedding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.axes import axis as place_of
from torch_ir.semantics.dtypes import Array, is_float, rounded, widened, working
from torch_ir.semantics.operators.creation import linspace
from torch_ir.semantics.operators.distance import norm
from torch_ir.semantics.registry import denotes

_START: Mapping[str, float] = {
    "sum": 0.0,
    "mean": 0.0,
    "max": -np.inf,
    "min": np.inf,
    "prod": 1.0,
}
_JOIN: Mapping[str, Callable[..., Any]] = {
    "sum": np.sum,
    "mean": np.sum,
    "max": np.max,
    "min": np.min,
    "prod": np.prod,
}


@denotes("aten.segment_reduce.default")
def segment_reduce(
    data: Array,
    reduce: str,
    *,
    lengths: Array | None = None,
    indices: Array | None = None,
    offsets: Array | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Array:
    """The segments of a dimension reduced, by their lengths or by where they begin and end.

    Before that dimension each row has lengths of its own. A segment without elements gives
    ``initial``, by default 0 for sums, 1 for products, infinities for extremes, and NaN for means.
    """
    marks = _marks(reduce, lengths, offsets)
    place = place_of(axis, data.ndim)
    values = data.astype(working(data.dtype))
    shape = (*data.shape[:place], marks.shape[-1] - 1, *data.shape[place + 1 :])
    result = np.empty(shape, values.dtype)
    for row in np.ndindex(*data.shape[:place]):
        for number in range(shape[place]):
            part = values[row][int(marks[(*row, number)]) : int(marks[(*row, number + 1)])]
            result[(*row, number)] = _reduced(part, reduce, initial)
    return rounded(result, data.dtype)


def _marks(reduce: str, lengths: Array | None, offsets: Array | None) -> Array:
    """Where segments begin and end, by their lengths or as they are given."""
    marks = offsets
    if lengths is not None:
        ends = np.cumsum(lengths, -1)
        marks = np.concatenate([np.zeros((*ends.shape[:-1], 1), ends.dtype), ends], -1)
    if reduce not in _START or marks is None:
        raise InvalidIRError(f"segments are not reduced by {reduce!r} and lengths {lengths}")
    return marks


@denotes("aten._segment_reduce_backward.default")
def segment_reduce_backward(
    grad: Array,
    output: Array,
    data: Array,
    reduce: str,
    *,
    lengths: Array | None = None,
    offsets: Array | None = None,
    axis: int = 0,
    initial: float | None = None,
) -> Array:
    """The gradient of ``segment_reduce``; elements of no segment have 0.

    Extremes that are equal share a gradient (a negative one torch on the CPU gives each in full).
    Of products it is ``grad · output / x``, and of an x of 0 ``grad`` times all others.
    """
    marks, place = _marks(reduce, lengths, offsets), place_of(axis, data.ndim)
    values, gradients, made = (part.astype(working(data.dtype)) for part in (data, grad, output))
    result = np.zeros_like(values)
    for row in np.ndindex(*data.shape[:place]):
        for number in range(marks.shape[-1] - 1):
            part = slice(int(marks[(*row, number)]), int(marks[(*row, number + 1)]))
            given = gradients[(*row, number)], made[(*row, number)], values[row][part]
            result[row][part] = _slope(reduce, *given, 1.0 if initial is None else initial)
    return rounded(result, data.dtype)


def _slope(reduce: str, grad: Array, output: Array, part: Array, initial: float) -> Array:
    """The gradients of a segment's elements."""
    if reduce in ("sum", "mean"):
        return np.broadcast_to(grad / (len(part) if reduce == "mean" else 1), part.shape)
    if reduce in ("max", "min"):
        named = (part == output) | np.isnan(part)
        return np.where(named, grad / np.maximum(np.sum(named, 0), 1), 0)
    apart = (part == 0) | np.isnan(part)
    found = np.where(apart, 0, grad * output / np.where(apart, 1, part))
    for index in range(len(part)) if apart.any() else ():
        others = np.prod(np.delete(part, index, 0), 0, initial=initial)
        found[index] = np.where(apart[index], grad * others, found[index])
    return found


def _reduced(part: Array, reduce: str, initial: float | None) -> Any:
    start = _START[reduce] if initial is None else float(initial)
    if reduce == "mean" and not len(part):
        return np.nan if initial is None else start
    joined = _JOIN[reduce](part, axis=0, initial=start)
    return joined / len(part) if reduce == "mean" else joined


@denotes("aten.histogram.bins_tensor")
def histogram_by_edges(
    self: Array, bins: Array, *, weight: Array | None = None, density: bool = False
) -> tuple[Array, Array]:
    """How many elements, or how much weight, lies between each two edges, and the edges.

    An element at an edge is right of it, but at the last one left. As a density, the whole is 1.
    """
    if not is_float(self.dtype):
        raise InvalidIRError(f"{self.dtype} has no histogram")
    edges, values = widened(bins), widened(self).reshape(-1)
    inside = (values >= edges[0]) & (values <= edges[-1])
    weights = np.ones(values.shape) if weight is None else widened(weight).reshape(-1)
    places = bin_of(values[inside], edges)
    counts = np.bincount(places, weights[inside], minlength=len(edges) - 1)
    result = counts / (counts.sum() * np.diff(edges)) if density else counts
    return rounded(result, self.dtype), rounded(edges, self.dtype)


@denotes("aten.histogram.bin_ct")
def histogram(
    self: Array,
    bins: int = 100,
    *,
    range: Sequence[float] | None = None,
    **weighing: Any,
) -> tuple[Array, Array]:
    """The same by equally wide bins of a range, by default from the least element to the greatest.

    Of no elements it is from 0 to 1; where its ends are equal, ½ to either side.
    """
    _require_bins(bins)
    return histogram_by_edges(self, equal_edges(self, bins, range), **weighing)


# -- of several columns ---------------------------------------------------------------------------


@denotes("aten._histogramdd_bin_edges.default")
def histogramdd_edges(
    self: Array,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,
    weight: Array | None = None,
    density: bool = False,
) -> tuple[Array, ...]:
    """The edges of equally wide bins of each column, as of :func:`histogram`: [*, d] → d edges.

    No bins have the lower end of the range.
    """
    columns = self.reshape(-1, self.shape[-1]).T
    if len(columns) != len(bins) or not is_float(self.dtype):
        raise InvalidIRError(f"{self.dtype} {list(self.shape)} has no {len(bins)} columns")
    ends = [None] * len(bins) if range is None else np.reshape(range, (-1, 2)).tolist()
    columns = zip(columns, bins, ends, strict=True)
    return tuple([equal_edges(*column) for column in columns])


@denotes("aten._histogramdd_from_bin_tensors.default")
def histogramdd_by_edges(
    self: Array,
    bins: Sequence[Array],
    *,
    weight: Array | None = None,
    density: bool = False,
) -> Array:
    """How many rows, or how much weight, lies between edges of each column; [*, d] → [b₁, …, b_d].

    As of :func:`histogram_by_edges`.
    """
    if self.shape[-1:] != (len(bins),) or not is_float(self.dtype):
        raise InvalidIRError(f"{self.dtype} {list(self.shape)} has no {len(bins)} columns")
    rows, edges = widened(self).reshape(-1, len(bins)), [widened(edge) for edge in bins]
    ends = [(edge[0], edge[-1]) for edge in edges]
    inside = np.all([(c >= a) & (c <= b) for c, (a, b) in zip(rows.T, ends, strict=True)], 0)
    weights = np.ones(len(rows)) if weight is None else widened(weight).reshape(-1)
    places = [bin_of(c, edge) for c, edge in zip(rows[inside].T, edges, strict=True)]
    counts = np.zeros([len(edge) - 1 for edge in edges])
    np.add.at(counts, tuple(places), weights[inside])
    if density:
        counts = counts / (counts.sum() * volumes(edges))
    return rounded(counts, self.dtype)


def bin_of(values: Array, edges: Array) -> Array:
    """Return between which edges each value lies; an edge is right of it, but at the last one."""
    return np.clip(np.searchsorted(edges, values, "right") - 1, 0, len(edges) - 2)


def volumes(edges: Sequence[Array]) -> Array:
    """Return the volume of each bin."""
    total = np.ones(())
    for edge in edges:
        total = total[..., None] * np.diff(edge)
    return total


@denotes("aten._histogramdd_from_bin_cts.default")
def histogramdd(
    self: Array,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,
    **weighing: Any,
) -> Array:
    """The same by the edges of ``_histogramdd_bin_edges``."""
    _require_bins(*bins)
    return histogramdd_by_edges(self, histogramdd_edges(self, bins, range=range), **weighing)


def _require_bins(*bins: int) -> None:
    if min(bins) < 1:
        raise InvalidIRError(f"a histogram has no {min(bins)} bins")


def equal_edges(values: Array, bins: int, given: Sequence[float] | None) -> Array:
    """Return the edges of equally wide bins, in the type of the values.

    Raises:
        InvalidIRError: There are fewer than no bins, or the range is not finite or falls.
    """
    ends = (0.0, 1.0) if not values.size else (float(values.min()), float(values.max()))
    low, high = ends if given is None else (float(end) for end in given)
    if bins < 0 or not (np.isfinite([low, high]).all() and low <= high):
        raise InvalidIRError(f"there are no {bins} bins from {low} to {high}")
    if low == high:
        low, high = low - 0.5, high + 0.5
    return linspace(low, high, bins + 1, values.dtype)


@denotes("aten.embedding_renorm.default")
def embedding_renorm(self: Array, indices: Array, max_norm: float, norm_type: float) -> Array:
    """The table with each row that indices name scaled to ``max_norm``, where it is longer."""
    table = widened(self)
    rows = np.unique(indices)
    lengths = norm(table[rows], norm_type)
    factors = np.where(lengths > max_norm, max_norm / (lengths + 1e-7), 1)
    result = table.copy()
    result[rows] = table[rows] * factors[:, None]
    return rounded(result, self.dtype)
