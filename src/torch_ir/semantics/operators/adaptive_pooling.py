"""Pooling to a given size: window i of n on an axis is [⌊i·size/n⌋, ⌈(i + 1)·size/n⌉).

Source: torch.nn.AdaptiveAvgPool2d, torch.nn.AdaptiveMaxPool2d.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.dtypes import Array, is_float, is_inexact, rounded, widened, working
from torch_ir.semantics.registry import denotes
from torch_ir.semantics.windows import per_axis


def _windows(size: int, count: int) -> list[slice]:
    return [slice(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]


def _counts(values: Array, output_size: int | Sequence[int], rank: int) -> tuple[int, ...]:
    counts = per_axis(output_size, rank, "output_size", 0)
    if values.ndim not in (rank + 1, rank + 2) or 0 in values.shape[-rank:]:
        shape = list(values.shape)
        raise InvalidIRError(f"pooling of {rank} axes takes no tensor of shape {shape}")
    return counts


def _mean(values: Array, output_size: int | Sequence[int], rank: int) -> Array:
    counts = _counts(values, output_size, rank)
    if not is_inexact(values.dtype):
        raise InvalidIRError(f"pooling to a size is of floating-point numbers, not {values.dtype}")
    total, divisors = widened(values), np.ones((), "int64")
    for axis, count in zip(range(-rank, 0), counts, strict=True):
        windows = _windows(values.shape[axis], count)
        parts = np.moveaxis(total, axis, 0)
        shape = (count, *parts.shape[1:])
        sums = np.array([parts[window].sum(axis=0) for window in windows], total.dtype)
        total = np.moveaxis(sums.reshape(shape), 0, axis)
        lengths = np.array([window.stop - window.start for window in windows], "int64")
        divisors = divisors[..., None] * lengths
    return rounded(total / divisors, values.dtype)


def _declare_mean(rank: int, *op_types: str) -> None:
    @denotes(*op_types)
    def adaptive_avg_pool(self: Array, output_size: int | Sequence[int]) -> Array:
        """The mean of each window of the last axes: ``Σ elements / number``.

        Shapes: [*, c, h, w], (n, m) → [*, c, n, m], which may be larger than h and w; one size
        for each of the operator's axes. dtype: the same.
        """
        return _mean(self, output_size, rank)


_declare_mean(1, "aten.adaptive_avg_pool1d.default")
for _rank in (2, 3):
    _name = f"adaptive_avg_pool{_rank}d.default"
    _declare_mean(_rank, f"aten._{_name}", f"aten.{_name}")


def _declare_gradient(rank: int) -> None:
    @denotes(f"aten._adaptive_avg_pool{rank}d_backward.default")
    def adaptive_avg_pool_backward(grad_output: Array, self: Array) -> Array:
        """The gradient of the mean: an element gets ``grad_output / number`` of its windows."""
        upper = grad_output.astype(working(self.dtype))
        total = np.zeros(self.shape, upper.dtype)
        pairs = zip(self.shape[-rank:], grad_output.shape[-rank:], strict=True)
        for window in product(*(enumerate(_windows(*pair)) for pair in pairs)):
            place, elements = zip(*window, strict=True)
            number = prod(part.stop - part.start for part in elements)
            part = upper[(..., *place)][(..., *[None] * rank)]
            total[(..., *elements)] += part / number
        return rounded(total, self.dtype)


for _rank in (2, 3):
    _declare_gradient(_rank)


def _greatest(values: Array, output_size: int | Sequence[int], rank: int) -> tuple[Array, Array]:
    counts = _counts(values, output_size, rank)
    if not is_float(values.dtype):
        raise InvalidIRError(f"pooling to a size is of floating-point numbers, not {values.dtype}")
    if 0 in values.shape[1:]:
        raise InvalidIRError(f"a tensor of shape {list(values.shape)} has no maximum")
    sizes, kept = values.shape[-rank:], values.shape[:-rank]
    best = np.zeros((*kept, *counts), values.dtype)
    indices = np.zeros((*kept, *counts), "int64")
    places = np.arange(prod(sizes)).reshape(sizes)
    axes = [enumerate(_windows(size, count)) for size, count in zip(sizes, counts, strict=True)]
    for window in product(*axes):
        target = (..., *(index for index, _ in window))
        elements = tuple(part for _, part in window)
        flat = values[(..., *elements)].reshape(*kept, places[elements].size)
        chosen = _last_nan_or_first_maximum(flat)
        best[target] = np.take_along_axis(flat, chosen[..., None], -1)[..., 0]
        indices[target] = places[elements].reshape(-1)[chosen]
    return best, indices


def _last_nan_or_first_maximum(values: Array) -> Array:
    """The position on the last axis."""
    nan = np.isnan(values)
    last = values.shape[-1] - 1 - np.argmax(nan[..., ::-1], axis=-1)
    return np.where(nan.any(axis=-1), last, np.argmax(values, axis=-1))


def _declare_maximum(rank: int) -> None:
    @denotes(f"aten.adaptive_max_pool{rank}d.default")
    def adaptive_max_pool(self: Array, output_size: int | Sequence[int]) -> tuple[Array, Array]:
        """The maximum of each window and where it stands in its plane, counted row by row (int64).

        Of equal ones the first counts; a NaN is greater than all, and of several the last counts.
        """
        return _greatest(self, output_size, rank)


for _rank in (1, 2, 3):
    _declare_maximum(_rank)
