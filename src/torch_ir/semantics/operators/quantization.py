"""Numbers as codes of few bits, and codes as numbers.

Which code a number next to the middle between two gets is a matter of rounding, so these operators
are defined by their steps: each is done in the type of its operands (of half precision, in
float32) and rounded to it. Which code NaN gets is open.
Source: the operators' own definitions, torch.ao.quantization.fx._decomposed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.dtypes import Array, is_float, promote, rounded
from torch_ir.semantics.registry import denotes

DType = np.dtype[Any]
_FLOAT = np.dtype("float32")

QUANTIZING = frozenset(
    f"quantized_decomposed.{name}"
    for name in (
        "quantize_per_tensor.default",
        "quantize_per_tensor.tensor",
        "quantize_per_tensor.tensor2",
        "quantize_per_channel.default",
        "quantize_per_channel_group.default",
        "quantize_per_token.default",
    )
)
"""Operators whose first argument is numbers, and whose result is their codes."""


@denotes(
    "quantized_decomposed.quantize_per_tensor.default",
    "quantized_decomposed.quantize_per_tensor.tensor",
    "quantized_decomposed.quantize_per_tensor.tensor2",
)
def quantize_per_tensor(
    input: Array, scale: Any, zero_point: Any, quant_min: Any, quant_max: Any, dtype: DType
) -> Array:
    """``clamp(round(x · (1 / scale)) + zero_point, quant_min, quant_max)`` in float32.

    ``1 / scale`` is rounded from float64; ``round`` takes ties to even. Parameters may be tensors
    with one element.
    """
    numbers = _as_float32(input)
    factor = np.float32(1.0 / float(number(scale)))
    codes = np.rint(numbers * factor) + np.float32(number(zero_point))
    return _codes(codes, number(quant_min), number(quant_max), dtype)


@denotes(
    "quantized_decomposed.dequantize_per_tensor.default",
    "quantized_decomposed.dequantize_per_tensor.tensor",
    "quantized_decomposed.dequantize_per_tensor.tensor2",
)
def dequantize_per_tensor(
    input: Array,
    scale: Any,
    zero_point: Any,
    quant_min: Any,
    quant_max: Any,
    dtype: DType,
    out_dtype: DType | None = None,
) -> Array:
    """``(code - zero_point) · scale`` in ``out_dtype``, which is float32 if it is not given."""
    _require_type(input, dtype)
    result = out_dtype or _FLOAT
    steps = np.dtype("float64") if result == np.float64 else _FLOAT
    numbers = rounded(input, result).astype(steps)
    moved = rounded(numbers - steps.type(number(zero_point)), result).astype(steps)
    return rounded(moved * steps.type(number(scale)), result)


@denotes("quantized_decomposed.quantize_per_channel.default")
def quantize_per_channel(
    input: Array,
    scales: Array,
    zero_points: Array,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: DType,
) -> Array:
    """As :func:`quantize_per_tensor`, with one scale and zero point for each place of an axis.

    ``1 / scale`` is rounded in the scales' own type.
    """
    numbers = _as_float32(input)
    factors = along(np.ones((), scales.dtype) / scales, axis, input.ndim)
    codes = np.rint(numbers * factors)
    codes = codes + along(zero_points, axis, input.ndim).astype(codes.dtype)
    return _codes(codes, quant_min, quant_max, dtype)


@denotes("quantized_decomposed.dequantize_per_channel.default")
def dequantize_per_channel(
    input: Array,
    scales: Array,
    zero_points: Array | None,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: DType,
    out_dtype: DType | None = None,
) -> Array:
    """``(code - zero_point) · scale``, with one of both for each place of an axis.

    Codes and zero points are subtracted in their common type, and so may wrap around.
    """
    _require_type(input, dtype)
    offsets = None if zero_points is None else along(zero_points, axis, input.ndim)
    return rounded(_scaled(input, offsets, along(scales, axis, input.ndim)), out_dtype or _FLOAT)


@denotes("quantized_decomposed.quantize_per_channel_group.default")
def quantize_per_channel_group(
    *, input: Array, scales: Array, zero_points: Array, group_size: int = 128, **codes: Any
) -> Array:
    """As :func:`quantize_per_token`, one of both for each ``group_size`` columns of a row."""
    groups = _in_groups(input, scales, group_size)
    parameters = (scales.reshape(-1, 1), zero_points.reshape(-1, 1))
    return quantize_per_token(groups, *parameters, **codes).reshape(input.shape)


@denotes("quantized_decomposed.dequantize_per_channel_group.default")
def dequantize_per_channel_group(
    input: Array,
    scales: Array,
    zero_points: Array | None,
    quant_min: int,
    quant_max: int,
    dtype: DType,
    group_size: int,
    output_dtype: DType,
) -> Array:
    """As :func:`dequantize_per_channel`, one of both for each ``group_size`` columns of a row."""
    groups = _in_groups(input, scales, group_size)
    offsets = None if zero_points is None else zero_points.reshape(-1, 1)
    numbers = _scaled(groups, offsets, scales.reshape(-1, 1))
    return rounded(numbers.reshape(input.shape), output_dtype)


def _in_groups(values: Array, scales: Array, group_size: int) -> Array:
    """The groups of a matrix that share a scale, each a row."""
    if values.ndim != 2:
        raise InvalidIRError(f"codes of shape {list(values.shape)} are no matrix")
    columns = values.shape[1]
    if group_size > columns and scales.shape[-1] == 1:
        group_size = columns
    if group_size <= 1 or columns % group_size:
        raise InvalidIRError(f"groups of {group_size} do not divide {columns} columns")
    return values.reshape(-1, group_size)


@denotes("quantized_decomposed.quantize_per_token.default")
def quantize_per_token(
    input: Array,
    scales: Array,
    zero_points: Array,
    quant_min: int,
    quant_max: int,
    dtype: DType,
) -> Array:
    """``clamp(round(x · (1 / scale) + zero_point), quant_min, quant_max)``, one of both a row.

    ``scales`` and ``zero_points`` have the shape of the numbers, but for a last dimension of 1.
    """
    factors = np.ones((), scales.dtype) / scales
    numbers = input.astype(promote(input.dtype, factors.dtype)) * factors
    kind = promote(numbers.dtype, zero_points.dtype)
    codes = np.rint(numbers.astype(kind) + zero_points.astype(kind))
    return _codes(codes, quant_min, quant_max, dtype)


@denotes("quantized_decomposed.dequantize_per_token.default")
def dequantize_per_token(
    input: Array,
    scales: Array,
    zero_points: Array,
    quant_min: int,
    quant_max: int,
    dtype: DType,
    output_dtype: DType,
) -> Array:
    """``(code - zero_point) · scale``, with one of both for each row."""
    return rounded(_scaled(input, zero_points, scales), output_dtype)


# -- steps ----------------------------------------------------------------------------------------


def _as_float32(numbers: Array) -> Array:
    if not is_float(numbers.dtype) or numbers.dtype == np.float64:
        raise InvalidIRError(f"{numbers.dtype} numbers are not quantized; convert them first")
    return numbers.astype(_FLOAT)


def _codes(values: Array, low: Any, high: Any, dtype: DType) -> Array:
    """Whole numbers as codes of a type, none below ``low`` or above ``high``."""
    bounds = np.iinfo(dtype)
    if not bounds.min <= low <= high <= bounds.max:
        raise InvalidIRError(f"codes from {low} to {high} are no {dtype}")
    found = np.clip(values, values.dtype.type(low), values.dtype.type(high)).astype(dtype)
    return np.asarray(found)


def _scaled(codes: Array, offsets: Array | None, scales: Array) -> Array:
    """``(code - offset) · scale``, each step in the operands' common type."""
    if offsets is not None:
        kind = promote(codes.dtype, offsets.dtype)
        codes = codes.astype(kind) - offsets.astype(kind)
    kind = promote(codes.dtype, scales.dtype)
    return codes.astype(kind) * scales.astype(kind)


def along(values: Array, axis: int, rank: int) -> Array:
    """Return one value for each place of an axis, to be spread over an array of that rank."""
    if not 0 <= axis < rank:
        raise InvalidIRError(f"axis {axis} is none of {rank} dimensions")
    return values.reshape([-1 if dim == axis else 1 for dim in range(rank)])


def number(value: Any) -> Any:
    """Return a number, also of a tensor with one element."""
    return value.item() if isinstance(value, np.ndarray) else value


def _require_type(codes: Array, dtype: DType) -> None:
    if codes.dtype != dtype:
        raise InvalidIRError(f"the codes are {codes.dtype}, not {dtype}")
