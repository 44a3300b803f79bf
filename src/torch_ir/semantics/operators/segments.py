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
@np.errstate(all="ignore")
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

    Raises:
        InvalidIRError: There is no such reduction, or there are no lengths.
    """
    del unsafe, indices
    marks = offsets
    if lengths is not None:
        ends = np.cumsum(lengths, -1)
        marks = np.concatenate([np.zeros((*ends.shape[:-1], 1), ends.dtype), ends], -1)
    if reduce not in _START or marks is None:
        raise InvalidIRError(f"segments are not reduced by {reduce!r} and lengths {lengths}")
    place = place_of(axis, data.ndim)
    values = data.astype(working(data.dtype))
    shape = (*data.shape[:place], marks.shape[-1] - 1, *data.shape[place + 1 :])
    result = np.empty(shape, values.dtype)
    for row in np.ndindex(*data.shape[:place]):
        for number in range(shape[place]):
            part = values[row][int(marks[(*row, number)]) : int(marks[(*row, number + 1)])]
            result[(*row, number)] = _reduced(part, reduce, initial)
    return rounded(result, data.dtype)


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
    places = np.minimum(np.searchsorted(edges, values[inside], "right") - 1, len(edges) - 2)
    counts = np.bincount(places, weights[inside], minlength=len(edges) - 1)
    with np.errstate(all="ignore"):
        result = counts / (counts.sum() * np.diff(edges)) if density else counts
    return rounded(result, self.dtype), rounded(edges, self.dtype)


@denotes("aten.histogram.bin_ct")
def histogram(
    self: Array,
    bins: int = 100,
    *,
    range: Sequence[float] | None = None,
    weight: Array | None = None,
    density: bool = False,
) -> tuple[Array, Array]:
    """The same by equally wide bins of a range, by default from the least element to the greatest.

    Of no elements it is from 0 to 1; where its ends are equal, ½ to either side.
    """
    edges = equal_edges(self, bins, range)
    return histogram_by_edges(self, edges, weight=weight, density=density)


def equal_edges(values: Array, bins: int, given: Sequence[float] | None) -> Array:
    """Return the edges of equally wide bins, in the type of the values.

    Raises:
        InvalidIRError: There are no bins, or the range is not finite or falls.
    """
    ends = (0.0, 1.0) if not values.size else (float(values.min()), float(values.max()))
    low, high = ends if given is None else (float(end) for end in given)
    if bins < 1 or not (np.isfinite([low, high]).all() and low <= high):
        raise InvalidIRError(f"there are no {bins} bins from {low} to {high}")
    if low == high:
        low, high = low - 0.5, high + 0.5
    return linspace(low, high, bins + 1, values.dtype)


@denotes("aten.embedding_renorm.default")
@np.errstate(all="ignore")
def embedding_renorm(self: Array, indices: Array, max_norm: float, norm_type: float) -> Array:
    """The table with each row that indices name scaled to ``max_norm``, where it is longer."""
    table = widened(self)
    rows = np.unique(indices)
    lengths = norm(table[rows], norm_type)
    factors = np.where(lengths > max_norm, max_norm / (lengths + 1e-7), 1)
    result = table.copy()
    result[rows] = table[rows] * factors[:, None]
    return rounded(result, self.dtype)
