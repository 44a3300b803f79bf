"""Resampling of planes to other sizes: nearest neighbor, linear and cubic interpolation.

The resampled axes are the last ones of [n, c, *sizes]. Position i of ``out`` along an axis of
``size`` elements lies at ``(i + ½) · scale - ½`` of the source, with ``scale = 1 / scale_factor``
where a factor is given and ``size / out`` elsewhere; with ``align_corners`` at
``i · (size - 1) / (out - 1)``, and at 0 if ``out`` is 1.

Source: torch.nn.Upsample; torch.nn.functional.interpolate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.dtypes import Array, is_float, rounded, widened
from torch_ir.semantics.registry import declare, denotes
from torch_ir.semantics.windows import at_least, per_axis

Taps = list[tuple[Array, Array]]
"""What an axis is made of: for each tap, the elements taken and their weights."""

CUBIC = -0.75
"""The free parameter of the cubic kernel."""


def _goal(
    values: Array, rank: int, output_size: Sequence[int] | None, factors: Sequence[float] | None
) -> tuple[int, ...]:
    """The sizes that are asked for: given, or ``⌊size · factor⌋``.

    Raises:
        InvalidIRError: Both or neither are given, the rank is another, or an axis is empty.
    """
    if values.ndim != rank + 2 or 0 in values.shape[1:]:
        shape = list(values.shape)
        raise InvalidIRError(f"a tensor of shape {shape} is not [n, c, *sizes] of {rank} sizes")
    if (output_size is None) == (factors is None):
        raise InvalidIRError("one of output_size and scale_factors is to be given")
    if factors is None:
        goal = per_axis(output_size or (), rank, "output_size")
    else:
        pairs = zip(values.shape[2:], factors, strict=True)
        goal = tuple(int(size * factor) for size, factor in pairs)
    at_least(goal, 1, "output_size")
    return goal


# -- nearest --------------------------------------------------------------------------------------


def _nearest(
    values: Array, goal: Sequence[int], factors: Sequence[float | None], *, exact: bool
) -> Array:
    for axis, sizes in enumerate(zip(values.shape[2:], goal, factors, strict=True), 2):
        values = values.take(_elements(*sizes, exact=exact, plane=len(goal) == 2), axis)
    return values


def _elements(size: int, count: int, factor: float | None, *, exact: bool, plane: bool) -> Array:
    """Which element of an axis stands at each place."""
    elements = _middle_elements if exact else _first_elements
    scale = np.float32(1 / factor) if factor else np.float32(size) / np.float32(count)
    if not np.isfinite(scale):
        raise InvalidIRError(f"a factor of {factor} names no elements")
    return np.minimum(elements(size, count, scale, plane=plane), size - 1)


def _first_elements(size: int, count: int, scale: np.float32, *, plane: bool) -> Array:
    """``⌊i · scale⌋``; on planes of the same or twice the size, by that and not by the scale.

    So are gradients, of lines and volumes too.
    """
    if plane and count in (size, 2 * size):
        return np.arange(count) // (count // size)
    return np.floor(np.arange(count, dtype="float32") * scale).astype("int64")


def _middle_elements(size: int, count: int, scale: np.float32, *, plane: bool) -> Array:
    """``⌊(i + ½) · scale⌋``; elsewhere than on planes as ``((i + ½) · scale - ½) + ½``."""
    half = np.float32(0.5)
    middles = np.arange(count, dtype="float32") + half
    if plane:
        return np.floor(middles * scale).astype("int64")
    positions = (middles.astype("float64") * float(scale) - 0.5).astype("float32")
    return np.floor(positions + half).astype("int64")


def axis_weights(
    base: str,
    size: int,
    count: int,
    factor: float | None,
    align: bool,
    how: Weighting | None = None,
) -> Array:
    """Return the weights [elements, places] of one axis, for the operator of that base name."""
    weights = np.zeros((size, count))
    if "nearest" in base:
        exact = "exact" in base
        plane = "2d" in base or (not exact and base.endswith("_backward"))
        chosen = _elements(size, count, factor, exact=exact, plane=plane)
        parts = [(chosen, np.ones(count))]
    else:
        parts = _taps("cubic" in base, size, count, factor, align, how or Weighting())
    for places, part in parts:
        np.add.at(weights, (places, np.arange(count)), part)
    return weights


def in_bytes(values: Array, weights: Sequence[Array]) -> Array:
    """Return planes of uint8 through each axis's weights [elements, places], in fixed point.

    Weights are integers below 2¹⁵ over the greatest power of 2 that keeps them so; each axis that
    changes its size, the last one first, is rounded to a byte.
    """
    total = values.astype("int64")
    for axis in reversed(range(2, values.ndim)):
        matrix = weights[axis - 2]
        if matrix.shape[0] == matrix.shape[1]:
            continue
        largest = float(matrix.max(initial=0))
        fits = (bits for bits in range(22) if int(0.5 + largest * 2 ** (bits + 1)) >= 2**15)
        bits = next(fits, 22)
        scaled = matrix * 2.0**bits
        whole = np.trunc(scaled + np.copysign(0.5, scaled)).astype("int64")
        added = np.tensordot(total, whole, (axis, 0)) + (1 << bits >> 1)
        total = np.moveaxis(np.clip(added >> bits, 0, 255), -1, axis)
    return total.astype("uint8")


def each_or_none(factors: Sequence[float] | None, rank: int) -> list[float | None]:
    """Return the factor of each axis; None for each where there are none."""
    return [None] * rank if factors is None else [*factors]


def _declare_nearest(base: str, exact: bool, meaning: str) -> None:
    def nearest(
        input: Array, output_size: Sequence[int] | None, scale_factors: Sequence[float] | None
    ) -> Array:
        rank = input.ndim - 2
        goal = _goal(input, rank, output_size, scale_factors)
        return _nearest(input, goal, each_or_none(scale_factors, rank), exact=exact)

    declare(nearest, meaning, *[f"aten.{base}{rank}d.vec" for rank in (1, 2, 3)])


_declare_nearest(
    "upsample_nearest",
    False,
    """``result[…, i] = input[…, min(⌊i · scale⌋, size - 1)]`` along each axis.

    ``scale`` and the product are rounded to float32, as the choice of an element depends on it.
    On planes, the same size and twice the size have scale 1 and ½, whatever the factor.
    Shapes: [n, c, *sizes] → [n, c, *goal] with output_size or ``⌊size · scale_factor⌋``. Data
    moves; any dtype.

    Raises:
        InvalidIRError: Not one of output_size and scale_factors is given, or a size is 0.
    """,
)
_declare_nearest(
    "_upsample_nearest_exact",
    True,
    "``upsample_nearest`` at the middle of each element: ``⌊(i + ½) · scale⌋``.",
)


def scales_of(rank: int, given: Mapping[str, float | None]) -> list[float | None]:
    """Return the factor of each axis, by the names that torch has for them; None for its sizes.

    So are factors that are not greater than 0.
    """
    names = ("scales_d", "scales_h", "scales_w")[3 - rank :] if rank > 1 else ("scales",)
    factors = [given.get(name) for name in names]
    return [factor if factor is not None and factor > 0 else None for factor in factors]


def _declare_sized_nearest(rank: int) -> None:
    def nearest(self: Array, output_size: Sequence[int], **factors: float | None) -> Array:
        goal = _goal(self, rank, output_size, None)
        return _nearest(self, goal, scales_of(rank, factors), exact=False)

    meaning = "``upsample_nearest`` to these sizes with these factors."
    declare(nearest, meaning, f"aten.upsample_nearest{rank}d.default")


for _rank in (1, 2):
    _declare_sized_nearest(_rank)


# -- linear and cubic -----------------------------------------------------------------------------


def _positions(size: int, count: int, factor: float | None, align_corners: bool) -> Array:
    places = np.arange(count, dtype="float64")
    if align_corners:
        return places * ((size - 1) / (count - 1) if count > 1 else 0)
    return (places + 0.5) * (1 / factor if factor else size / count) - 0.5


def _taps(
    is_cubic: bool,
    size: int,
    count: int,
    factor: float | None,
    align: bool,
    how: Weighting,
) -> Taps:
    stays = size == count and not is_cubic  # the elements themselves, whatever the factor
    positions = how.moved(_positions(size, count, None if stays else factor, align))
    return _cubic_taps(size, positions, how) if is_cubic else _linear_taps(size, positions, how)


def _linear_taps(size: int, positions: Array, how: Weighting) -> Taps:
    positions = np.maximum(positions, 0)
    low = np.minimum(np.floor(positions).astype("int64"), size - 1)
    weight = how.kept(np.minimum(positions - low, 1))
    return [(low, how.kept(1 - weight)), (np.minimum(low + 1, size - 1), weight)]


def _cubic_taps(size: int, positions: Array, how: Weighting) -> Taps:
    first = np.floor(positions).astype("int64")
    places = [(first + step, np.abs(positions - first - step)) for step in (-1, 0, 1, 2)]
    return [(np.clip(place, 0, size - 1), how.kept(how.cubic(far))) for place, far in places]


def cubic_kernel(far: Array, a: float = CUBIC) -> Array:
    """The weight of an element that lies so far (0 to 2) away: Keys' kernel.

    ``(a + 2)·x³ - (a + 3)·x² + 1`` up to 1, ``a·x³ - 5a·x² + 8a·x - 4a`` up to 2.
    """
    near = ((a + 2) * far - (a + 3)) * far * far + 1
    beyond = ((a * far - 5 * a) * far + 8 * a) * far - 4 * a
    return np.where(far <= 1, near, beyond)


@dataclass(frozen=True)
class Weighting:
    """How a kernel computes the weights of linear and cubic interpolation: by itself, exactly.

    Attributes:
        kept_in: The type to which each weight is rounded, and 1 less the second of two; None for
            none.
        moved: Gives the positions that are taken for these.
        cubic: What takes the place of :func:`cubic_kernel`.
    """

    kept_in: np.dtype[Any] | None = None
    moved: Callable[[Array], Array] = np.positive
    cubic: Callable[[Array], Array] = cubic_kernel

    def kept(self, weights: Array) -> Array:
        """Return weights as they are kept, in float64."""
        return weights if self.kept_in is None else widened(rounded(weights, self.kept_in))


def cubic_slope(far: Array) -> Array:
    """Return the derivative of :func:`cubic_kernel`."""
    near = (3 * (CUBIC + 2) * far - 2 * (CUBIC + 3)) * far
    beyond = (3 * CUBIC * far - 10 * CUBIC) * far + 8 * CUBIC
    return np.where(far <= 1, near, beyond)


def _interpolated(
    values: Array,
    goal: Sequence[int],
    factors: Sequence[float | None],
    align_corners: bool,
    is_cubic: bool,
) -> Array:
    axes = [*zip(values.shape[2:], goal, factors, strict=True)]
    if values.dtype == np.uint8 and values.ndim == 4:
        base = "cubic" if is_cubic else "linear"
        return in_bytes(values, [axis_weights(base, *axis, align_corners) for axis in axes])
    if not is_float(values.dtype):
        raise InvalidIRError(f"interpolation of {values.dtype} has no denotation")
    total = widened(values)
    for axis, sizes in enumerate(axes, 2):
        shape = [1] * values.ndim
        shape[axis] = sizes[1]
        parts = _taps(is_cubic, *sizes, align_corners, Weighting())
        total = sum(
            (total.take(places, axis) * weights.reshape(shape) for places, weights in parts),
            start=np.zeros((), total.dtype),
        )
    return rounded(total, values.dtype)


@denotes(
    "aten.upsample_linear1d.vec", "aten.upsample_bilinear2d.vec", "aten.upsample_trilinear3d.vec"
)
def upsample_linear_vec(
    input: Array,
    output_size: Sequence[int] | None,
    align_corners: bool,
    scale_factors: Sequence[float] | None,
) -> Array:
    """Along each axis ``(1 - λ) · input[low] + λ · input[low + 1]``, rounded once.

    The position (see above), not less than 0, is ``low + λ`` with 0 ≤ λ < 1; past the last
    element there is the last. Shapes: [n, c, *sizes] → [n, c, *goal]; dtype: the same,
    floating, or uint8 in planes (:func:`in_bytes`).
    """
    rank = input.ndim - 2
    goal = _goal(input, rank, output_size, scale_factors)
    factors = each_or_none(scale_factors, rank)
    return _interpolated(input, goal, factors, align_corners, is_cubic=False)


@denotes("aten.upsample_bicubic2d.vec")
def upsample_bicubic2d_vec(
    input: Array,
    output_size: Sequence[int] | None,
    align_corners: bool,
    scale_factors: Sequence[float] | None,
) -> Array:
    """Along each axis the sum of the four nearest elements by :func:`cubic_kernel`, rounded once.

    Past the ends there is the last element. Shapes and dtype as :func:`upsample_linear_vec`.
    """
    goal = _goal(input, 2, output_size, scale_factors)
    factors = each_or_none(scale_factors, 2)
    return _interpolated(input, goal, factors, align_corners, is_cubic=True)


def _declare_sized(name: str, rank: int) -> None:
    def interpolated(
        self: Array, output_size: Sequence[int], align_corners: bool, **factors: float | None
    ) -> Array:
        goal = _goal(self, rank, output_size, None)
        return _interpolated(self, goal, scales_of(rank, factors), align_corners, "cubic" in name)

    meaning = f"``{name}.vec`` to these sizes with these factors."
    declare(interpolated, meaning, f"aten.{name}.default")


_declare_sized("upsample_linear1d", 1)
_declare_sized("upsample_bilinear2d", 2)
_declare_sized("upsample_trilinear3d", 3)
_declare_sized("upsample_bicubic2d", 2)
