"""Bounds of functions of one row, by the elements of that row alone."""

from __future__ import annotations

from math import inf, log2, prod, sqrt
from typing import Any

import ml_dtypes
import numpy as np

from torch_ir.semantics.axes import axis, reduced_axes
from torch_ir.semantics.bounds.call import (
    BLOCK,
    LOOKED_AT,
    STREAM,
    WALK,
    BoundedCall,
    Errors,
    least_normal,
    length,
    length_along,
    moduli,
)
from torch_ir.semantics.bounds.elementwise import is_lost, turned_by
from torch_ir.semantics.dtypes import Array, is_complex, is_inexact, rounded
from torch_ir.semantics.operators.attention import scores_of
from torch_ir.semantics.operators.softmax import hidden_by

FEW = 4
"""The exponential, the quotient and the last rounding."""
FAST_EXPONENTIAL = 2.0**-13
"""What the exponential of flash kernels of narrow types (fexp_u20) is off by, relatively.

Of a logarithm of sums, which is float32, it is absolute: 1000 ε of it, of which torch takes up to
0.45, so that smaller faults of that result are not seen.
"""


def _row(call: BoundedCall) -> tuple[Array, tuple[int, ...]]:
    """The operand as the type that it is converted to, and the axes of a row."""
    values = call["self"]
    dtype = call.results[0].dtype
    wide = rounded(values, dtype).astype("float64") if is_inexact(dtype) else call.wide("self")
    dim = call.arguments.get("dim")
    return wide, reduced_axes(dim, values.ndim)


def _below(wide: Array, axes: tuple[int, ...]) -> Array:
    """How far each element is below its row's largest; 0 where either is infinite."""
    peak = np.max(wide, axis=axes, keepdims=True, initial=-inf)
    return np.nan_to_num(peak - wide, nan=0.0, posinf=0.0, neginf=0.0)


def _row_depth(call: BoundedCall, wide: Array, axes: tuple[int, ...]) -> Any:
    """Depth of the sum of a row's exponentials, added one after the other along outer axes."""
    powers = np.where(np.isneginf(wide), 0, np.exp(-_below(wide, axes)))
    if axes != (wide.ndim - 1,):
        return _sum_depth(call, powers, axes)
    return call.depth_in_lanes(length_along(wide, axes)) + call.drift(powers, axes)


def _sum_depth(call: BoundedCall, terms: Array, axes: tuple[int, ...]) -> Any:
    """Depth of the sum of a row's terms, one after the other."""
    return call.depth(length_along(terms, axes), BLOCK) + call.drift(terms, axes)


def softmax(call: BoundedCall) -> Errors:
    """Bound relative to the result: the exponent, its exponential, the sum, the quotient."""
    (result,) = call.results
    wide, axes = _row(call)
    count = FEW + _row_depth(call, wide, axes)
    return [call.unit * moduli(result) * (count + _below(wide, axes))]


def masked_softmax(call: BoundedCall) -> Errors:
    """Bound as :func:`softmax`, of what is not masked; all steps are in the result's own type."""
    (result,) = call.results
    hidden = hidden_by(call["self"], call["mask"], call["mask_type"])
    wide = np.where(hidden, -inf, call.wide("self"))
    axes = reduced_axes(-1 if call["dim"] is None else call["dim"], wide.ndim)
    below = _below(wide, axes)
    steps = FEW + below + _walk_in_type(call, np.where(hidden, 0, np.exp(-below)), axes)
    return [call.stepped(steps, moduli(result))]


def log_softmax(call: BoundedCall) -> Errors:
    """Bound ``x - max - ln Σ``: of the row's elements, whatever is masked out in it."""
    (result,) = call.results
    wide, axes = _row(call)
    count = FEW + _row_depth(call, wide, axes)
    finite = np.where(np.isfinite(moduli(result)), moduli(result), 0)
    below = _below(wide, axes)
    error = call.unit * (below + finite + count)
    if call.is_narrow:  # kernels keep Σ in the type, or ln Σ
        added = np.sum(np.exp(-below), axis=axes, keepdims=True)
        reach = 1 + np.abs(np.log(added))
        error = error + call.result_unit * np.where(np.isfinite(reach), reach, 0)
        error = call.opened(error, added, result.dtype)
    return [error]


