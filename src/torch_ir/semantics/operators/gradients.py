"""Backward operators of padding, pooling, shrinking, distances and sampling.

A gradient of what picks elements goes where they came from; elements that are picked several
times get the sum. Source: the derivative of each operator's definition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import inf, prod
from typing import Any

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.axes import axis as place_of
from torch_ir.semantics.dtypes import Array, compared_as, result_dtype, rounded, widest, working
from torch_ir.semantics.operators.grid_sampling import NEAREST, slopes_of
from torch_ir.semantics.operators.grid_sampling import Slope as Tap
from torch_ir.semantics.operators.padding import reflection_pad, replication_pad
from torch_ir.semantics.operators.pooling import at_indices
from torch_ir.semantics.pointwise import floating, pointwise
from torch_ir.semantics.registry import denotes, restate


def _added(gradient: Array, places: Array, shape: Sequence[int]) -> Array:
    """The gradient added up at places of planes; ``places`` counts the elements of a plane."""
    rank = places.ndim
    planes = prod(shape[: len(shape) - rank])
    plane = prod(shape[len(shape) - rank :])
    total = np.zeros((planes, plane), working(gradient.dtype))
    flat = gradient.astype(total.dtype).reshape(planes, places.size)
    np.add.at(total.T, places.reshape(-1), flat.T)
    return rounded(total.reshape(shape), gradient.dtype)


def _declare_padding(rank: int) -> None:
    places_of = {"reflection": reflection_pad, "replication": replication_pad}
    for name, pad in places_of.items():

        @denotes(f"aten.{name}_pad{rank}d_backward.default")
        def pad_backward(
            grad_output: Array,
            self: Array,
            padding: Sequence[int],
            pad: Callable[[Array, Sequence[int]], Array] = pad,
        ) -> Array:
            """The gradient of padding: each element gets those of all that it was repeated to."""
            sizes = self.shape[-rank:]
            numbers = np.arange(prod(sizes)).reshape(1, *sizes)
            places = pad(numbers, padding)[0]
            if grad_output.shape != (*self.shape[:-rank], *places.shape):
                raise InvalidIRError(f"a gradient of {list(grad_output.shape)} is not of padding")
            return _added(grad_output, places, self.shape)


for _rank in (1, 2, 3):
    _declare_padding(_rank)


def _declare_pooling(rank: int) -> None:
    @denotes(f"aten.adaptive_max_pool{rank}d_backward.default")
    def adaptive_max_pool_backward(grad_output: Array, self: Array, indices: Array) -> Array:
        """The gradient of the maximum: each window's goes to the element that indices name."""
        return at_indices(grad_output, self, indices, rank)


for _rank in (2, 3):
    _declare_pooling(_rank)


@denotes(
    "aten.fractional_max_pool2d_backward.default", "aten.fractional_max_pool3d_backward.default"
)
def fractional_max_pool_backward(
    grad_output: Array,
    self: Array,
    kernel_size: Sequence[int],
    output_size: Sequence[int],
    indices: Array,
) -> Array:
    """As the gradient of adaptive pooling, of windows at random places."""
    return at_indices(grad_output, self, indices, len(output_size))


# -- element by element ---------------------------------------------------------------------------


@denotes("aten.hardshrink_backward.default")
def hardshrink_backward(grad_out: Array, self: Array, lambd: float) -> Array:
    """The gradient where ``|x| > lambd``, else 0; in the common type."""
    dtype = result_dtype(grad_out, self)
    grads, values = rounded(grad_out, dtype), rounded(self, dtype)
    bound = rounded(np.float64(lambd), dtype)
    return np.where(np.abs(values) > bound, grads, np.zeros((), dtype))


restate(hardshrink_backward, "aten.softshrink_backward.default", grad_output="grad_out")


@denotes("aten.hardtanh_backward.default")
def hardtanh_backward(grad_output: Array, self: Array, min_val: float, max_val: float) -> Array:
    """The gradient where ``min_val < x < max_val``, else 0; in the common type.

    Numbers of two bytes are compared as float32.
    """
    dtype = result_dtype(grad_output, self)
    wide = compared_as(dtype)
    grads, values = rounded(grad_output, dtype), rounded(self, dtype).astype(wide)
    low, high = (rounded(np.float64(bound), wide) for bound in (min_val, max_val))
    return np.where((values > low) & (values < high), grads, np.zeros((), dtype))


@denotes("aten.hardsigmoid_backward.default")
def hardsigmoid_backward(grad_output: Array, self: Array) -> Array:
    """A sixth of the gradient where ``-3 < x < 3``, else 0."""
    return pointwise(lambda grad, x: np.where((x > -3) & (x < 3), grad / 6, 0), grad_output, self)


