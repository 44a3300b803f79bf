"""Sampling of planes at given points.

A point's coordinates run from -1 to 1 along each axis, the last axis first. With
``align_corners`` these are the middles of the first and the last element, otherwise their outer
edges: a coordinate x lies at ``(x + 1) / 2 · (size - 1)`` or ``((x + 1) · size - 1) / 2``, which
is rounded to the grid's dtype at each step, as the choice of elements depends on it.

Source: torch.nn.functional.grid_sample, torch.nn.functional.affine_grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.dtypes import Array, is_inexact, rounded, widened, working
from torch_ir.semantics.operators.creation import linspace
from torch_ir.semantics.operators.resampling import cubic_kernel, cubic_slope
from torch_ir.semantics.registry import denotes

BILINEAR, NEAREST, BICUBIC = 0, 1, 2
ZEROS, BORDER, REFLECTION = 0, 1, 2

Tap = tuple[Array, Array]
"""Elements along one axis, and the weights of each."""
Slope = tuple[Array, Array, Array]
"""The same, and how the weights change with the coordinate."""


def _inside(positions: Array, size: int, padding_mode: int, align_corners: bool) -> Array:
    """The positions, moved into the axis unless what is outside of it is 0."""
    if padding_mode == ZEROS:
        return positions
    if padding_mode == REFLECTION:
        low, high = (0.0, size - 1.0) if align_corners else (-0.5, size - 0.5)
        span = high - low
        if span == 0:
            return np.zeros_like(positions)
        far = np.abs(positions - low) % (2 * span)
        positions = np.where(far < span, far, 2 * span - far) + low
    return np.clip(positions, 0, size - 1)


def _positions(coordinates: Array, size: int, align_corners: bool) -> Array:
    number = coordinates.dtype.type
    middles = coordinates + number(1)
    if align_corners:
        return middles / number(2) * number(size - 1)
    return (middles * number(size) - number(1)) / number(2)


def _taps(
    coordinates: Array, size: int, mode: int, padding_mode: int, align_corners: bool
) -> list[Tap]:
    """What a point takes along one axis: elements, which may lie outside, and weights."""
    positions = _positions(coordinates, size, align_corners).astype(working(coordinates.dtype))
    if mode != BICUBIC:
        positions = _inside(positions, size, padding_mode, align_corners)
    if mode == NEAREST:
        return [(np.rint(positions), np.ones_like(positions))]
    first = np.floor(positions)
    if mode == BILINEAR:
        weight = positions - first
        return [(first, 1 - weight), (first + 1, weight)]
    taps = [
        (first + step, cubic_kernel(np.abs(positions - first - step))) for step in range(-1, 3)
    ]
    return [(_inside(at, size, padding_mode, align_corners), weight) for at, weight in taps]


def slopes_of(
    coordinates: Array, size: int, mode: int, padding_mode: int, align_corners: bool
) -> list[Slope]:
    """Return what a point takes along one axis: elements, weights, and these by the coordinate.

    What is moved to a border, and what takes the nearest element, does not change with it.
    """
    raw = _positions(coordinates, size, align_corners).astype(working(coordinates.dtype))
    taps = _taps(coordinates, size, mode, padding_mode, align_corners)
    scale = (size - 1 if align_corners else size) / 2
    if mode == NEAREST:
        return [(at, weight, np.zeros_like(weight)) for at, weight in taps]
    if mode == BICUBIC:
        far = [raw - np.floor(raw) - step for step in range(-1, 3)]
        steep = [np.sign(x) * cubic_slope(np.abs(x)) * scale for x in far]
        return [(*tap, slope) for tap, slope in zip(taps, steep, strict=True)]
    turn = np.ones_like(raw)
    if padding_mode == REFLECTION:
        low, span = (0.0, size - 1.0) if align_corners else (-0.5, float(size))
        far = np.abs(raw - low)
        flips = np.floor(far / span) if span else far * 0
        turn = np.where(raw < low, -1.0, 1.0) * np.where(flips % 2 == 0, 1.0, -1.0)
        raw = np.where(flips % 2 == 0, far - flips * span, span - (far - flips * span)) + low
    if padding_mode != ZEROS:
        turn = np.where((raw <= 0) | (raw >= size - 1), 0.0, turn)
    return [(*tap, sign * turn * scale) for tap, sign in zip(taps, (-1, 1), strict=True)]


def _sampled(
    input: Array, grid: Array, mode: int, padding_mode: int, align_corners: bool, rank: int
) -> Array:
    _require(input, grid, mode, padding_mode, rank)
    wide = working(input.dtype)
    values = input.astype(wide)
    sizes = input.shape[2:]
    axes = [
        _taps(grid[..., rank - 1 - axis], size, mode, padding_mode, align_corners)
        for axis, size in enumerate(sizes)
    ]
    batch = np.arange(len(input)).reshape(-1, *[1] * rank)
    total = np.zeros((*grid.shape[:-1], input.shape[1]), wide)
    for chosen in product(*axes):
        valid = np.ones(grid.shape[:-1], bool)
        weight = np.ones(grid.shape[:-1], wide)
        places: list[Array] = []
        for (positions, part), size in zip(chosen, sizes, strict=True):
            valid &= (positions >= 0) & (positions < size)
            weight = weight * part
            places.append(np.clip(np.nan_to_num(positions), 0, size - 1).astype("int64"))
        taken = values[(batch, slice(None), *places)]  # [n, *points, c]
        total += np.where(valid[..., None], taken * weight[..., None], 0)
    return rounded(np.moveaxis(total, -1, 1), input.dtype)


def _require(input: Array, grid: Array, mode: int, padding_mode: int, rank: int) -> None:
    shapes = f"input {list(input.shape)} and grid {list(grid.shape)}"
    if input.ndim != rank + 2 or grid.ndim != rank + 2 or grid.shape[-1] != rank:
        raise InvalidIRError(f"{shapes} are not planes and points of {rank} axes")
    if len(input) != len(grid) or 0 in input.shape[2:]:
        raise InvalidIRError(f"{shapes} differ in batch, or there is nothing to sample")
    if input.dtype != grid.dtype:
        raise InvalidIRError(f"input {input.dtype} and grid {grid.dtype} differ in dtype")
    if mode not in range(3) or padding_mode not in range(3) or (mode == BICUBIC and rank != 2):
        raise InvalidIRError(f"no interpolation {mode} with padding {padding_mode}")


@denotes("aten.grid_sampler_2d.default", "aten._grid_sampler_2d_cpu_fallback.default")
def grid_sampler_2d(
    input: Array, grid: Array, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Array:
    """Each plane at each point: ``result[n, c, p] = Σ weight · input[n, c, element]``.

    interpolation_mode 0 takes the two nearest elements along each axis, weighted linearly; 1 the
    nearest, of two equally near the even one; 2 four by :func:`cubic_kernel`. What lies outside
    is 0 with padding_mode 0; with 1 positions are moved to the nearest element, with 2 mirrored at
    the borders first (at the last elements' middles with ``align_corners``, else edges).
    Shapes: [n, c, h, w], [n, *points, 2] → [n, c, *points]; dtype: the input's, which is the
    grid's. A NaN coordinate has no defined result.
    """
    return _sampled(input, grid, interpolation_mode, padding_mode, align_corners, 2)


@denotes("aten.grid_sampler_3d.default")
def grid_sampler_3d(
    input: Array, grid: Array, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Array:
    """:func:`grid_sampler_2d` with three axes, and without interpolation 2."""
    return _sampled(input, grid, interpolation_mode, padding_mode, align_corners, 3)


@denotes("aten.grid_sampler.default")
def grid_sampler(*, input: Array, **arguments: Any) -> Array:
    """:func:`grid_sampler_2d` or :func:`grid_sampler_3d`, as the input's rank is 4 or 5."""
    return (grid_sampler_2d if input.ndim == 4 else grid_sampler_3d)(input, **arguments)


@denotes("aten.affine_grid_generator.default")
def affine_grid_generator(theta: Array, size: Sequence[int], align_corners: bool) -> Array:
    """The points of a grid, moved by an affine map: ``result[n, p] = theta[n] @ (p, 1)``.

    A grid's coordinates run evenly from -1 to 1, or between the middles of the outermost elements
    without ``align_corners``; the last axis comes first. Of integers, coordinates are integers.
    Shapes: [n, r, r + 1], (n, c, *sizes) → [n, *sizes, r] with r = 2 or 3; dtype: theta's.
    """
    rank = len(size) - 2
    if rank not in (2, 3) or theta.shape != (size[0], rank, rank + 1):
        raise InvalidIRError(f"theta {list(theta.shape)} maps no grid of size {list(size)}")
    axes = [_grid_axis(count, align_corners, theta.dtype) for count in size[2:]]
    mesh = np.meshgrid(*axes, indexing="ij")
    points = np.stack([*reversed(mesh), np.ones_like(mesh[0])], axis=-1)
    flat = points.reshape(-1, rank + 1) @ widened(theta).swapaxes(1, 2)
    return rounded(flat.reshape(size[0], *size[2:], rank), theta.dtype)


def _grid_axis(count: int, align_corners: bool, dtype: np.dtype[Any]) -> Array:
    if not is_inexact(dtype):
        ends = linspace(-1, 1, count, dtype) if count > 1 else np.zeros(1, dtype)
        return ends if align_corners else ((ends * dtype.type(count - 1)) / count).astype(dtype)
    if count == 1:
        return np.zeros(1)
    shrink = 1.0 if align_corners else (count - 1) / count
    return np.linspace(-1, 1, count) * shrink