def softmax_backward(call: BoundedCall) -> Errors:
    """Bound ``(g - Σ g y) y`` by what each step rounds; open where one of them overflows."""
    gradient, made = call.size("grad_output"), call.size("output")
    axes = reduced_axes(call["dim"], made.ndim)
    total = np.sum(gradient * made, axis=axes, keepdims=True)
    steps = _sum_depth(call, call.wide("grad_output") * call.wide("output"), axes)
    reach = gradient + total
    error = call.unit * made * (FEW * reach + steps * total)
    return [call.opened(error, np.maximum(reach, reach * made))]


def masked_softmax_backward(call: BoundedCall) -> Errors:
    """Bound as :func:`softmax_backward`, of what is not masked; all steps are in the type."""
    gradient, made = (np.where(call["mask"], 0, call.size(n)) for n in ("grad_output", "output"))
    axes = reduced_axes(-1 if call["dim"] is None else call["dim"], made.ndim)
    terms = gradient * made
    total = np.sum(terms, axis=axes, keepdims=True)
    reach, steps = gradient + total, _walk_in_type(call, terms, axes)
    error = call.stepped(FEW, made * reach) + made * call.stepped(steps, total)
    way = np.maximum(reach, reach * made)
    return [call.opened(error, way, call.results[0].dtype)]


def _walk_in_type(call: BoundedCall, terms: Array, axes: tuple[int, ...]) -> Any:
    """Depth of a sum that is added up in the result's own type, one term after the other."""
    count = length_along(terms, axes)
    one_way = call.one_way(call.repeats(terms, axes, keepdims=True), count)
    return WALK * sqrt(count) + one_way * count


def log_softmax_backward(call: BoundedCall) -> Errors:
    """Bound ``g - exp(y) Σ g`` by what each step rounds; open where one of them overflows."""
    gradient, power = call.size("grad_output"), np.exp(call.wide("output"))
    axes = reduced_axes(call["dim"], gradient.ndim)
    total = np.sum(gradient, axis=axes, keepdims=True)
    shared = power * total
    steps = _sum_depth(call, call.wide("grad_output"), axes)
    error = call.unit * (gradient + (FEW + steps) * shared)
    return [call.opened(error, np.maximum(np.maximum(power, total), gradient + shared))]


def log_sum(call: BoundedCall) -> Errors:
    """Bound ``max + ln Σ exp(x - max)``: the exponents weigh as their exponentials."""
    (result,) = call.results
    values = call["self"]
    wide, axes = np.real(call.wide("self")), reduced_axes(call["dim"], values.ndim)
    wide = wide.astype("float64")
    below = _below(wide, axes)
    powers = np.exp(-below)
    total = np.sum(powers, axis=axes, keepdims=True)
    weighed = np.sum(below * powers, axis=axes, keepdims=True) / np.maximum(total, 1)
    weighed = weighed.reshape(result.shape)
    scale = 8 if is_complex(result.dtype) else 1
    steps = np.reshape(_row_depth(call, wide, axes), -1)
    count = FEW + np.reshape(steps, result.shape if steps.size > 1 else ()) + weighed
    error = call.unit * scale * (2 * moduli(result) + count)
    if (
        call.is_narrow
    ):  # each step is rounded to the type: x - max, its power, their sum and its log
        total = total.reshape(result.shape)
        error = error + call.result_unit * (weighed + 2 + np.abs(np.log(total)))
        error = call.opened(error, total, result.dtype)
    return [error]


