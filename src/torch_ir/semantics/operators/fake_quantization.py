"""Numbers rounded to what their codes stand for, and the choice of scales and zero points.

As in :mod:`torch_ir.semantics.operators.quantization`, these operators are defined by their steps,
in float32: which code a number next to the middle between two gets is a matter of rounding.

Source: aten/src/ATen/native/quantized (FakeQuantizeCore, QuantUtils); torch.ao.quantization's
determine_qparams and fx._decomposed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.dtypes import DEFAULT_FLOAT, Array, is_float, is_inexact, rounded
from torch_ir.semantics.operators.quantization import along, number
from torch_ir.semantics.registry import denotes, restate

DType = np.dtype[Any]
Single = np.float32

# -- fake quantization ----------------------------------------------------------------------------


def faked(
    values: Array,
    scale: Any,
    zero_point: Any,
    quant_min: int,
    quant_max: int,
    kind: str = "float32",
) -> tuple[Array, Array]:
    """Return ``(clamp(round(x / scale) + zero) - zero) · scale``, and what was not clamped."""
    if not is_float(values.dtype):
        raise InvalidIRError(f"{values.dtype} numbers are not quantized; convert them first")
    codes = _codes(values, scale, zero_point, kind)
    kept = (codes >= quant_min) & (codes <= quant_max)
    numbers = (np.clip(codes, quant_min, quant_max) - zero_point).astype(kind) * scale
    return rounded(numbers, values.dtype), np.asarray(kept)


def _codes(values: Array, scale: Any, zero_point: Any, kind: str = "float32") -> Array:
    """Whole numbers, before they are clamped: ``1 / scale`` is rounded to float32 first."""
    scaled = (values.astype(kind) * (Single(1) / scale)).astype(kind)
    if np.asarray(zero_point).dtype.kind == "f":
        return np.rint(scaled + zero_point)
    return np.nan_to_num(np.rint(scaled)).astype("float64") + zero_point


def along_axis(parameter: Array, axis: int, rank: int) -> Array:
    """Return one parameter for each place of an axis, to broadcast to a rank."""
    kind = "float32" if is_float(parameter.dtype) else "int64"
    return along(parameter.astype(kind), axis, rank)


@denotes("aten.fake_quantize_per_tensor_affine_cachemask.default")
def fake_quantize_cachemask(
    self: Array, scale: float, zero_point: int, quant_min: int, quant_max: int
) -> tuple[Array, Array]:
    """The numbers that codes stand for, and where nothing was clamped; shapes: the operand's."""
    return faked(self, Single(scale), zero_point, quant_min, quant_max)


@denotes(
    "aten.fake_quantize_per_tensor_affine.default",
    "aten.fake_quantize_per_tensor_affine.tensor_qparams",
)
def fake_quantize(
    self: Array, scale: float | Array, zero_point: int | Array, quant_min: int, quant_max: int
) -> Array:
    """The numbers that codes of one scale and zero point stand for; the operand's type."""
    one, zero = Single(number(scale)), int(number(zero_point))
    return faked(self, one, zero, quant_min, quant_max)[0]


@denotes("aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default")
def fake_quantize_cachemask_tensors(
    self: Array,
    scale: Array,
    zero_point: Array,
    fake_quant_enabled: Array,
    quant_min: int,
    quant_max: int,
) -> tuple[Array, Array]:
    """As :func:`fake_quantize_cachemask`; where it is not enabled, the operand and all true."""
    if not int(fake_quant_enabled.item()):
        return self.copy(), np.ones(self.shape, bool)
    return faked(self, Single(scale.item()), int(zero_point.item()), quant_min, quant_max)


@denotes("aten.fake_quantize_per_channel_affine_cachemask.default")
def fake_quantize_channels_cachemask(
    self: Array, scale: Array, zero_point: Array, axis: int, quant_min: int, quant_max: int
) -> tuple[Array, Array]:
    """As :func:`fake_quantize_cachemask`, one scale and zero point for each place of an axis.

    Floating-point zero points are added before rounding. Numbers in float64 are rounded there.
    """
    scales, zeros = along_axis(scale, axis, self.ndim), along_axis(zero_point, axis, self.ndim)
    kind = "float64" if self.dtype == np.float64 else "float32"
    return faked(self, scales, zeros, quant_min, quant_max, kind)