@denotes("aten.rrelu_with_noise_backward.default")
def rrelu_backward(
    grad_output: Array,
    self: Array,
    noise: Array,
    lower: float,
    upper: float,
    training: bool,
    self_is_result: bool,
) -> Array:
    """The gradient times the noise; without training, the mean slope where x is negative."""
    slope = (lower + upper) / 2
    if training:
        return pointwise(lambda grad, factor: grad * factor, grad_output, noise)
    return pointwise(lambda grad, x: np.where(x > 0, grad, grad * slope), grad_output, self)


@denotes("aten.masked_scatter_backward.default")
def masked_scatter_backward(grad_output: Array, mask: Array, sizes: Sequence[int]) -> Array:
    """The gradients at true places in order, then zeros, in the shape ``sizes``."""
    chosen = grad_output[np.broadcast_to(mask, grad_output.shape)]
    if chosen.size > prod(sizes):
        raise InvalidIRError(f"{chosen.size} gradients are too many for shape {list(sizes)}")
    flat = np.zeros(prod(sizes), grad_output.dtype)
    flat[: chosen.size] = chosen
    return flat.reshape(tuple(sizes))


def _gates(x: Array, dim: int) -> tuple[Array, Array, Array]:
    """The halves of a gated tensor in working precision, and the sigmoid of the second."""
    first, second = np.split(widest(x), 2, axis=place_of(dim, x.ndim))
    return first, second, 1 / (1 + np.exp(-second))


@denotes("aten.glu_jvp.default")
def glu_jvp(glu: Array, x: Array, dx: Array, dim: int) -> Array:
    """What ``glu = a · σ(b)`` moves by with its halves: ``σ · da + glu · (1 - σ) · db``."""
    _, _, gate = _gates(x, dim)
    da, db, _ = _gates(dx, dim)
    return rounded(gate * da + glu.astype(da.dtype) * (1 - gate) * db, glu.dtype)


@denotes("aten.glu_backward_jvp.default")
def glu_backward_jvp(
    grad_x: Array, grad_glu: Array, x: Array, dgrad_glu: Array, dx: Array, dim: int
) -> Array:
    """What the gradient of ``glu`` moves by with that of its result and with its halves.

    The first half is ``g σ``: ``dg σ + (g σ) (1 - σ) db`` =: m. The second is ``g σ a (1 - σ)``:
    ``m a (1 - σ) + (g σ) (1 - σ) (da - a σ db)``. ``g σ`` is the first half of ``grad_x``.
    """
    a, _, gate = _gates(x, dim)
    da, db, _ = _gates(dx, dim)
    gated, _, _ = _gates(grad_x, dim)
    rest = 1 - gate
    first = widest(dgrad_glu) * gate + gated * rest * db
    second = first * a * rest + gated * rest * (da - a * gate * db)
    result = np.concatenate([first, second], place_of(dim, x.ndim))
    return rounded(result, floating(grad_x, dgrad_glu, x, dx))


# -- products and distances -----------------------------------------------------------------------


