"""Codes and the numbers for which they stand: the denotations give torch's bits."""

from __future__ import annotations

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers quantize and dequantize

from semantics.compare import check, denoted, operator
from semantics.samples import ordinary
from torch_ir.errors import InvalidIRError

LIBRARY = "quantized_decomposed."
RANGES = [
    (0, 255, torch.uint8),
    (-128, 127, torch.int8),
    (-127, 120, torch.int8),
    (-32768, 32767, torch.int16),
]
PARAMETERS = [(0.1, 3), (0.0235294122248888, 0), (1e-3, -7), (37.5, 100)]


def numbers(*shape: int) -> torch.Tensor:
    """Numbers of all sizes, many in the middle between two codes, and infinities."""
    values = torch.cat([ordinary(torch.float32, 300) * 10, torch.arange(-150, 150) * 0.05])
    values = torch.cat([values, torch.tensor([torch.inf, -torch.inf, 0.0, -0.0, 1e30])])
    return values if not shape else values[: torch.Size(shape).numel()].reshape(shape)


def every_code(dtype: torch.dtype) -> torch.Tensor:
    info = torch.iinfo(dtype)
    return torch.arange(info.min, info.max + 1).to(dtype)


@pytest.mark.parametrize(("scale", "zero_point"), PARAMETERS)
@pytest.mark.parametrize(("low", "high", "dtype"), RANGES)
def test_one_scale_for_all(low, high, dtype, scale, zero_point):
    quantize, dequantize = f"{LIBRARY}quantize_per_tensor", f"{LIBRARY}dequantize_per_tensor"
    tensors = torch.tensor(scale), torch.tensor(zero_point)
    bounds = torch.tensor(low), torch.tensor(high)
    codes = every_code(dtype)
    for given in (numbers(), numbers().bfloat16(), numbers().half()):
        check(f"{quantize}.default", given, scale, zero_point, low, high, dtype)
    check(f"{quantize}.tensor", numbers(), *tensors, low, high, dtype)
    check(f"{quantize}.tensor2", numbers(), *tensors, *bounds, dtype)
    check(f"{dequantize}.default", codes, scale, zero_point, low, high, dtype)
    check(f"{dequantize}.tensor", codes, *tensors, low, high, dtype)
    check(f"{dequantize}.tensor2", codes, *tensors, *bounds, dtype)
    for out in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        check(f"{dequantize}.default", codes, scale, zero_point, low, high, dtype, out_dtype=out)


@pytest.mark.parametrize("scales", [torch.float32, torch.float64])
@pytest.mark.parametrize("offsets", [torch.int64, torch.int32, torch.float32])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_one_scale_for_each_channel(axis, offsets, scales):
    shape = (3, 4, 5)
    scale = torch.linspace(0.01, 0.3, shape[axis]).to(scales)
    zero_point = torch.arange(shape[axis]).to(offsets)
    more = (axis, -127, 127, torch.int8)
    check(f"{LIBRARY}quantize_per_channel.default", numbers(*shape), scale, zero_point, *more)
    codes = every_code(torch.int8)[100:160].reshape(shape)
    dequantize = f"{LIBRARY}dequantize_per_channel.default"
    check(dequantize, codes, scale, zero_point, *more)
    check(dequantize, codes, scale, None, *more, out_dtype=torch.float16)


@pytest.mark.parametrize("offsets", [torch.int8, torch.uint8, torch.int16])
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8])
def test_small_zero_points_wrap_as_the_operator_does(dtype, offsets):
    codes = every_code(dtype).reshape(4, 64)
    zero_point = torch.tensor([100, 3, 0, 77]).to(offsets)
    bounds = (0, 255, torch.uint8) if dtype == torch.uint8 else (-128, 127, torch.int8)
    check(f"{LIBRARY}dequantize_per_channel.default", codes, torch.rand(4), zero_point, 0, *bounds)


@pytest.mark.parametrize("size", [2, 8, 16])
@pytest.mark.parametrize("offsets", [None, torch.int32, torch.float32])
def test_one_scale_for_each_group(size, offsets):
    codes = every_code(torch.int8).reshape(16, 16)
    scales = torch.linspace(0.01, 0.3, 256 // size).reshape(16, -1)
    zero_points = None if offsets is None else torch.arange(scales.numel()).to(offsets)
    zero_points = None if zero_points is None else zero_points.reshape(scales.shape)
    more = (-128, 127, torch.int8, size, torch.float32)
    check(f"{LIBRARY}dequantize_per_channel_group.default", codes, scales, zero_points, *more)


@pytest.mark.parametrize("scales", [torch.float32, torch.float64])
@pytest.mark.parametrize("offsets", [torch.int64, torch.int32, torch.float32])
def test_one_scale_for_each_row(offsets, scales):
    scale = torch.linspace(0.01, 0.3, 12).reshape(3, 4, 1).to(scales)
    zero_point = torch.arange(12).reshape(3, 4, 1).to(offsets)
    more = (-128, 127, torch.int8)
    check(f"{LIBRARY}quantize_per_token.default", numbers(3, 4, 5), scale, zero_point, *more)
    codes = every_code(torch.int8)[60:120].reshape(3, 4, 5)
    dequantize = f"{LIBRARY}dequantize_per_token.default"
    for out in (torch.float32, torch.bfloat16):
        check(dequantize, codes, scale, zero_point, *more, out)


def test_ties_go_to_the_even_code():
    given = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5])
    made = denoted(f"{LIBRARY}quantize_per_tensor.default", given, 1.0, 0, -128, 127, torch.int8)
    assert made.tolist() == [0, 2, 2, 0, -2]


def test_what_torch_refuses_is_refused():
    codes = torch.ones(2, dtype=torch.uint8)
    for name, tensor, bounds in (
        ("quantize", torch.ones(2, dtype=torch.float64), (0, 255, torch.uint8)),
        ("quantize", torch.ones(2), (0, 300, torch.uint8)),
        ("dequantize", codes, (-128, 127, torch.int8)),
    ):
        op_type = f"{LIBRARY}{name}_per_tensor.default"
        with pytest.raises(AssertionError):
            operator(op_type)(tensor, 0.1, 0, *bounds)
        with pytest.raises(InvalidIRError):
            denoted(op_type, tensor, 0.1, 0, *bounds)
