"""Bounds of interpolation: of the values, and of the positions where these lie.

Kernels compute positions in float32 (float64 for float64), off by ``u · (position + 1)`` in units
of an element, which moves a value by that part of the difference to its neighbors.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from torch_ir.semantics.bounds.call import BoundedCall, Errors
from torch_ir.semantics.dtypes import Array

VALUES, POSITIONS = 4, 3
"""Roundings of a weight and its product on each axis; of a scale, its product and a shift."""
ROUNDED, CUBIC_ROUNDED = 2.2, 0.8
"""Roundings to a narrow type on each of two axes; on three, as many as of values. The terms of
cubic weights are taken at the greatest of their neighbors, of which they are a part."""
CUBIC_REACH = 2
"""Cubic weights add up to less than 1.4 in modulus on an axis, and are steeper by as much."""
BICUBIC = 2

_LINEAR = {
    "aten.upsample_bicubic2d.default": "aten.upsample_bilinear2d.default",
    "aten.upsample_bicubic2d.vec": "aten.upsample_bilinear2d.vec",
}
"""What has the same positions, and weights that are not negative."""


def interpolated(call: BoundedCall) -> Errors:
    """Bound linear and cubic resampling of the last axes."""
    (result,) = call.results
    name = "self" if "self" in call.arguments else "input"
    values = call.wide(name)
    linear = _LINEAR.get(call.op_type, call.op_type)
    is_cubic = linear != call.op_type
    (terms,) = call.meant(linear, **{name: _around(np.abs(values), is_cubic)})
    moved: Any = 0.0
    for place in range(2, values.ndim):
        count, size = result.shape[place], values.shape[place]
        shape = [1] * values.ndim
        shape[place] = count
        positions = np.minimum(np.arange(count) * (size / max(count, 1)) + 2, size)
        steps = _around(_steps(values, place), is_cubic)
        (near,) = call.meant(linear, **{name: steps})
        moved = moved + (positions + 1).reshape(shape) * near
    return [_off(call, terms, moved, values.ndim - 2, is_cubic, call.unit)]


def sampled(call: BoundedCall) -> Errors:
    """Bound sampling at points: positions from the grid's coordinates, in its own type."""
    values, grid = call.wide("input"), call.wide("grid")
    is_cubic = call["interpolation_mode"] == BICUBIC
    if call["interpolation_mode"] == 1:
        return [None]
    mode: dict[str, Any] = {"interpolation_mode": 0}
    if is_cubic and call["padding_mode"] == 0:
        mode["padding_mode"] = 1  # cubic weights reach further out than linear ones
    rank = values.ndim - 2
    (terms,) = call.meant(input=_around(np.abs(values), is_cubic), **mode)
    moved: Any = 0.0
    for place in range(2, values.ndim):
        size = values.shape[place]
        reach = np.abs(grid[..., rank - 1 - (place - 2)]) + 1
        # outside there may be 0: there, the difference to the neighbor is the value itself
        steps = _steps(values, place) + np.abs(values)
        (near,) = call.meant(input=_around(steps, is_cubic), **mode)
        moved = moved + np.abs(near) * (np.nan_to_num(reach) * size + 1)[:, None]
    own = call.result_unit if call.is_narrow else call.unit
    return [_off(call, terms, moved, rank, is_cubic, own)]


def _off(
    call: BoundedCall, terms: Array, moved: Array, rank: int, is_cubic: bool, position_unit: float
) -> Array:
    """Weights may be kept in the result's type; positions are of a type of their own."""
    reach = CUBIC_REACH if is_cubic else 1
    error = call.unit * VALUES * rank * reach * terms
    if call.is_narrow:
        count = VALUES if rank > 2 else CUBIC_ROUNDED if is_cubic else ROUNDED
        error = error + call.result_unit * count * rank * reach * terms
    error = error + position_unit * POSITIONS * reach * moved
    return call.opened(error, terms)


def _steps(values: Array, place: int) -> Array:
    """The greater difference of each element to its two neighbors on an axis."""
    far = np.abs(np.diff(values, axis=place))
    zero = np.zeros_like(values.take([0], axis=place))
    before, after = (zero, far), (far, zero)
    return np.maximum(np.concatenate(before, axis=place), np.concatenate(after, axis=place))


def _around(values: Array, is_cubic: bool) -> Array:
    """For cubic weights the greatest of an element and its neighbors on the last two axes."""
    if not is_cubic:
        return values
    for place in (-2, -1):
        ends = [values.take([index], axis=place) for index in (0, -1)]
        padded = np.concatenate([ends[0], values, ends[1]], axis=place)
        size = values.shape[place]
        parts = [padded.take(range(first, first + size), axis=place) for first in range(3)]
        values = np.maximum.reduce(parts)
    return values


def affine_grid(call: BoundedCall) -> Errors:
    """Bound a point times a matrix; kernels round the coordinates, too."""
    (result,) = call.results
    terms = np.sum(np.abs(call.wide("theta")), axis=-1)
    own = call.unit + (call.result_unit if call.is_narrow else 0)
    shape = [len(terms), *[1] * (result.ndim - 2), terms.shape[-1]]
    return [own * 4 * terms.reshape(shape)]