@denotes("aten._trilinear.default")
def trilinear(
    i1: Array,
    i2: Array,
    i3: Array,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Array:
    """``Σ i1 · i2 · i3`` over the axes ``sumdim``, each with new axes where ``expand`` says."""
    kind = working(i1.dtype)
    pairs = ((i1, expand1), (i2, expand2), (i3, expand3))
    first, second, third = (np.expand_dims(v.astype(kind), tuple(axes)) for v, axes in pairs)
    shape = np.broadcast_shapes(first.shape, second.shape, third.shape)
    letters = "abcdefghijklmnopqrstuvwxyz"[: len(shape)]
    kept = "".join(letter for i, letter in enumerate(letters) if i not in sumdim)
    whole = (np.broadcast_to(part, shape) for part in (first, second, third))
    total = np.einsum(f"{letters},{letters},{letters}->{kept}", *whole)
    return rounded(np.asarray(total), i1.dtype)


def _slopes(difference: Array, p: float, distance: Array, kind: np.dtype[Any]) -> Array:
    """The derivative of the distance by each difference; 0 where the distance is."""
    if p == 0:
        return np.zeros_like(difference)
    if p == 1:
        return np.sign(difference)
    if p == inf:
        single = np.abs(difference).astype(kind) == distance.astype(kind)
        return np.sign(difference) * single
    found = np.sign(difference) * (np.abs(difference) / distance) ** (p - 1)
    return np.where(distance == 0, 0, np.where(difference == 0, 0, found))


@denotes("aten._cdist_backward.default")
def cdist_backward(grad: Array, x1: Array, x2: Array, p: float, cdist: Array) -> Array:
    """The gradient of ``cdist`` by ``x1``: ``Σ grad · sign(d) · (|d| / distance)^(p - 1)``."""
    if not cdist.size or not x1.size or p == 0:
        return np.zeros_like(x1)
    kind = working(x1.dtype)
    difference = x1.astype(kind)[..., :, None, :] - x2.astype(kind)[..., None, :, :]
    slopes = _slopes(difference, p, cdist.astype(kind)[..., None], x1.dtype)
    total = np.sum(grad.astype(kind)[..., None] * slopes, axis=-2)
    return rounded(total, x1.dtype)


@denotes("aten._pdist_backward.default")
def pdist_backward(grad: Array, self: Array, p: float, pdist: Array) -> Array:
    """The gradient of ``pdist``: each pair's for its first row, and against it for its second."""
    if p == 0:
        return np.zeros_like(self)
    kind = working(self.dtype)
    first, second = np.triu_indices(len(self), 1)
    values = self.astype(kind)
    slopes = _slopes(values[first] - values[second], p, pdist.astype(kind)[:, None], self.dtype)
    moved = grad.astype(kind)[:, None] * slopes
    total = np.zeros(self.shape, kind)
    np.add.at(total, first, moved)
    np.add.at(total, second, -moved)
    return rounded(total, self.dtype)


# -- sampling at points ---------------------------------------------------------------------------


@denotes(
    *("aten.grid_sampler_2d_backward.default", "aten.grid_sampler_3d_backward.default"),
    "aten._grid_sampler_2d_cpu_fallback_backward.default",
)
def grid_sampler_backward(
    grad_output: Array,
    input: Array,
    grid: Array,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    output_mask: Sequence[bool] = (True, True),
) -> tuple[Array | None, Array]:
    """The gradients of planes and points of ``grid_sampler_2d`` and ``_3d``.

    Shapes: those of the two; the first is None where ``output_mask`` does not ask for it. By a
    point moved outside of the planes, or at it, the gradient is 0; so is a point's that takes the
    nearest element, whatever that is.
    """
    if not grad_output.size:  # of any type
        return np.zeros_like(input) if output_mask[0] else None, np.zeros_like(grid)
    taps = point_taps(input, grid, interpolation_mode, padding_mode, align_corners)
    kind = working(input.dtype)
    planes, points = sampled_gradients(grad_output.astype(kind), input.astype(kind), taps)
    if interpolation_mode == NEAREST:
        points = np.zeros_like(points)
    made = rounded(planes, input.dtype) if output_mask[0] else None
    return made, rounded(points, grid.dtype)


def point_taps(
    input: Array, grid: Array, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> list[list[Tap]]:
    """Return what points take along each axis of planes: elements, weights and their slopes."""
    rank, how = grid.shape[-1], (interpolation_mode, padding_mode, align_corners)
    sizes = enumerate(input.shape[2:])
    return [slopes_of(grid[..., rank - 1 - axis], size, *how) for axis, size in sizes]


def sampled_gradients(
    gradient: Array, values: Array, axes: Sequence[Sequence[Tap]]
) -> tuple[Array, Array]:
    """Return the gradients [n, c, *sizes] of planes and [n, *points, rank] of points."""
    sizes, rank = values.shape[2:], len(axes)
    moved = np.moveaxis(gradient, 1, -1)  # [n, *points, c]
    planes = np.zeros(values.shape, gradient.dtype)
    points = np.zeros((*moved.shape[:-1], rank), gradient.dtype)
    batch = np.arange(len(values)).reshape(-1, *[1] * rank)
    for taps in product(*axes):
        pairs = [*zip(taps, sizes, strict=True)]
        valid = np.all([(at >= 0) & (at < size) for (at, _, _), size in pairs], axis=0)
        places = [
            np.clip(np.nan_to_num(at), 0, size - 1).astype("int64") for (at, _, _), size in pairs
        ]
        where: Any = (np.broadcast_to(batch, valid.shape), slice(None), *places)
        weight = np.where(valid, np.prod([part for _, part, _ in taps], axis=0), 0)
        np.add.at(planes, where, np.where(valid[..., None], moved * weight[..., None], 0))
        along = np.where(valid, np.sum(values[where] * moved, axis=-1), 0)
        for axis in range(rank):
            others = [tap[2 if i == axis else 1] for i, tap in enumerate(taps)]
            points[..., rank - 1 - axis] += along * np.prod(others, axis=0)
    return planes, points
