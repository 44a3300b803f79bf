"""Pooling: the mean or the maximum of each window, and the backward passes.

The pooled axes are the last ones; the axes before them (channels, and a batch or none) are kept.

Source: torch.nn.AvgPool2d, torch.nn.MaxPool2d, torch.nn.AdaptiveAvgPool2d.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.dtypes import Array, is_float, is_integer, rounded, widened, working
from torch_ir.semantics.operators.indexing import in_range, put
from torch_ir.semantics.registry import denotes, restate
from torch_ir.semantics.windows import extent, flat_positions, padded, per_axis, taps

Sizes = int | Sequence[int]


@dataclass(frozen=True, slots=True)
class Pool:
    """How the windows of one pooling lie: one number for each pooled axis."""

    sizes: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    counts: tuple[int, ...]

    def sides(self, values: Array, value: Any) -> Array:
        """The values with what the windows touch around them."""
        spans = extent(self.kernel, self.dilation)
        axes = zip(self.sizes, self.counts, self.stride, self.padding, spans, strict=True)
        after = [max((n - 1) * s + span - size - p, 0) for size, n, s, p, span in axes]
        return padded(values, self.padding, after, value)

    def starts(self, axis: int) -> Array:
        """Where each window begins on an axis; less than 0 in the padding."""
        return np.arange(self.counts[axis]) * self.stride[axis] - self.padding[axis]


def _pool(
    values: Array,
    rank: int,
    kernel_size: Sizes,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    ceil_mode: bool,
) -> Pool:
    """The windows on the last ``rank`` axes.

    Raises:
        InvalidIRError: A window does not fit its padded axis, the padding is more than half a
            kernel, a number is too small, or an axis other than the batch is empty.
    """
    if values.ndim not in (rank + 1, rank + 2) or 0 in values.shape[-rank - 1 :]:
        shape = list(values.shape)
        raise InvalidIRError(f"pooling of {rank} axes takes no tensor of shape {shape}")
    kernel = per_axis(kernel_size, rank, "kernel_size", 1)
    steps = per_axis(stride, rank, "stride", 1) if stride != [] and stride != () else kernel
    sides = per_axis(padding, rank, "padding", 0)
    spread = per_axis(dilation, rank, "dilation", 1)
    sizes, spans = values.shape[-rank:], extent(kernel, spread)
    if any(pad > size // 2 for pad, size in zip(sides, kernel, strict=True)):
        raise InvalidIRError(f"padding {list(sides)} is more than half of kernels {list(kernel)}")
    axes = zip(sizes, sides, spans, steps, strict=True)
    counts = tuple(_count(size, pad, span, step, ceil_mode) for size, pad, span, step in axes)
    if min(counts) < 1:
        raise InvalidIRError(f"windows that span {list(spans)} do not fit sizes {list(sizes)}")
    return Pool(sizes, kernel, steps, sides, spread, counts)


def _count(size: int, padding: int, span: int, stride: int, ceil_mode: bool) -> int:
    """``⌊(size + 2·padding - span) / stride⌋ + 1`` windows; with ``ceil_mode`` ⌈ ⌉.

    Then a window may reach past the padding, but must begin in the values or the padding on the
    left.
    """
    space = size + 2 * padding - span
    count = (-(-space // stride) if ceil_mode else space // stride) + 1
    if ceil_mode and (count - 1) * stride >= size + padding:
        count -= 1
    return count


# -- mean -----------------------------------------------------------------------------------------


def _divisors(pool: Pool, count_include_pad: bool, divisor_override: int | None) -> Array:
    """By what each window's sum is divided: how many elements it has."""
    if divisor_override is not None:
        if divisor_override == 0:
            raise InvalidIRError("divisor_override is 0")
        return np.full(pool.counts, divisor_override)
    total = np.ones(pool.counts, "int64")
    for axis, (size, pad, kernel) in enumerate(
        zip(pool.sizes, pool.padding, pool.kernel, strict=True)
    ):
        starts = pool.starts(axis)
        low, high = (-pad, size + pad) if count_include_pad else (0, size)
        lengths = np.minimum(starts + kernel, high) - np.maximum(starts, low)
        total *= np.maximum(lengths, 0).reshape(-1, *[1] * (len(pool.sizes) - axis - 1))
    return np.maximum(total, 1)  # the sum of a window without elements is 0 anyway


