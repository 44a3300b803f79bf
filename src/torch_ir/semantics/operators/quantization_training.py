"""Quantization in training: gradients of learned scales and zero points, and moving ranges.

Defined by their steps in float32, as :mod:`torch_ir.semantics.operators.fake_quantization` is.

Source: aten/src/ATen/native/quantized (FakeQuantizeCore, FusedObsFakeQuant).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.axes import axis as place_of
from torch_ir.semantics.dtypes import Array, rounded
from torch_ir.semantics.operators.fake_quantization import (
    along_axis,
    fake_quantize_channels_cachemask,
    faked,
    learned_zero,
    parameters_of,
)
from torch_ir.semantics.registry import denotes

Single = np.float32


def learned_gradients(
    grad: Array, values: Array, scale: Any, zero: Any, least: int, most: int
) -> tuple[Array, Array, Array]:
    """What each element adds to the gradients of the numbers, the scale and the zero point.

    Codes are ``round(zero + x / scale)``. Where one is kept, the numbers' is the gradient and the
    scale's ``g · ((code - zero) · scale - x) / scale``. Where it is clamped to an end, the scale's
    is ``g · (end - zero)``, and the zero point's ``-g · scale``.
    """
    inverse = Single(1) / scale
    codes = np.rint((zero + (values * inverse).astype("float32")).astype("float32"))
    is_kept = (codes >= least) & (codes <= most)
    inside = ((codes - zero) * scale - values) * inverse
    outside = np.where(codes < least, least, most) - zero
    by_scale = grad * np.where(is_kept, inside, outside)
    return grad * is_kept, by_scale, np.where(is_kept, 0, -grad * scale)


def _in_single(*tensors: Array) -> list[Array]:
    """The tensors as float32, in which bfloat16 is computed too."""
    if any(tensor.dtype.name not in ("float32", "bfloat16") for tensor in tensors):
        kinds = ", ".join(str(tensor.dtype) for tensor in tensors)
        raise InvalidIRError(f"learned quantization is of float32 alone, not of {kinds}")
    return [tensor.astype("float32") for tensor in tensors]


@denotes("aten._fake_quantize_learnable_per_tensor_affine_backward.default")
def learnable_backward(
    grad: Array,
    self: Array,
    scale: Array,
    zero_point: Array,
    quant_min: int,
    quant_max: int,
    grad_factor: float = 1.0,
) -> tuple[Array, Array, Array]:
    """The gradients of the numbers, and of the scale and zero point, summed and times a factor.

    The zero point is cut to an integer after a half is added, and clamped. Of no numbers the
    results are the operand and the parameters.
    """
    grad, self, scale = _in_single(grad, self, scale)
    if not self.size:
        return self.copy(), scale.copy(), zero_point.copy()
    zero = tensor_zero(zero_point, quant_min, quant_max)
    wide = (grad.astype("float64"), self.astype("float64"))
    parts = learned_gradients(*wide, Single(scale[:1].item()), zero, quant_min, quant_max)
    sums = [
        rounded(np.sum(part, keepdims=True).reshape(1) * grad_factor, self.dtype)
        for part in parts[1:]
    ]
    return rounded(parts[0], self.dtype), sums[0], sums[1]


def tensor_zero(zero_point: Array, quant_min: int, quant_max: int) -> float:
    """The first zero point as the gradient of one scale takes it."""
    return float(
        np.trunc(np.clip(Single(zero_point[:1].item()) + Single(0.5), quant_min, quant_max))
    )


@denotes("aten._fake_quantize_learnable_per_channel_affine_backward.default")
def learnable_channels_backward(
    grad: Array,
    self: Array,
    scale: Array,
    zero_point: Array,
    axis: int,
    quant_min: int,
    quant_max: int,
    grad_factor: float = 1.0,
) -> tuple[Array, Array, Array]:
    """As :func:`learnable_backward`, for one of both for each place of an axis.

    Zero points are rounded and clamped. Of one axis alone all channels are added up, to no axis.
    """
    grad, self, scale = _in_single(grad, self, scale)
    if not self.size:
        return self.copy(), scale.copy(), zero_point.copy()
    rank, place = self.ndim, place_of(axis, self.ndim)
    zeros = along_axis(learned_zero(zero_point, quant_min, quant_max), place, rank)
    wide = (grad.astype("float64"), self.astype("float64"))
    scales = along_axis(scale, place, rank)
    parts = learned_gradients(*wide, scales, zeros, quant_min, quant_max)
    others = tuple(i for i in range(rank) if i != place)
    sums = [
        rounded(np.sum(part, axis=others or None) * grad_factor, self.dtype) for part in parts[1:]
    ]
    return rounded(parts[0], self.dtype), sums[0], sums[1]


@denotes("aten._fused_moving_avg_obs_fq_helper_functional.default")
def moving_average_fake_quantize(
    self: Array,
    observer_on: Array,
    fake_quant_on: Array,
    running_min: Array,
    running_max: Array,
    scale: Array,
    zero_point: Array,
    averaging_const: float,
    quant_min: int,
    quant_max: int,
    ch_axis: int,
    per_row_fake_quant: bool = False,
    symmetric_quant: bool = False,
) -> tuple[Array, Array, Array, Array, Array, Array]:
    """Numbers as codes stand for them, by scales of a range that moves with what is seen.

    ``range + c · (seen - range)`` for the least and the greatest number, of all or of each place
    of an axis; the first that is seen, where a range is infinite or has no elements. Scales and
    zero points are those of the range.

    Returns:
        The numbers and where nothing was clamped (with nothing to quantize, the operand and all
        true); the range, scales and zero points afterwards.
    """
    if self.dtype != np.float32:
        raise InvalidIRError(f"ranges move with float32 alone, not with {self.dtype}")
    low, high, scales, zeros = (a.copy() for a in (running_min, running_max, scale, zero_point))
    rows = np.moveaxis(self, ch_axis, 0).reshape(self.shape[ch_axis], -1)
    seen = rows if per_row_fake_quant else self.reshape(1, -1)
    if observer_on.item():
        low = _moved(low, seen.min(axis=1), averaging_const)
        high = _moved(high, seen.max(axis=1), averaging_const)
    if not fake_quant_on.item():
        return self.copy(), np.ones(self.shape, bool), low, high, scales, zeros
    ends = zip(np.minimum(low, 0), np.maximum(high, 0), strict=True)
    codes = (quant_min, quant_max)
    found = [parameters_of(float(a), float(b), *codes, symmetric=symmetric_quant) for a, b in ends]
    scales = np.array([one for one, _ in found], scale.dtype)
    zeros = np.array([zero for _, zero in found], zero_point.dtype)
    if per_row_fake_quant:
        made = fake_quantize_channels_cachemask(self, scales, zeros, ch_axis, *codes)
    else:
        made = faked(self, Single(scales[0]), int(zeros[0]), *codes)
    return *made, low, high, scales, zeros


def _moved(running: Array, seen: Array, part: float) -> Array:
    """A range after what is seen, in its type."""
    if running.size != seen.size:
        return seen.astype(running.dtype)
    step = (Single(part) * (seen - running)).astype("float32")
    return np.where(np.isinf(running), seen, running + step).astype(running.dtype)
