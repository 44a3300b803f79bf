"""Bounds of interpolation: of the values, and of the positions where these lie.

Kernels compute positions in float32 (float64 for float64), off by ``u · (position + 1)`` in units
of an element, which moves a value by that part of the difference to its neighbors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from math import sqrt
from typing import Any

import numpy as np

from torch_ir.semantics.bounds import sums
from torch_ir.semantics.bounds.call import BoundedCall, Errors
from torch_ir.semantics.dtypes import Array, is_inexact, rounded
from torch_ir.semantics.operators.gradients import point_taps, sampled_gradients
from torch_ir.semantics.operators.resampling import Weighting, cubic_kernel
from torch_ir.semantics.operators.separable import matrices, through

VALUES, POSITIONS = 4, 3
"""Roundings of a weight and its product on each axis; of a scale, its product and a shift."""
FEW = 2
"""The product with a gradient, and the last addition."""
ROUNDED, CUBIC_ROUNDED = 2.2, 0.8
"""Roundings to a narrow type on each of two axes; on three, as many as of values. The terms of
cubic weights are taken at the greatest of their neighbors, of which they are a part."""
CUBIC_REACH = 2
"""Cubic weights add up to less than 1.4 in modulus on an axis, and are steeper by as much."""
REACH = 2
"""Elements from those with a weight to the others that cubic interpolation takes."""
CUBIC_TERMS = 18
"""Units that the outer weight ((Ax − 5A)x + 8A)x − 4A is off by for A = −3/4 and x to 2: halves of
4 · (1.5 + 3) + 2 · (4.5 + 3) + 3."""
CUBIC_TAPS = 3
"""How far beyond a position the last element lies that it takes, and what rounds up to one."""
NEAREST, BICUBIC = 1, 2
BORDER, REFLECTED = 1, 2
FAR = 2.0**-3
"""Positions from there on, over the unit of a type, have no eighths of elements in it."""
OUTSIDE = 8
"""In narrow types, and mirrored ones in all, such positions are open this far outside of a plane,
which reaches from -1 to 1."""


def interpolated(call: BoundedCall) -> Errors:
    """Bound linear and cubic resampling of the last axes; of bytes, nothing.

    Of narrow types a kernel keeps weights in float32 or in the type, and may round to it what the
    rows of cubic ones add up to. By how much each of these moves a result is known.
    """
    (result,) = call.results
    if not is_inexact(result.dtype):
        return [_misread(call)]
    given = call.wide("self" if "self" in call.arguments else "input")
    values = np.where(np.isfinite(given), given, 0)  # what is not makes a bound infinite
    weights = matrices(call.op_type, call.arguments)
    terms = through(np.abs(given), [np.abs(matrix) for matrix in weights], back=False)
    is_cubic = "cubic" in call.op_type
    error = call.unit * VALUES * len(weights) * (CUBIC_REACH if is_cubic else 1) * terms
    error = error + _by_positions(call, values, weights, None)
    error = error + _by_no_weight(given, weights, back=False, reach=1)
    if is_cubic:
        off = matrices(call.op_type, call.arguments, Weighting(cubic=_cubic_off))
        error = error + call.unit * _by_each(np.abs(values), weights, off)
    if call.is_narrow:
        error = error + _by_keeping(call, values, weights)
    way = _on_the_way(np.abs(given), weights, back=False) if is_cubic else terms
    return [call.opened(error, way)]


def _moves(call: BoundedCall) -> list[Callable[[Array], Array]]:
    """What kernels may take for positions: less or more, and the element next above in float32.

    They count elements by ``floorf``, even of positions in float64.
    """
    off = POSITIONS * call.unit
    moves = [partial(_moved_by, by * off) for by in (-1, 1)]
    return [*moves, _counted_in_float32] if call.dtype == np.float64 else moves


def _moved_by(part: float, positions: Array) -> Array:
    return positions + part * (np.abs(positions) + 1)


def _counted_in_float32(positions: Array) -> Array:
    return np.maximum(positions, np.floor(positions.astype("float32")))


def _by_positions(
    call: BoundedCall, values: Array, weights: list[Array], kept_in: np.dtype[Any] | None
) -> Any:
    """What it moves a result at most that positions are off on each axis, one way or the other."""
    exact, total = through(values, weights, back=False), 0.0
    ways = [
        matrices(call.op_type, call.arguments, Weighting(kept_in, move)) for move in _moves(call)
    ]
    for place in range(len(weights)):
        moved = [[*weights[:place], way[place], *weights[place + 1 :]] for way in ways]
        found = [np.abs(through(values, parts, back=False) - exact) for parts in moved]
        total = total + np.maximum.reduce(found)
    return total


def _by_keeping(call: BoundedCall, values: Array, weights: list[Array]) -> Any:
    """What it moves a result at most that weights are kept in its type, or that rows are."""
    dtype = call.results[0].dtype
    exact = through(values, weights, back=False)
    kept = matrices(call.op_type, call.arguments, Weighting(dtype))
    moved = np.abs(through(values, kept, back=False) - exact)
    if "cubic" not in call.op_type:
        return moved + _by_positions(call, values, kept, dtype)
    # each of four weights may round to its neighbor, whether or not the others do
    ways = [
        matrices(call.op_type, call.arguments, Weighting(dtype, move, partial(_cubic_by, units)))
        for move, units in product(_moves(call), (-call.unit, call.unit))
    ]
    turned = [
        np.maximum.reduce([np.abs(way - axis) for way in others])
        for axis, *others in zip(kept, *ways, strict=True)
    ]
    moved = moved + _by_each(np.abs(values), weights, turned)
    return np.maximum(moved, _by_rows(call, values, weights))


def _by_rows(call: BoundedCall, values: Array, weights: list[Array]) -> Any:
    """What it moves a result at most that its rows, of weights in float32, are rounded first."""
    alone = np.eye(values.shape[2])
    rows = through(values, [alone, weights[1]], back=False)
    off = call.unit * VALUES * through(np.abs(values), [alone, np.abs(weights[1])], back=False)
    low, kept, high = (
        rounded(rows + by * off, call.results[0].dtype).astype("float64") for by in (-1, 0, 1)
    )
    over = [weights[0], np.eye(rows.shape[3])]
    sizes = [np.abs(matrix) for matrix in over]
    is_lost = ~np.isfinite(low) | ~np.isfinite(high)  # what overflows is open where it is taken
    kept, apart = np.where(is_lost, rows, kept), np.where(is_lost, 0, high - low)
    moved = np.abs(through(kept - rows, over, back=False)) + through(apart, sizes, back=False)
    return np.where(through(is_lost * 1.0, sizes, back=False) > 0, np.inf, moved)


def _by_each(sizes: Array, weights: list[Array], off: list[Array]) -> Any:
    """What it moves a result at most that weights are off by so much, on one axis at a time."""
    total: Any = 0.0
    for place, matrix in enumerate(off):
        moduli = [np.abs(weight) for weight in weights]
        total = total + through(sizes, [*moduli[:place], matrix, *moduli[place + 1 :]], back=False)
    return total


def _cubic_off(far: Array) -> Array:
    """How many units a cubic weight is off: its terms cancel, so by the more the smaller it is.

    The greatest of 2.5 million positions in float32: ½ + 2.4 x up to 1, 7 to 20 up to 2.
    """
    return np.where(far == 2, 0, np.where(far <= 1, 0.5 + 2.5 * far, 13 * far - 6))


def _cubic_by(units: float, far: Array) -> Array:
    """A cubic weight that is off by so many units one way."""
    return cubic_kernel(far) + units * _cubic_off(far)


def _misread(call: BoundedCall) -> float:
    """0; infinite of more than four planes of bytes that become one column.

    Of these torch's kernel gives numbers that are not interpolated at all.
    """
    (result,) = call.results
    values: Array = call.arguments.get("self", call["input"])
    is_lost = result.shape[1] > 4 and result.shape[-1] == 1 != values.shape[-1]
    return np.inf if is_lost else 0.0


def separable(call: BoundedCall) -> Errors:
    """Bound maps along each axis by their weights, and by weights off where positions are.

    Of narrow types weights are rounded to the type, as in :func:`interpolated`. Antialiased, a
    single column of several rows is open: torch's kernel takes it for a row, and adds up other
    elements than its gradient names.
    """
    if not is_inexact(call.results[0].dtype):
        return [_misread(call)]
    if _is_column(call):
        return [np.inf]
    weights = matrices(call.op_type, call.arguments)
    operand = next(n for n in ("grad_output", "input", "self") if n in call.arguments)
    back, given = operand == "grad_output", call.size(operand)
    sizes = np.where(np.isfinite(given), given, 0)  # what is not makes a bound infinite
    terms = through(sizes, [np.abs(matrix) for matrix in weights], back=back)
    taps = max(1, *(int((matrix != 0).sum(axis=int(not back)).max()) for matrix in weights))
    rank = len(weights)
    count = rank * (VALUES + sqrt(taps))
    error: Any = call.unit * count * terms
    if "nearest" in call.op_type:
        return [call.opened(error, through(given, weights, back=back))]
    if call.is_narrow:
        error = error + call.result_unit * ROUNDED * rank * terms
    reach = CUBIC_REACH if any(kind in call.op_type for kind in ("cubic", "lanczos")) else 1
    touched: list[Array] = []
    for matrix in weights:
        size, places = matrix.shape
        steep = min(1.0, places / size) if "_aa" in call.op_type else 1.0
        near = _widened_by(matrix != 0, REACH)  # a position off gives a weight to what has none
        off = call.unit * POSITIONS * np.arange(1, size + 1)[:, None] * steep * reach
        touched.append(near * off)
    for place, own in enumerate(touched):
        others = [own if i == place else np.abs(m) for i, m in enumerate(weights)]
        error = error + through(sizes, others, back=back)
    if rank > 1:  # where weights along two axes are next to nothing
        error = error + through(sizes, touched, back=back)
    way = _on_the_way(given, weights, back=back) if reach > 1 else terms
    return [call.opened(error, way) + _by_no_weight(given, weights, back=back)]


def _is_column(call: BoundedCall) -> bool:
    """Whether planes of several rows are antialiased to one column of another number of rows."""
    if "_aa" not in call.op_type or "grad_output" in call.arguments:
        return False
    given = next(call[name] for name in ("input", "self") if name in call.arguments)
    (rows, columns), before = call.results[0].shape[-2:], given.shape[-2]
    return columns == 1 and rows > 1 and before > 1 and rows != before


def _on_the_way(sizes: Array, weights: list[Array], *, back: bool) -> Array:
    """What a map along one axis may add up, before that along another takes a small part of it.

    Or none: of an infinity, a weight of 0 makes NaN.
    """
    taken = [np.maximum(np.abs(m), _widened_by(m != 0, REACH)) for m in weights]
    parts = [
        [np.abs(m) if i == place else taken[i] for i, m in enumerate(weights)]
        for place in range(len(weights))
    ]
    return np.maximum.reduce([through(sizes, ways, back=back) for ways in parts])


def _by_no_weight(sizes: Array, weights: list[Array], *, back: bool, reach: int = REACH) -> Any:
    """Infinite where kernels may multiply what is not finite by a weight of 0, beside others."""
    lost = ~np.isfinite(sizes)
    if not lost.any():
        return 0.0
    reached = [_widened_by(matrix != 0, reach) for matrix in weights]
    return np.where(through(lost.astype("float64"), reached, back=back) > 0, np.inf, 0.0)


def _widened_by(taken: Array, reach: int) -> Array:
    """Which elements are so near to one that is taken, as 1 and 0."""
    padded = np.pad(taken, [(reach, reach), (0, 0)])
    parts = [padded[by : by + len(taken)] for by in range(2 * reach + 1)]
    return np.any(parts, axis=0).astype("float64")


def sampled_backward(call: BoundedCall) -> Errors:
    """Bound the gradients of planes and points by the moduli of what is added to them.

    Weights are rounded, and off where positions are; so are slopes that are not constant. Cubic
    ones are polynomials in the narrow type, whose terms cancel; their neighbors are counted in
    that type too. Where it has no eighths of elements, reflected ones, all is open.
    """
    if not call["grad_output"].size:
        return [None] * len(call.results)
    names = ("input", "grid", "interpolation_mode", "padding_mode", "align_corners")
    taps = point_taps(*(call[name] for name in names))
    gradient, values = call.size("grad_output"), call.size("input")
    own = call.result_unit if call.is_narrow else call.unit
    sizes, rank = values.shape[2:], len(taps)
    exact, worse, hits = [], [], []
    lost = _misplaced(call)
    may_be_far = call.is_narrow or call["padding_mode"] == REFLECTED
    for place, (axis, size) in enumerate(zip(taps, sizes, strict=True)):
        reach = np.nan_to_num(np.abs(call.wide("grid")[..., rank - 1 - place]) + 1) * size + 1
        off = call.unit * POSITIONS * CUBIC_REACH * reach * (call["interpolation_mode"] != NEAREST)
        exact.append([(at, np.abs(weight), np.abs(slope)) for at, weight, slope in axis])
        if call["interpolation_mode"] == BICUBIC:
            off = off + own * CUBIC_TERMS
        beyond = ~(np.abs(call.wide("grid")[..., rank - 1 - place]) < OUTSIDE)
        lost |= may_be_far & beyond & ~(reach < FAR / own)
        lost |= ~np.isfinite(call.wide("grid")[..., rank - 1 - place])
        bent = size * off * (call["interpolation_mode"] == BICUBIC)
        worse.append(
            [(at, w + off + 2 * own * w, s * (1 + 2 * own) + bent) for at, w, s in exact[-1]]
        )
        hits.append([(at, np.ones_like(w), s * 0) for at, w, s in exact[-1]])
    terms = sampled_gradients(gradient, values, exact)
    moved = sampled_gradients(gradient, values, worse)
    count = sampled_gradients(np.ones_like(gradient), values, hits)[0]
    added = values.shape[1] * len(taps[0]) ** rank
    of_each = range(1, gradient.ndim)
    shares = [np.max(call.repeats(name, of_each), initial=0) for name in ("grad_output", "input")]
    depths = (  # of products of rank + 1 factors each
        FEW + np.sqrt(count) + shares[0] * count,
        FEW + sqrt(added * rank) + min(shares) * added,
    )
    scales = (1.0, np.maximum(np.array(sizes[::-1]) / 2, 1))  # of products to a grid's units
    kept_in = call.results[0].dtype
    found = [
        call.opened(
            (worst - least)
            + (call.stepped(d * scale, least / scale) if call.is_narrow else own * d * least),
            least,
            kept_in,
        )
        for least, worst, d, scale in zip(terms, moved, depths, scales, strict=True)
    ]
    # of a product that overflows, a weight of 0 makes NaN
    ones = [[(at, np.ones_like(w), np.ones_like(s)) for at, w, s in axis] for axis in exact]
    found[1] = call.opened(found[1], sampled_gradients(gradient, values, ones)[1], kept_in)
    samples = np.asarray(np.any(lost, axis=tuple(range(1, lost.ndim))))
    found = [_opened_at(where, error) for where, error in zip((samples, lost), found, strict=True)]
    return found if call.arguments.get("output_mask", (True,))[0] else found[1:]


def of_lost_gradients(call: BoundedCall) -> list[Array] | None:
    """Mark what is not finite, and points whose gradients are not, which weights of 0 make NaN."""
    marks = sums.not_finite(call)
    if marks is None:
        return None
    *planes, points = marks
    lost = np.any(~np.isfinite(call.wide("grad_output")), axis=1)
    return [*planes, np.asarray(points | lost[..., None])]


def _opened_at(is_open: Array, error: Array) -> Array:
    axes = tuple(range(is_open.ndim, error.ndim))
    return np.where(np.expand_dims(is_open, axes), np.inf, error)


def _misplaced(call: BoundedCall) -> Array:
    """Mark points of narrow types that kernels take from elsewhere.

    Mirrored ones are rounded at each step, where the type has no eighths of elements; and the last
    element of a long axis may round up in it, to one beyond: torch reads what is behind the plane.
    """
    grid, padding = call.wide("grid"), call["padding_mode"]
    found = np.zeros(grid.shape[:-1], bool)
    if not call.is_narrow or padding not in (BORDER, REFLECTED):
        return found
    for place, size in enumerate(reversed(call["input"].shape[2:])):
        shifted, last = grid[..., place] + 1, size - 1
        if padding == REFLECTED:
            found |= ~(np.abs(shifted) * size < FAR / call.result_unit)
        elif float(np.asarray(last).astype(call["grid"].dtype)) > last:
            reach = CUBIC_TAPS if call["interpolation_mode"] == BICUBIC else 0
            position = shifted * size / 2 * (1 + 4 * call.result_unit)
            found |= position + reach >= last
    return found


def sampled(call: BoundedCall) -> Errors:
    """Bound sampling at points: positions from the grid's coordinates, in its own type.

    What a coordinate that is no number gives is open, and one that is infinite in elements, where
    it is mirrored or weighted.
    """
    values, grid = call.wide("input"), call.wide("grid")
    is_cubic = call["interpolation_mode"] == BICUBIC
    sizes = values.shape[2:]
    reach = np.max((np.abs(grid) + 1) * np.array(sizes[::-1]), axis=-1, initial=0)[:, None]
    beyond = ~(np.max(np.abs(grid), axis=-1, initial=0)[:, None] < OUTSIDE)
    may_be_far = call.is_narrow or call["padding_mode"] == REFLECTED
    is_far = may_be_far & beyond & ~(reach < FAR / call.result_unit)
    is_lost = np.asarray(np.isnan(grid).any(axis=-1))
    padding = call["padding_mode"]
    if padding == REFLECTED or (padding != BORDER and call["interpolation_mode"] != NEAREST):
        kept_in = np.float32 if call.is_narrow else call["grid"].dtype
        is_lost |= ~(reach[:, 0] < np.finfo(kept_in).max)
    is_open = is_far | (is_lost | _misplaced(call))[:, None]
    if call["interpolation_mode"] == NEAREST:
        return [np.where(is_open, np.inf, 0.0)]
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
    return [np.where(is_open, np.inf, _off(call, terms, moved, rank, is_cubic))]


def of_infinities(call: BoundedCall) -> list[Array] | None:
    """Mark what cubic weights make of infinities: near 0 they may have either sign, or none."""
    if call["interpolation_mode"] != BICUBIC or np.isfinite(call.wide("input")).all():
        return None
    return [~np.isfinite(result) for result in call.results]


def _off(
    call: BoundedCall,
    terms: Array,
    moved: Array,
    rank: int,
    is_cubic: bool,
) -> Array:
    """Weights may be kept in the result's type; positions are off by roundings of float32.

    What is rounded of a position to the grid's own type is part of the meaning; cubic weights of
    a point are computed in that type, off as if the position were.
    """
    reach = CUBIC_REACH if is_cubic else 1
    error = call.unit * VALUES * rank * reach * terms
    if call.is_narrow:
        count = VALUES if rank > 2 else CUBIC_ROUNDED if is_cubic else ROUNDED
        error = error + call.result_unit * count * rank * reach * terms
    own = call.result_unit if is_cubic else call.unit
    error = error + own * POSITIONS * reach * moved
    return call.opened(error, reach * terms)


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
    """Bound a point times a matrix; kernels round the coordinates, too.

    Unsigned numbers have no -1 at which a grid begins: of these all is open.
    """
    (result,) = call.results
    if result.dtype.kind == "u":
        return [np.inf]
    terms = np.sum(np.abs(call.wide("theta")), axis=-1)
    own = call.unit + (call.result_unit if call.is_narrow else 0)
    shape = [len(terms), *[1] * (result.ndim - 2), terms.shape[-1]]
    return [own * 4 * terms.reshape(shape)]