def running_log_sum(call: BoundedCall) -> Errors:
    """Bound one logarithm of two exponentials after the other, each of them rounded."""
    (result,) = call.results
    if not result.ndim:
        return [call.unit * 2 * moduli(result)]
    place = axis(call["dim"], result.ndim)
    if is_complex(result.dtype):
        return [_complex_running(call, place)]
    finite = np.where(np.isfinite(moduli(result)), moduli(result), 0)
    count = 2 * sqrt(result.shape[place])
    return [call.unit * (FEW + count) * (1 + np.maximum.accumulate(finite, axis=place))]


def _complex_running(call: BoundedCall, place: int) -> Array:
    """What each step adds, and what of the steps before it keeps; open where branches near."""
    values, made = (np.moveaxis(part, place, 0) for part in (call.wide("self"), call.meant()[0]))
    error = np.zeros(made.shape)
    for i in range(1, len(made)):
        first, second, here = made[i - 1], values[i], made[i]
        own = call.unit * 8 * (np.abs(here) + turned_by(first, second))
        kept = np.nan_to_num(np.abs(np.exp(first - here)), nan=1.0, posinf=np.inf)
        near = np.abs(first.real - second.real) <= error[i - 1] + own
        open_here = near & (np.abs(first.imag - second.imag) > np.pi - error[i - 1] - own)
        moved = own + np.where(error[i - 1] == 0, 0, kept * error[i - 1])
        open_here |= is_lost(call, first, second)
        error[i] = np.where(open_here | (moved > _MOST), np.inf, moved)
    return np.moveaxis(error, 0, place)


_MOST = 0.5
"""An angle that is off by more says nothing."""

# -- variances and norms --------------------------------------------------------------------------


def variance(call: BoundedCall) -> Errors:
    """Bound Σ (x - mean)² as kernels in two passes add it up, and as those in one (Welford) do.

    In two passes each term is rounded three times and added; an error δ of the mean adds n·δ²,
    as Σ (x - mean) is 0. In one pass the k-th mean is the (k - 1)-th and a part of what x is off
    it, so that ``e(k) · k ≤ e(k - 1) · (k - 1) + u · (Σ |x| + 2 |x - mean|)``: the mean is off by
    ``δ = u · c · d(n) / n · Σ |x|``, and the terms' sum by ``u · d(n)`` of it and
    ``2 δ · Σ |x - mean|``, with d = n where roundings go one way, as those of a mean of zeros
    and one value do. torch adds float32 in float64, and the rest in one pass. Of standard
    deviations the root's; means are sums.
    """
    values = call["self"]
    dim = call.arguments.get("dim")
    axes = reduced_axes(dim if not isinstance(dim, bool) else None, values.ndim)
    wide = call.wide("self")
    count = length_along(wide, axes)
    mean = np.mean(wide, axis=axes, keepdims=True) if wide.size else np.zeros(())
    sizes, center = np.abs(wide), np.abs(wide - mean)
    freedom = max(count - _correction(call), 0)
    in_one_pass = call.is_narrow or call.dtype.itemsize > 4
    steps = call.depth(
        count, BLOCK if in_one_pass else STREAM, call.repeats("self", axes, zeros=True)
    )
    with np.errstate(all="ignore"):
        reach = np.mean(sizes, axis=axes) if wide.size else np.zeros(())
        d = call.unit * (FEW + (2 if in_one_pass else 1) * steps)
        squares, apart = np.sum(center**2, axis=axes), np.sum(center, axis=axes)
        off = call.unit * (3 + steps) * squares + 0 * reach + count * (d * reach) ** 2
        off = off + count * least_normal(call.dtype)
        off = (off + (2 * d * reach * apart if in_one_pass else 0)) / freedom
        spread = squares / freedom
        greatest = np.max(sizes, axis=axes, initial=0)
    errors: list[Any] = []
    for index, result in enumerate(call.results):
        if index == 1:
            error = d * reach
        elif call.op_type in _ROOTED:
            error = np.maximum(
                np.sqrt(spread + off) - np.sqrt(spread),
                np.sqrt(spread) - np.sqrt(np.maximum(spread - off, 0)),
            ) + call.unit * moduli(result).reshape(np.shape(spread))
        else:
            error = off
        errors.append(call.opened(error, count * greatest**2).reshape(result.shape))
    return errors


