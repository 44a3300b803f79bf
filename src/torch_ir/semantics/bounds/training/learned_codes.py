"""Bounds of quantization in training, whose codes depend on numbers that are rounded.

Kernels may round ``zero + x / scale`` once or twice (multiply and add in one), so that a number
next to the middle between two codes may have either.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from torch_ir.semantics.bounds.call import STREAM, BoundedCall, Errors
from torch_ir.semantics.dtypes import Array
from torch_ir.semantics.operators.fake_quantization import learned_zero
from torch_ir.semantics.operators.quantization_training import tensor_zero

FEW = 6
"""The product with 1 / scale, the code's number, the difference, two products and a sum."""


INTEGERS = 2.0**63
"""From here on, as for NaN, what a code is as an integer of 64 bits depends on the processor."""


def gradients(call: BoundedCall) -> Errors:
    """Bound sums of ``g · |what an element adds|``, and what another code of some would add.

    Where another code is clamped, or is not, the gradient of the number is open.
    """
    if not call["self"].size:
        return [None, None, None]
    values, rank = call.wide("self"), call["self"].ndim
    least, most = call["quant_min"], call["quant_max"]
    by_channel = "axis" in call.arguments
    place = call["axis"] % rank if by_channel else 0
    shape = [-1 if by_channel and i == place else 1 for i in range(rank)]
    if by_channel:
        zeros = learned_zero(call["zero_point"], least, most).reshape(shape)
        scales = call.wide("scale").reshape(shape)
    else:
        zeros = np.float64(tensor_zero(call["zero_point"], least, most))
        scales = np.float64(call["scale"][:1].item())
    codes = zeros + values / scales
    is_open = ~(np.abs(codes) < INTEGERS)
    off = 4 * call.unit * (np.abs(values / scales) + np.abs(zeros))
    first, last = np.rint(codes - off), np.rint(codes + off)
    kept = [(ends >= least) & (ends <= most) for ends in (first, last)]
    lost, moved = kept[0] != kept[1], last - first
    gradient = call.size("grad").reshape(values.shape)  # of a number it may be a list of one
    inside = (np.abs(codes) + np.abs(zeros) + 1) * 2
    outside = np.maximum(np.abs(least - zeros), np.abs(most - zeros))
    sizes = gradient * np.where(kept[0] & kept[1], inside, outside)
    others = gradient * np.where(lost, inside + outside, moved)
    factor = abs(call.arguments.get("grad_factor", 1.0))
    axes = tuple(i for i in range(rank) if not by_channel or i != place or rank == 1)
    count = call.unit * (
        FEW + call.depth(max(values.size // max(call["scale"].size, 1), 1), STREAM, 1.0)
    )

    def summed(terms: Any) -> Array:
        return (
            np.sum(np.broadcast_to(terms, values.shape), axis=axes).reshape(call.results[1].shape)
            * factor
        )

    by_zero = gradient * np.abs(scales)
    return [
        np.where(lost | is_open, np.inf, 0.0).reshape(call.results[0].shape),
        _open_beside(is_open, axes, count * summed(sizes) + summed(others)),
        _open_beside(is_open, axes, count * summed(by_zero) + summed(by_zero * lost)),
    ]


def _open_beside(is_open: Array, axes: tuple[int, ...], error: Array) -> Array:
    lost = np.reshape(is_open.any(axis=axes), np.shape(error))
    return np.where(lost, np.inf, error)


def moving_average(call: BoundedCall) -> Errors:
    """Bound a range by two roundings, a scale by those of its range, and numbers by their scale.

    A number next to the middle between two codes may have either; where the zero point itself is
    as near to one, it and the numbers are open.
    """
    numbers, _, low, _, scales, zeros = call.results
    values, unit = call.wide("self"), call.unit
    seen = np.max(np.abs(values), initial=0)
    ends = [
        unit * 4 * (np.abs(end.astype("float64")) + call.size(name).max(initial=0) + seen)
        for end, name in ((call.results[2], "running_min"), (call.results[3], "running_max"))
    ]
    if not call["fake_quant_on"].item():
        return [None, None, *ends, None, None]
    wide, reach = scales.astype("float64"), ends[0] + ends[1]
    span = max(call["quant_max"] - call["quant_min"], 1)
    off_scale = reach / span + 2 * unit * wide
    low = np.minimum(low.astype("float64"), 0)
    zero = call["quant_min"] - low / wide
    off_zero = reach / wide + 4 * (off_scale / wide) * np.abs(low / wide) + 4 * unit * span
    near = np.abs(np.abs(zero - np.floor(zero)) - 0.5) <= off_zero
    balanced = bool(call["symmetric_quant"])
    near = near & (zeros > call["quant_min"]) & (zeros < call["quant_max"]) & (not balanced)
    shape = [-1 if i == call["ch_axis"] % values.ndim else 1 for i in range(values.ndim)]
    if not call["per_row_fake_quant"]:
        shape = [1] * values.ndim
    of, off, lost = (np.reshape(part, shape) for part in (wide, off_scale, near))
    code = values / of
    is_either = np.abs(np.abs(code - np.floor(code)) - 0.5) <= 2 * (off / of + unit) * (
        np.abs(code) + 1
    )
    lost = lost | ~np.isfinite(values)
    error = np.abs(numbers.astype("float64")) * (off / of + 2 * unit) + is_either * of
    edges = [np.abs(code + np.reshape(zeros, shape) - e) <= 1 for e in _edges(call)]
    masks = np.where(lost | (is_either & (edges[0] | edges[1])), np.inf, 0.0)
    return [np.where(lost, np.inf, error), masks, *ends, off_scale, np.where(near, np.inf, 0.0)]


def _edges(call: BoundedCall) -> tuple[float, float]:
    return call["quant_min"] - 0.5, call["quant_max"] + 0.5
