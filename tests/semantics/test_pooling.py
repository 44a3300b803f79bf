"""Pooling: means and maxima of windows, what counts as padding, ties and NaN, refusals."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from semantics.compare import check, refused

WINDOWS = [
    ([3, 2], [2, 3], [1, 1]),
    ([2], [], [0]),
    ([3], [1], [1]),
    ([5, 4], [4, 3], [2, 2]),
    ([1], [3], [0]),
]
MAXIMUM = "aten.max_pool2d_with_indices.default"


def tensor(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.randn(shape, generator=torch.Generator().manual_seed(0)) * 10).to(dtype)


def special(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Planes with NaN, with nothing but -inf, with inf, with zeros of both signs."""
    values = tensor((2, 3, 7, 8), dtype)
    values[0, 0, 2:4], values[0, 1], values[0, 2] = math.nan, -math.inf, math.inf
    values[1, 0], values[1, 0, ::2], values[1, 1] = 0.0, -0.0, math.nan
    return values


def doubled(numbers: list[int]) -> list[int]:
    return numbers * 2 if len(numbers) == 1 else numbers


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize(("kernel", "stride", "padding"), WINDOWS)
def test_mean(
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    include: bool,
    ceil_mode: bool,
    dtype: torch.dtype,
) -> None:
    values = tensor((2, 3, 7, 8), dtype)
    bound = 20 * torch.finfo(dtype).eps if dtype.is_floating_point else 0
    arguments: list[Any] = [kernel, stride, padding, ceil_mode, include]
    check("aten.avg_pool2d.default", values, *arguments, atol=bound)
    check("aten.avg_pool2d.default", values[0], *arguments, 3, atol=bound * 5)
    check("aten.avg_pool2d.default", values, *arguments, -3, atol=bound * 5)
    if dtype.is_floating_point:
        upper = torch.ops.aten.avg_pool2d(values, *arguments)
        arguments = [*map(doubled, (kernel, stride, padding)), ceil_mode, include, None]
        check("aten.avg_pool2d_backward.default", upper, values, *arguments, atol=bound)


@pytest.mark.parametrize("op_type", ["aten.avg_pool1d.default", "aten.max_pool1d.default"])
def test_one_axis(op_type: str) -> None:
    for values in (tensor((2, 3, 9)), tensor((3, 9))):
        check(op_type, values, [3], [2], [1], atol=1e-5 if "avg" in op_type else 0)


def test_three_axes() -> None:
    values = tensor((2, 3, 5, 4, 6))
    arguments: list[Any] = [[2, 3, 2], [1, 2, 2], [1, 1, 0], True, False]
    check("aten.avg_pool3d.default", values, *arguments, None, atol=1e-5)
    upper = torch.ops.aten.avg_pool3d(values, *arguments, None)
    check("aten.avg_pool3d_backward.default", upper, values, *arguments, None, atol=1e-5)
    arguments = [[2, 3, 2], [1, 2, 2], [1, 1, 0], [1, 1, 2], True]
    check("aten.max_pool3d_with_indices.default", values, *arguments)
    check("aten.max_pool3d.default", values, *arguments)
    upper, indices = torch.ops.aten.max_pool3d_with_indices(values, *arguments)
    backward = "aten.max_pool3d_with_indices_backward.default"
    check(backward, upper, values, *arguments, indices, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("dilation", [[1, 1], [2, 1]])
@pytest.mark.parametrize(("kernel", "stride", "padding"), WINDOWS)
def test_maximum(
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    ceil_mode: bool,
    dtype: torch.dtype,
) -> None:
    if dilation == [2, 1] and kernel == [5, 4]:
        dilation = [1, 2]  # else they do not fit
    arguments: list[Any] = [kernel, stride, padding, dilation, ceil_mode]
    for values in (tensor((2, 3, 7, 8), dtype), special(dtype), special(dtype)[0]):
        check(MAXIMUM, values, *arguments)
        check("aten.max_pool2d.default", values, *arguments)
    values = tensor((2, 3, 7, 8), dtype)
    upper, indices = torch.ops.aten.max_pool2d_with_indices(values, *arguments)
    arguments = [*map(doubled, (kernel, stride or kernel, padding)), dilation, ceil_mode, indices]
    backward = "aten.max_pool2d_with_indices_backward.default"
    check(backward, upper, values, *arguments, atol=200 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.int32])
def test_maximum_of_integers(dtype: torch.dtype) -> None:
    values = tensor((2, 3, 7, 8), dtype)
    values[0] = torch.iinfo(dtype).min
    check(MAXIMUM, values, [3], [1], [1], [2])