restate(fake_quantize_channels_cachemask, "aten.fake_quantize_per_channel_affine.default", part=0)


@denotes("quantized_decomposed.fake_quant_per_channel.default")
def fake_quant_per_channel(
    input: Array, scales: Array, zero_points: Array, axis: int, quant_min: int, quant_max: int
) -> Array:
    """As :func:`fake_quantize_channels_cachemask`, with zero points cut to int32."""
    whole = zero_points.astype("int32")
    return fake_quantize_channels_cachemask(input, scales, whole, axis, quant_min, quant_max)[0]


@denotes(
    "aten.fake_quantize_per_tensor_affine_cachemask_backward.default",
    "aten.fake_quantize_per_channel_affine_cachemask_backward.default",
)
def fake_quantize_backward(grad: Array, mask: Array) -> Array:
    """The gradient where nothing was clamped, else 0."""
    return rounded(grad * mask.astype(grad.dtype), grad.dtype)


def learned_zero(zero_point: Array, quant_min: int, quant_max: int) -> Array:
    """Return zero points that are learned as codes: rounded, and clamped to these."""
    return np.clip(np.rint(zero_point.astype("float32")), quant_min, quant_max).astype("int64")


@denotes("aten._fake_quantize_learnable_per_tensor_affine.default")
def learnable_fake_quantize(
    self: Array,
    scale: Array,
    zero_point: Array,
    quant_min: int,
    quant_max: int,
    grad_factor: float = 1.0,
) -> Array:
    """As :func:`fake_quantize`, by a zero point that is rounded and clamped first.

    Of parameters with several elements the first counts.
    """
    if not (scale.ndim and zero_point.ndim and scale[:1].size == 1 and zero_point[:1].size == 1):
        shapes = f"{list(scale.shape)} and {list(zero_point.shape)}"
        raise InvalidIRError(f"parameters of shapes {shapes} have no first element; give them one")
    zero = int(learned_zero(zero_point[:1], quant_min, quant_max).item())
    return faked(self, Single(scale[0].item()), zero, quant_min, quant_max)[0]


@denotes("aten._fake_quantize_learnable_per_channel_affine.default")
def learnable_fake_quantize_channels(
    self: Array,
    scale: Array,
    zero_point: Array,
    axis: int,
    quant_min: int,
    quant_max: int,
    grad_factor: float = 1.0,
) -> Array:
    """As :func:`learnable_fake_quantize`, one of both for each place of an axis."""
    zeros = learned_zero(zero_point, quant_min, quant_max)
    return fake_quantize_channels_cachemask(self, scale, zeros, axis, quant_min, quant_max)[0]


# -- scales and zero points -----------------------------------------------------------------------


def _ends(values: Array, axis: int | None = None) -> tuple[Array, Array]:
    """The least and the greatest number, and 0 if it is less or greater."""
    keep = axis is not None
    low, high = values.min(axis=axis, keepdims=keep), values.max(axis=axis, keepdims=keep)
    zero = np.zeros((), values.dtype)
    return np.minimum(low, zero), np.maximum(high, zero)


def _one(scale: Any, zero_point: Any) -> tuple[Array, Array]:
    return np.full(1, scale, "float64"), np.full(1, zero_point, "int64")


@denotes("quantized_decomposed.choose_qparams.tensor")
def choose_qparams(
    input: Array, quant_min: int, quant_max: int, eps: float, dtype: DType
) -> tuple[Array, Array]:
    """``scale = (max - min) / (quant_max - quant_min)``, at least eps, and the code of 0.

    Shapes: any → [1] (float64) and [1] (int64). ``zero_point = quant_min - round(min / scale)``,
    clamped; max and min are at least and at most 0. Steps in the operand's type.
    """
    low, high = _ends(input)
    if not input.min() <= input.max():
        return _one(1, 0)
    scale = rounded((high - low) / float(quant_max - quant_min), input.dtype)
    scale = max(scale.astype("float32"), Single(eps))
    quotient = (low.astype("float32") / scale).astype("float32")
    return _one(scale, np.clip(quant_min - int(np.rint(quotient)), quant_min, quant_max))