_ROOTED = frozenset(
    f"aten.{name}"
    for name in (
        *("std.default", "std.dim", "std.correction"),
        *("std_mean.default", "std_mean.dim", "std_mean.correction"),
    )
)


def _correction(call: BoundedCall) -> float:
    if "unbiased" in call.arguments:
        return float(call["unbiased"])
    if isinstance(call["dim"], bool):  # the first argument of the shortest overload
        return float(call["dim"])
    given = call["correction"]
    return 1.0 if given is None else float(given)


def apart(call: BoundedCall) -> Errors:
    """Bound the norm of a difference as :func:`norm`; its kernels may subtract two infinities."""
    return norm(call)


def norm(call: BoundedCall) -> Errors:
    """Bound relative to the result: all terms are positive; a difference is rounded before.

    Terms that are less than a unit of the sum may all be rounded the same way.
    """
    (result,) = call.results
    order = call.arguments.get("ord", call.arguments.get("p", 2))
    order = 2.0 if order is None else float(order)
    sizes = moduli(result)
    if abs(order) == inf or order == 0:
        return [call.unit * 2 * sizes]
    terms = call.wide("self" if "self" in call.arguments else "x")
    terms = np.abs(terms - call.wide("other") if "other" in call.arguments else terms)
    axes = reduced_axes(call.arguments.get("dim"), terms.ndim)
    one_way = np.reshape(call.repeats(terms, axes), -1)
    one_way = np.reshape(one_way, result.shape) if one_way.size == result.size else 0.0
    count = FEW + call.depth(length(call), BLOCK, one_way) * max(1 / order, 1)
    if order not in (1, 2):  # powers and a root: as a function of each term's logarithm
        logs = np.abs(np.log(np.where((sizes > 0) & np.isfinite(sizes), sizes, 1)))
        count = count + 8 + 2 * abs(order) + 8 / abs(order) + logs * 2
    light = np.reshape(call.drift(terms**order, axes), result.shape) if order > 0 else 0.0
    error = call.unit * (count + light / order) * sizes + _lost(call, order, length(call))
    if call.is_narrow and "other" in call.arguments:  # the difference is a tensor of the type
        error = error + call.result_unit * sizes
    if order < 0:
        sizes = np.maximum(sizes, 1 / sizes)
    return [call.opened(error, np.maximum(sizes, 1) ** min(max(abs(order), 1), 64))]  # its own sum


def power_sum(call: BoundedCall) -> Errors:
    """Bound relative to the result: all terms are positive, each a power by a function.

    Terms that are less than a unit of the sum may all be rounded the same way. Of complex numbers
    in a real type all is open: kernels take the moduli of some shapes, and real parts of others.
    """
    (result,) = call.results
    given, asked = call["self"].dtype, call["dtype"]
    if is_complex(given) and asked is not None and not is_complex(asked):
        return [np.full(result.shape, np.inf)]
    order = float(call.arguments.get("ord", 2))
    axes = reduced_axes(call["dim"], call["self"].ndim)
    one_way = np.reshape(call.repeats(np.abs(call.wide("self")), axes), -1)
    one_way = np.reshape(one_way, result.shape) if one_way.size == result.size else 0.0
    count = FEW + call.depth(length(call), BLOCK, one_way)
    if order not in (0, 1, 2):
        count = count + 8 + 2 * abs(order)
    sizes = moduli(result)
    error = call.unit * count * sizes + length(call) * least_normal(call.dtype)
    light = np.reshape(call.drift(call.size("self") ** order, axes), result.shape)
    return [call.opened(error + call.unit * light * sizes, sizes)]