@pytest.mark.parametrize("size", [[1, 1], [3, 5], [7, 8], [9, 9], [2, 0]])
def test_to_a_size(size: list[int]) -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        values = tensor((2, 3, 7, 8), dtype)
        bound = 40 * torch.finfo(dtype).eps
        check("aten._adaptive_avg_pool2d.default", values, size, atol=bound)
        check("aten._adaptive_avg_pool3d.default", values[None], [2, *size], atol=bound)
        check("aten.adaptive_avg_pool1d.default", values[0], size[:1], atol=bound)
        if 0 not in size:
            upper = torch.ops.aten._adaptive_avg_pool2d(values, size)
            backward = "aten._adaptive_avg_pool2d_backward.default"
            check(backward, upper, values, atol=bound)
    check("aten.adaptive_max_pool1d.default", special()[0], size[:1])
    check("aten.adaptive_max_pool2d.default", special(), size)
    check("aten.adaptive_max_pool3d.default", special()[None], [2, *size])


def test_empty_batches() -> None:
    for op_type in ("max_pool2d_with_indices", "avg_pool2d", "_adaptive_avg_pool2d"):
        check(f"aten.{op_type}.default", torch.ones(0, 3, 4, 4), [2, 2])


@pytest.mark.parametrize("op_type", [MAXIMUM, "aten.avg_pool2d.default"])
def test_windows_that_torch_refuses(op_type: str) -> None:
    values = torch.ones(1, 1, 3, 3)
    assert refused(op_type, values, [4, 4]) == "windows that span [4, 4] do not fit sizes [3, 3]"
    assert refused(op_type, values, [3, 3], [0, 1]) == "stride [0, 1] has a number less than 1"
    assert refused(op_type, values, [3, 3], [1, 1], [2, 0]) == (
        "padding [2, 0] is more than half of kernels [3, 3]"
    )
    assert refused(op_type, values, [2, 2], [1, 1], [-1, 0]) == (
        "padding [-1, 0] has a number less than 0"
    )
    assert refused(op_type, values[0, 0], [2, 2]) == (
        "pooling of 2 axes takes no tensor of shape [3, 3]"
    )
    assert refused(op_type, torch.ones(2, 0, 4, 4), [2, 2]) == (
        "pooling of 2 axes takes no tensor of shape [2, 0, 4, 4]"
    )


def test_more_that_torch_refuses() -> None:
    values = torch.ones(1, 1, 3, 3)
    assert refused(MAXIMUM, values, [2, 2], [1, 1], [2, 2], [3, 3]) == (
        "padding [2, 2] is more than half of kernels [2, 2]"
    )
    average = ("aten.avg_pool2d.default", values, [2, 2], [1, 1], [0, 0], False, True)
    assert refused(*average, 0) == "divisor_override is 0"
    assert refused("aten._adaptive_avg_pool2d.default", values.long(), [2, 2]) == (
        "pooling to a size is of floating-point numbers, not int64"
    )
    assert refused("aten.adaptive_max_pool2d.default", values[:, :0], [2, 2]) == (
        "a tensor of shape [1, 0, 3, 3] has no maximum"
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_windows_at_random_places(dtype: torch.dtype) -> None:
    draws = torch.Generator().manual_seed(0)
    for planes in ((3,), (2, 3)):
        for sizes, kernel, counts in (
            ((9, 14), [2, 3], [4, 5]),
            ((5, 4), [5, 2], [1, 3]),
            ((6, 7, 8), [2, 1, 3], [3, 6, 2]),
        ):
            values = torch.randn(*planes, *sizes, generator=draws).to(dtype)
            values.view(-1)[::7] = 0.5
            values.view(-1)[::31] = float("nan")
            values[..., :2] = -float("inf")
            samples = torch.rand(*(1, *planes)[-2:], len(sizes), generator=draws).to(dtype)
            check(
                f"aten.fractional_max_pool{len(sizes)}d.default", values, kernel, counts, samples
            )


def test_random_windows_that_do_not_fit_are_refused() -> None:
    x, samples = torch.zeros(2, 5, 5), torch.zeros(1, 2, 2)
    for kernel, counts in (([3, 3], [4, 2]), ([6, 1], [1, 1])):
        message = refused("aten.fractional_max_pool2d.default", x, kernel, counts, samples)
        assert "windows" in message
    assert "windows" in refused(
        "aten.fractional_max_pool2d.default", x, [2, 2], [2, 2], samples.double()
    )