def _average(
    self: Array, pool: Pool, count_include_pad: bool, divisor_override: int | None = None
) -> Array:
    sides = pool.sides(widened(self), 0)
    total = np.zeros((*self.shape[: -len(pool.sizes)], *pool.counts), sides.dtype)
    for _, window in taps(pool.kernel, pool.counts, pool.stride, pool.dilation):
        total += sides[(..., *window)]
    divisors = _divisors(pool, count_include_pad, divisor_override)
    if is_integer(self.dtype):
        down = total // divisors  # of integers toward 0: no product of them, which may wrap
        is_cut = (total % divisors != 0) & ((total < 0) != (divisors < 0))
        return rounded(down + is_cut, self.dtype)
    return rounded(total / divisors, self.dtype)


def _declare_mean(rank: int) -> None:
    @denotes(f"aten.avg_pool{rank}d.default")
    def avg_pool(
        self: Array,
        kernel_size: Sizes,
        stride: Sizes = (),
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Array:
        """The mean of each window: the sum of its elements, 0 in the padding, by their number.

        The number counts padding (but not what ``ceil_mode`` adds beyond it) if
        ``count_include_pad``; ``divisor_override`` stands for it. Without ``stride`` the windows
        do not overlap. Shapes: [*, c, h, w] → [*, c, h', w'] (and depth before height) with
        ``⌊(size + 2·padding - kernel) / stride⌋ + 1`` windows, ⌈ ⌉ with ``ceil_mode``, where the
        last must not begin in the right padding. dtype: the same; the mean of integers is
        truncated.
        """
        pool = _pool(self, rank, kernel_size, stride, padding, 1, ceil_mode)
        return _average(self, pool, count_include_pad, divisor_override)


for _rank in (1, 2, 3):
    _declare_mean(_rank)


@denotes("aten.avg_pool2d_backward.default", "aten.avg_pool3d_backward.default")
def avg_pool_backward(
    grad_output: Array,
    self: Array,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Array:
    """The gradient of the mean: each element gets ``grad_output / divisor`` of all its windows.

    Shapes: as the forward pass; the result has ``self``'s.
    """
    rank = 2 if len(kernel_size) == 2 else 3
    pool = _pool(self, rank, kernel_size, stride, padding, 1, ceil_mode)
    divisors = _divisors(pool, count_include_pad, divisor_override)
    share = grad_output.astype(working(self.dtype)) / divisors
    total = pool.sides(np.zeros(self.shape, share.dtype), 0)
    for _, window in taps(pool.kernel, pool.counts, pool.stride, pool.dilation):
        total[(..., *window)] += share
    inside = tuple(slice(p, p + n) for p, n in zip(pool.padding, pool.sizes, strict=True))
    return rounded(total[(..., *inside)], self.dtype)


# -- maximum --------------------------------------------------------------------------------------


def _lowest(dtype: np.dtype[Any]) -> Any:
    return np.iinfo(dtype).min if is_integer(dtype) else np.array(-np.inf).astype(dtype)


def _maximum(self: Array, pool: Pool) -> tuple[Array, Array]:
    rank = len(pool.sizes)
    sides = pool.sides(self, _lowest(self.dtype))
    shape = (*self.shape[:-rank], *pool.counts)
    best = np.full(shape, _lowest(self.dtype), self.dtype)
    starts = [pool.starts(axis) for axis in range(rank)]
    first = [start + _steps_in(start, d) for start, d in zip(starts, pool.dilation, strict=True)]
    indices = np.broadcast_to(flat_positions(first, pool.sizes), shape).copy()
    for place, window in taps(pool.kernel, pool.counts, pool.stride, pool.dilation):
        here = zip(starts, place, pool.dilation, strict=True)
        positions = [start + k * d for start, k, d in here]
        values = sides[(..., *window)]
        greater = (values > best) | np.isnan(values)
        taken = greater & _inside(positions, pool.sizes)
        best = np.where(taken, values, best)
        indices = np.where(taken, flat_positions(positions, pool.sizes), indices)
    return best, indices


def _steps_in(starts: Array, dilation: int) -> Array:
    """From a start in the left padding to the first place of its window that is not."""
    return -(np.minimum(starts, 0) // dilation) * dilation


def _inside(positions: Sequence[Array], sizes: Sequence[int]) -> Array:
    """Which windows' elements are no padding."""
    total = np.ones((), bool)
    for position, size in zip(positions, sizes, strict=True):
        total = total[..., None] & (position >= 0) & (position < size)
    return total


def _declare_maximum(rank: int) -> None:
    @denotes(f"aten.max_pool{rank}d_with_indices.default")
    def max_pool_with_indices(
        self: Array,
        kernel_size: Sizes,
        stride: Sizes = (),
        padding: Sizes = 0,
        dilation: Sizes = 1,
        ceil_mode: bool = False,
    ) -> tuple[Array, Array]:
        """The maximum of each window and where it stands in its plane, counted row by row (int64).

        Padding never is the maximum. Of equal ones (-0 and 0 are) the first counts; a NaN is
        greater than all, and of several the last counts. A window of nothing but -inf (or the
        least integer) names its first element. Shapes as of the mean, with windows of
        ``(kernel - 1) · dilation + 1``; dtype: the same.
        """
        pool = _pool(self, rank, kernel_size, stride, padding, dilation, ceil_mode)
        return _maximum(self, pool)

    restate(max_pool_with_indices, f"aten.max_pool{rank}d.default", part=0)


for _rank in (1, 2, 3):
    _declare_maximum(_rank)


@denotes(
    "aten.max_pool2d_with_indices_backward.default",
    "aten.max_pool3d_with_indices_backward.default",
)
def max_pool_with_indices_backward(
    grad_output: Array,
    self: Array,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: Array,
) -> Array:
    """The gradient of the maximum: each window's goes to the element that ``indices`` names.

    Elements that several windows name get the sum; the others 0. The shape is ``self``'s.
    """
    rank = 2 if len(kernel_size) == 2 else 3
    _pool(self, rank, kernel_size, stride, padding, dilation, ceil_mode)
    if indices.shape != grad_output.shape:
        raise InvalidIRError(
            f"indices {list(indices.shape)} are not of grad_output's {list(grad_output.shape)}"
        )
    return at_indices(grad_output, self, indices, rank)


def at_indices(gradient: Array, self: Array, indices: Array, rank: int) -> Array:
    """Add each window's gradient to the element of its plane that ``indices`` names.

    Raises:
        InvalidIRError: An index is not one of a plane's elements.
    """
    plane, planes = prod(self.shape[-rank:]), prod(self.shape[:-rank])
    places = indices.reshape(planes, prod(indices.shape[-rank:]))
    if places.size and not (places.min() >= 0 and places.max() < plane):
        raise InvalidIRError(f"an index is not less than the {plane} elements of a plane")
    total = np.zeros((planes, plane), working(self.dtype))
    np.add.at(total, (np.arange(planes)[:, None], places), gradient.reshape(places.shape))
    return rounded(total.reshape(self.shape), self.dtype)


@denotes("aten.max_unpool2d.default")
def max_unpool2d(self: Array, indices: Array, output_size: Sequence[int]) -> Array:
    """Zeros of ``output_size`` with each element at the place of its plane that ``indices`` names.

    Where several are put at one place, torch leaves open which stays; here it is the last.
    """
    if indices.shape != self.shape or indices.dtype != np.int64:
        raise InvalidIRError(
            f"indices {list(indices.shape)} of {indices.dtype} do not fit {list(self.shape)}"
        )
    rank, plane = len(output_size), prod(output_size)
    zeros = np.zeros((*self.shape[:-rank], *output_size), self.dtype)
    starts = np.arange(prod(self.shape[:-rank])) * plane
    places = in_range(indices, plane) + starts.reshape((*self.shape[:-rank], *[1] * rank))
    return put(zeros, places, self, accumulate=False)


# strides and pads say nothing more
restate(max_unpool2d, "aten.max_unpool3d.default", without=("stride", "padding"))


# -- windows at random places ---------------------------------------------------------------------


def _random_starts(samples: Array, size: int, count: int, kernel: int) -> Array:
    """Where windows start on an axis: ``⌊(i + s) a⌋ - ⌊s a⌋``, [*samples, count].

    ``a = (size - kernel) / (count - 1)``; all is computed in the samples' own type. The last
    window is at the end.
    """
    kind = samples.dtype
    last = np.full((*samples.shape, 1), size - kernel, "int64")
    if count == 1:
        return last
    step = np.asarray(size - kernel).astype(kind) / np.asarray(count - 1).astype(kind)
    numbers = np.arange(count - 1).astype(kind)
    moved = ((numbers + samples[..., None]).astype(kind) * step).astype(kind)
    first = (samples * step).astype(kind)
    starts = moved.astype("int64") - first.astype("int64")[..., None]
    return np.concatenate([starts, last], -1)


def _declare_fractional(rank: int) -> None:
    @denotes(f"aten.fractional_max_pool{rank}d.default")
    def fractional_max_pool(
        self: Array, kernel_size: Sequence[int], output_size: Sequence[int], random_samples: Array
    ) -> tuple[Array, Array]:
        """The maximum of windows at places that samples choose, and where it stands in its plane.

        Samples are of shape [n, channels, rank], from 0 to 1; of two axes the first is of the
        last axis. Elements are chosen as by ``max_pool_with_indices``.
        """
        sizes, planes = self.shape[-rank:], self.shape[:-rank]
        fits = all(
            k >= 1 and n >= 1 and k + n - 1 + (rank == 3) <= size
            for k, n, size in zip(kernel_size, output_size, sizes, strict=True)
        )
        drawn = (*(1, *planes)[-2:], rank)
        fits &= random_samples.shape == drawn and random_samples.dtype == self.dtype
        if not fits or not is_float(self.dtype):
            raise InvalidIRError(f"no {list(output_size)} windows of {self.dtype} {list(sizes)}")
        samples = random_samples.reshape(-1, rank)
        order = [1, 0] if rank == 2 else [0, 1, 2]
        axes = zip(order, sizes, output_size, kernel_size, strict=True)
        starts = [_random_starts(samples[:, column], *axis) for column, *axis in axes]
        values = self.reshape(-1, *sizes)
        made = [_largest_at(v, [s[i] for s in starts], kernel_size) for i, v in enumerate(values)]
        shape = (*planes, *output_size)
        best, places = (np.stack([pair[i] for pair in made]).reshape(shape) for i in (0, 1))
        return best.astype(self.dtype), places.astype("int64")


def _largest_at(
    plane: Array, starts: Sequence[Array], kernel: Sequence[int]
) -> tuple[Array, Array]:
    """The maximum of a plane's windows that start there, and where it stands."""
    corner = np.ix_(*starts)
    best, places = plane[corner], np.zeros([len(start) for start in starts], "int64")
    for place in np.ndindex(*kernel):
        at = np.ix_(*[start + step for start, step in zip(starts, place, strict=True)])
        values, numbers = plane[at], flat_positions([part.reshape(-1) for part in at], plane.shape)
        taken = (values > best) | np.isnan(values) | (not any(place))
        best, places = np.where(taken, values, best), np.where(taken, numbers, places)
    return best, places


for _rank in (2, 3):
    _declare_fractional(_rank)