def _lost(call: BoundedCall, order: float, count: int) -> float:
    """What a norm is of terms whose powers are all less than the least normal number."""
    return (2 * count * least_normal(call.dtype)) ** (1 / order) if order > 1 else 0.0


PAIRS = 25
"""More vectors than these make torch compute euclidean distances by products of matrices."""


def distance(call: BoundedCall) -> Errors:
    """Bound relative to the result; of products of matrices, the root of what cancels in them."""
    (result,) = call.results
    order, sizes = float(call.arguments.get("p", 2.0)), moduli(result)
    vectors: Array = call["self"] if "self" in call.arguments else call["x1"]
    width = max(vectors.shape[-1], 1)
    roots = max(1 / order, 1) if 0 < order < inf else 1
    count = FEW + call.depth(width, BLOCK, _repeated_moves(call)) * roots
    if order not in (0, 1, 2, inf):
        count = count + 8 + 2 * order + 8 / order
    error = call.unit * count * sizes + (_lost(call, order, width) if order < inf else 0.0)
    if not _is_multiplied(call, order):
        return [call.opened(error, sizes ** min(order, 64.0)) if 0 < order < inf else error]
    first, second = (np.sum(np.abs(call.wide(name)) ** 2, axis=-1) for name in ("x1", "x2"))
    squares = first[..., :, None] + second[..., None, :]
    off = call.unit * 4 * count * squares
    error = call.opened(error, 2 * squares)
    if call.is_narrow:  # squares, their sums and what is left of these are rounded to the type
        least = float(ml_dtypes.finfo(result.dtype).smallest_subnormal)
        off = off + call.result_unit * 4 * squares + least * (2 * vectors.shape[-1] + 4)
        error = call.opened(error, 2 * squares, result.dtype)
    lower = sizes - np.sqrt(np.maximum(sizes**2 - off, 0))
    error = error + np.maximum(np.sqrt(sizes**2 + off) - sizes, lower)
    return [np.where(np.isfinite(sizes), error, np.inf)]  # squares of infinities are subtracted