@denotes("quantized_decomposed.choose_qparams_symmetric.tensor")
def choose_qparams_symmetric(
    input: Array, quant_min: int, quant_max: int, eps: float, dtype: DType
) -> tuple[Array, Array]:
    """``scale = max |x| / ((quant_max - quant_min) / 2)``, at least eps; 0, of uint8 128."""
    low, high = _ends(input)
    if not input.min() <= input.max():
        return _one(1, 0)
    scale = rounded(np.maximum(-low, high) / (float(quant_max - quant_min) / 2), input.dtype)
    zero = 128 if dtype == np.uint8 else 0
    return _one(max(scale.astype("float32"), Single(eps)), zero)


@denotes(
    "quantized_decomposed.choose_qparams_per_token_asymmetric.default",
    "quantized_decomposed._choose_qparams_per_token_asymmetric_impl.default",
)
def choose_qparams_per_token_asymmetric(input: Array, dtype: DType) -> tuple[Array, Array]:
    """Scale and zero point (-128 to 127) of each row, by the end at which less is rounded away.

    Shapes: [*, n] → [*, 1] (float64) and [*, 1] (int64). Steps in the operand's type; what divides
    integers, whose difference wraps around, is in float32.
    """
    kind = input.dtype if is_inexact(input.dtype) else DEFAULT_FLOAT
    low, high = _ends(input, -1)
    span = (high - low).astype("float64")

    def step(values: Any) -> Array:
        return rounded(values, kind).astype("float64")

    low, high = low.astype("float64"), high.astype("float64")
    scale = np.maximum(step(span / 255.0), step(np.finfo("float32").eps))
    first, last = step(low / scale), step(high / scale)
    by_low = step(step(-128 + first) + step(127 + last)) > 0
    zero = np.where(by_low, step(-128 - first), step(127 - last))
    return scale, np.rint(np.clip(zero, -128, 127)).astype("int64")


@denotes("quantized_decomposed.choose_qparams_per_token.default")
def choose_qparams_per_token(input: Array, dtype: DType) -> tuple[Array, Array]:
    """``max(max |x|, 1e-5) / 127`` of each row, and zeros of the same type.

    Shapes: [*, n] → [*, 1] twice, float32 for float16.
    """
    if dtype != np.int8:
        raise InvalidIRError(f"rows are not quantized to {dtype}", remedy="Use int8.")
    scales = np.abs(input).max(axis=-1, keepdims=True)
    kind = np.dtype("float32") if input.dtype == np.float16 else input.dtype
    least = rounded(np.float64(1e-5), kind)
    scales = rounded(np.maximum(scales.astype(kind), least).astype("float64") / 127, kind)
    return scales, np.zeros_like(scales)


@denotes("aten._choose_qparams_per_tensor.default")
def choose_qparams_per_tensor(self: Array, reduce_range: bool = False) -> tuple[float, int]:
    """Scale and zero point of codes from 0 to 255 (127 if reduced), by the end with less error.

    Scales below 6.1e-5 are raised to it, and the range with them.
    """
    low, high = (float(end) for end in _ends(self.astype("float32")))
    return parameters_of(low, high, 0, 127 if reduce_range else 255)


def parameters_of(
    low: float, high: float, least: int, most: int, *, symmetric: bool = False
) -> tuple[float, int]:
    """Scale and zero point of codes from least to most for a range that has 0 in it.

    Symmetric ones of a range with both signs have 0 in the middle of the codes.
    """
    balanced = symmetric and low < 0 < high
    if balanced:
        ends = -((most - least) // 2 + 1), (most - least) // 2
        reach = max(abs(low / ends[0]), abs(high / ends[1]))
        low, high = (float(Single(reach * end)) for end in ends)
    scale = (high - low) / (most - least)
    if Single(scale) == 0 or np.isinf(Single(1) / Single(scale)):
        scale = 0.1
    small = float(Single(6.1e-5))
    if scale < small:
        grown, scale = small / scale, small
        if low == 0:
            high = float(Single(high * grown))
        elif high == 0:
            low = float(Single(low * grown))
        else:
            low, high = (float(Single(end * grown)) for end in (low, high))
    by_low, by_high = least - low / scale, most - high / scale
    zero = by_low if abs(least) + abs(low / scale) < abs(most) + abs(high / scale) else by_high
    zero = (least + most) / 2 if balanced else zero
    return scale, int(np.clip(np.rint(zero), least, most))