def _repeated_moves(call: BoundedCall) -> Any:
    """Which part of the differences of each two vectors are equal in size, of some columns."""
    (result,), single = call.results, "self" in call.arguments
    first, second = (call.wide(name) for name in (("self", "self") if single else ("x1", "x2")))
    if not result.size or not first.shape[-1] or call.dtype == np.float64:
        return 0.0  # in float64 nothing asks
    looked_at = min(max(_MOVES // result.size, 8), LOOKED_AT)
    columns = slice(None, None, max(first.shape[-1] // looked_at, 1))
    first, second = first[..., columns], second[..., columns]
    rows = [  # all pairs at once would take as many times the result's memory as there are columns
        call.repeats(
            np.abs(first[..., row, None, :] - second[..., row + 1 if single else 0 :, :]), [-1]
        )
        for row in range(first.shape[-2] - single)
    ]
    return np.concatenate(rows) if single else np.stack(rows, axis=-2)


_MOVES = 1 << 22
"""So many differences are looked at, and at least eight of each two vectors."""


def distance_backward(call: BoundedCall) -> Errors:
    """Bound ``Σ |g| · |slope|``: slopes are powers of a quotient of rounded differences."""
    (result,) = call.results
    if not call["grad"].size or not result.size:
        return [None]
    order, distances = float(call["p"]), call["cdist" if "cdist" in call.arguments else "pdist"]
    pairs: Any = ()
    if "x1" in call.arguments:
        first, second = call.wide("x1")[..., :, None, :], call.wide("x2")[..., None, :, :]
        moved, far = first - second, moduli(distances)[..., None]
        gradient, axis = call.size("grad")[..., None], -2
    else:
        pairs = np.triu_indices(len(call["self"]), 1)
        moved = call.wide("self")[pairs[0]] - call.wide("self")[pairs[1]]
        far, gradient, axis = moduli(distances)[:, None], call.size("grad")[:, None], 0
    if order in (0, 1, inf):
        slopes, powers = (moved != 0).astype("float64"), 1.0
    else:
        quotient = np.where(far == 0, 0, np.abs(moved) / np.where(far == 0, 1, far))
        slopes = np.where((moved == 0) | (far == 0), 0, quotient ** (order - 1))
        powers = 8 + 4 * abs(order - 1) + 8 * abs(order - 2)
    terms = gradient * slopes
    total, way = (_of_pairs(call, part, pairs, axis) for part in (terms, gradient * moduli(moved)))
    count = FEW + powers + call.depth(max(far.size, 1))
    own = call.unit * count + (call.result_unit * (powers + 2) if call.is_narrow else 0)
    return [call.opened(own * total, total if order in (0, 1, inf) else np.maximum(total, way))]


def _of_pairs(call: BoundedCall, terms: Array, pairs: Any, axis: int) -> Array:
    """The sums of the terms of all pairs of which a vector is one, in the shape of the result."""
    (result,) = call.results
    if axis:
        return np.reshape(np.sum(terms, axis=axis), result.shape)
    total = np.zeros(result.shape)
    for places in pairs:
        np.add.at(total, places, terms)
    return total


def _is_multiplied(call: BoundedCall, order: float) -> bool:
    if order != 2 or "x1" not in call.arguments:
        return False
    mode = call["compute_mode"] or 0
    many = call["x1"].shape[-2] > PAIRS or call["x2"].shape[-2] > PAIRS
    return mode == 1 or (mode == 0 and many)


def transform(call: BoundedCall) -> Errors:
    """Allow ``log2(n) · ‖x‖₂`` of the line that is transformed, and its scale.

    Where a frequency has more than that norm, as of lines that repeat, roundings on the way to it
    may go one way in each of ``log2(n)`` additions, and what they leave is in all frequencies.
    Of a line that is not finite, real results are NaN or infinite as it is transformed.
    """
    (result,) = call.results
    axes = tuple(call["dim"])
    if not axes:
        return [None]
    wide = call.wide("self")
    last = call.arguments.get("last_dim_size")
    count = prod(wide.shape[place] for place in axes)
    if last is not None:
        count = count // wide.shape[axes[-1]] * last
    scale = (1.0, 1 / sqrt(count), 1 / count)[call["normalization"]]
    size = np.sqrt(np.sum(np.abs(wide) ** 2, axis=axes, keepdims=True))
    greatest = np.max(moduli(result), axis=axes, keepdims=True, initial=0)
    most = np.maximum(2 * scale * size * (2 if last else 1), greatest)
    error = call.unit * (2 + log2(max(count, 2))) * most
    reach = np.sum(np.abs(wide), axis=axes, keepdims=True) * (2 if last else 1)
    if not is_complex(result.dtype):
        error = np.where(np.isfinite(reach), error, inf)
    return [call.opened(error, reach)]


def mode(call: BoundedCall) -> Errors:
    """Allow nothing; kernels sort, by which NaN has no place: rows with one are open."""
    self, dim = call["self"], call.arguments.get("dim", -1)
    if not is_inexact(self.dtype) or not self.ndim:
        return [None, None]
    lost = np.isnan(self).any(axis=dim, keepdims=bool(call["keepdim"]))
    return [np.where(lost, inf, 0.0)] * 2


# -- attention ------------------------------------------------------------------------------------

MATH = "aten._scaled_dot_product_attention_math.default"
FLASH = "aten._scaled_dot_product_flash_attention_for_cpu.default"


def attention(call: BoundedCall) -> Errors:
    """Allow ``Σ p |v|`` times what the weights may be off: by the scores of the keys that count.

    A score is off by ``u · (d · scale · Σ |q · k| + |score|)``, its weight by that, relatively,
    and by all others' errors as they weigh; what is masked out weighs nothing. Kernels round the
    weights of narrow types to the type.
    """
    if not is_inexact(call.results[0].dtype):  # of no elements
        return [None] * len(call.results)
    value, weights, scores, absolute = weights_of(call)
    width = call["query"].shape[-1]
    # the root of the scale is a factor of either operand there
    steps = 2 * FEW if call.op_type == MATH else 0
    off = (call.depth(max(width, 1)) + steps) * absolute + np.abs(scores)
    off = call.unit * np.where(weights > 0, np.nan_to_num(off, posinf=0.0), 0)
    shared = np.sum(weights * off, axis=-1, keepdims=True)
    one_way = call.repeats(weights, [-1], keepdims=True)
    count = call.unit * (2 * FEW + 2 * call.depth(max(weights.shape[-1], 1), STREAM, one_way))
    relative = off + shared + count
    if call.is_narrow:
        relative = relative + call.result_unit
    sizes = np.abs(value)
    error = (weights * relative) @ sizes
    error = np.minimum(error, 2 * np.max(sizes, axis=-2, keepdims=True, initial=0))
    # what is less than normal numbers may be 0 to kernels, as in other products
    error = error + 2 * sizes.shape[-2] * least_normal(call.dtype)
    is_flash = call.op_type == FLASH
    reach = np.max(absolute, axis=-1, keepdims=True, initial=0) * sqrt(max(width, 1))
    kept_in = call.dtype if is_flash else call.results[0].dtype
    errors: list[Any] = [call.opened(error, reach, kept_in)]
    if is_flash:
        finite = np.nan_to_num(moduli(call.results[1]), posinf=0.0)
        fast = FAST_EXPONENTIAL if call.is_narrow else 0.0
        own = (shared + count)[..., 0] + call.unit * finite + fast
        errors.append(call.opened(own, reach[..., 0]))
    elif len(call.results) > 1:
        errors.append(call.opened(weights * relative, reach))
    return errors


def attended_to_nan(call: BoundedCall) -> list[Array] | None:
    """Mark the rows with a score that is NaN, which is not the greatest for fused kernels.

    They take such a row for one that is masked out, or not, by where the score lies; exponentials
    of narrow types make numbers of an infinite score, too. Where there are no keys, torch makes
    NaN of all if a query is not finite.
    """
    if call.op_type == MATH or not is_inexact(call.results[0].dtype):
        return None
    *_, scores, _ = weights_of(call)
    is_lost = np.isnan(scores) | (np.isposinf(scores) & call.is_narrow)
    lost = np.asarray(is_lost.any(axis=-1))
    if not scores.shape[-1] and not np.isfinite(call.wide("query")).all():
        lost = np.ones_like(lost)
    whole = np.broadcast_to(lost[..., None], call.results[0].shape)
    return [whole, *([lost] if len(call.results) > 1 else [])]


def weights_of(call: BoundedCall) -> tuple[Array, Array, Array, Array]:
    """Return the values, the weights of each key, the scores, and ``scale · Σ |q · k|``."""
    query, key, value = (call.wide(name) for name in ("query", "key", "value"))
    if call["enable_gqa"]:
        key, value = (v.repeat(query.shape[-3] // v.shape[-3], axis=-3) for v in (key, value))
    width = query.shape[-1]
    factor = call["scale"] if call["scale"] is not None else 1 / sqrt(max(width, 1))
    absolute = np.abs(query) @ np.abs(key).swapaxes(-1, -2) * abs(factor)
    mask = call["attn_mask"]
    if mask is not None and call.op_type == MATH:
        mask = mask.astype("float64")
    scores = scores_of(query, key, mask, bool(call["is_causal"]), factor)
    peak = scores.max(axis=-1, keepdims=True, initial=-inf)
    powers = np.exp(scores - np.where(np.isneginf(peak), 0, peak))
    powers = np.where(powers < float(ml_dtypes.finfo(call.dtype).smallest_normal), 0, powers)
    total = powers.sum(axis=-1, keepdims=True)
    return value, powers / np.where(total == 0, 1, total), scores, absolute
