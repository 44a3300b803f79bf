"""Convolution: the sum that it is, element by element; its adjoints; torch's values."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from semantics.compare import check, refused
from torch_ir.semantics import denotation

CONVOLUTION = "aten.convolution.default"
BACKWARD = "aten.convolution_backward.default"
GEOMETRIES = [
    ([1, 1, 1], [0, 0, 0], [1, 1, 1], [0, 0, 0]),
    ([2, 1, 3], [1, 0, 1], [1, 2, 1], [1, 0, 2]),
    ([2, 2, 2], [2, 2, 2], [3, 3, 3], [2, 2, 2]),
]


def operands(
    rank: int, groups: int, transposed: bool, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rank)
    outer, inner = (4, 6 // groups) if transposed else (6, 4 // groups)
    shapes = (2, 4, *[7, 6, 5][:rank]), (outer, inner, *[3, 2, 2][:rank]), (6,)
    values, weight, bias = (torch.randn(s, generator=generator) * 3 for s in shapes)
    return values.to(dtype), weight.to(dtype), bias.to(dtype)


def by_its_sum(
    values: np.ndarray[Any, Any],
    weight: np.ndarray[Any, Any],
    stride: int,
    padding: int,
    dilation: int,
    groups: int,
) -> np.ndarray[Any, Any]:
    """The definition for two axes, one product at a time."""
    (n, c, *sizes), (filters, inner, *kernel) = values.shape, weight.shape
    counts = [
        (size + 2 * padding - dilation * (k - 1) - 1) // stride + 1
        for size, k in zip(sizes, kernel, strict=True)
    ]
    result = np.zeros((n, filters, *counts), values.dtype)
    places = (range(n), range(filters), *map(range, counts), range(inner), *map(range, kernel))
    for b, o, y, x, i, p, q in product(*places):
        row = y * stride + p * dilation - padding
        column = x * stride + q * dilation - padding
        if 0 <= row < sizes[0] and 0 <= column < sizes[1]:
            channel = o // (filters // groups) * (c // groups) + i
            result[b, o, y, x] += weight[o, i, p, q] * values[b, channel, row, column]
    return result


@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "groups"),
    [(1, 0, 1, 1), (2, 1, 1, 1), (1, 2, 2, 2), (3, 0, 1, 4), (2, 3, 2, 2)],
)
def test_it_is_the_sum_that_defines_it(
    stride: int, padding: int, dilation: int, groups: int
) -> None:
    numbers = np.random.default_rng(0)
    values = numbers.integers(-9, 9, (2, 4, 6, 5))
    weight = numbers.integers(-9, 9, (8, 4 // groups, 3, 2))
    geometry = [[stride] * 2, [padding] * 2, [dilation] * 2]
    result = denotation(CONVOLUTION).function(
        values, weight, None, *geometry, False, [0, 0], groups
    )
    expected = by_its_sum(values, weight, stride, padding, dilation, groups)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("groups", [1, 2])
def test_backward_is_the_adjoint(transposed: bool, groups: int) -> None:
    """⟨g, conv(x, w)⟩ = ⟨grad_x, x⟩ = ⟨grad_w, w⟩, exactly in integers."""
    numbers = np.random.default_rng(1)
    values = numbers.integers(-9, 9, (2, 4, 6, 5))
    outer, inner = (4, 6 // groups) if transposed else (6, 4 // groups)
    weight = numbers.integers(-9, 9, (outer, inner, 3, 2))
    geometry = [[2, 1], [1, 1], [1, 2], transposed, [1, 0] if transposed else [0, 0], groups]
    result = denotation(CONVOLUTION).function(values, weight, None, *geometry)
    upper = numbers.integers(-9, 9, result.shape)
    first, second, third = denotation(BACKWARD).function(
        upper, values, weight, [6], *geometry, [True] * 3
    )
    assert (upper * result).sum() == (first * values).sum() == (second * weight).sum()
    np.testing.assert_array_equal(third, upper.sum((0, 2, 3)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_torch_agrees(rank: int, groups: int, transposed: bool, dtype: torch.dtype) -> None:
    values, weight, bias = operands(rank, groups, transposed, dtype)
    bound = 2000 * torch.finfo(dtype).eps if dtype.is_floating_point else 0
    for stride, padding, dilation, extra in GEOMETRIES:
        arguments = (stride[:rank], padding[:rank], dilation[:rank], transposed, extra[:rank])
        check(CONVOLUTION, values, weight, bias, *arguments, groups, atol=bound)
        if dtype == torch.float32:
            none = arguments[-1] if transposed else [0] * rank
            arguments = (*arguments[:-1], none, groups)
            upper = torch.ops.aten.convolution(values, weight, None, *arguments)
            for sizes, mask in (([6], [True] * 3), (None, [True, False, False])):
                check(
                    BACKWARD,
                    upper,
                    values,
                    weight,
                    sizes,
                    *arguments,
                    mask,
                    ulp=64,
                    atol=20 * bound,
                )


def test_complex_backward_conjugates() -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = (1, 2, 5), (3, 2, 2), (1, 3, 4)
    values, weight, upper = (
        torch.randn(s, generator=generator, dtype=torch.complex128).requires_grad_()
        for s in shapes
    )
    torch.nn.functional.conv1d(values, weight).backward(upper)
    arrays = (x.detach().numpy() for x in (upper, values, weight))
    none: list[Any] = [None, [1], [0], [1], False, [0], 1, [True, True, False]]
    first, second, third = denotation(BACKWARD).function(*arrays, *none)
    assert values.grad is not None
    assert weight.grad is not None
    np.testing.assert_allclose(first, values.grad.numpy(), rtol=1e-13)
    np.testing.assert_allclose(second, weight.grad.numpy(), rtol=1e-13)
    assert third is None


def test_nan_and_infinity_stay_in_their_windows() -> None:
    values, weight, _ = operands(2, 1, False, torch.float64)
    values[0, 0, 1, 1], values[0, 1, 0, 0] = torch.nan, torch.inf
    check(CONVOLUTION, values, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, atol=1e-12)


def test_spelled_by_rank() -> None:
    values, weight, bias = operands(2, 1, False, torch.float64)
    check("aten.conv2d.default", values, weight, bias, [2], [1], atol=1e-12)
    check("aten.conv2d.default", values[0], weight, atol=1e-12)
    for padding in ("same", "valid"):
        for dilation in ([1, 1], [1, 2]):
            arguments = (None, [1, 1], padding, dilation)
            check("aten.conv2d.padding", values, weight, *arguments, atol=1e-12)
    turned, bias = weight.transpose(0, 1).contiguous(), bias[:6]
    check("aten.conv_transpose2d.input", values, turned, bias, [2], [1], [1], atol=1e-12)
    check("aten.conv_transpose2d.input", values[0], turned, atol=1e-12)
    flags = (False, False, False, True)
    arguments = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1, *flags)
    check("aten._convolution.default", values, weight, bias, *arguments, atol=1e-12)


def test_an_empty_batch() -> None:
    values, weight, bias = operands(1, 1, False, torch.float32)
    check(CONVOLUTION, values[:0], weight, bias, [1], [0], [1], False, [0], 1)


def refusal(values: torch.Tensor, weight: torch.Tensor, **changed: Any) -> str:
    """The message about a two-dimensional convolution with some argument changed."""
    given: dict[str, Any] = {
        "bias": None,
        "stride": [1, 1],
        "padding": [0, 0],
        "dilation": [1, 1],
        "transposed": False,
        "output_padding": [0, 0],
        "groups": 1,
    } | changed
    return refused(CONVOLUTION, values, weight, *given.values())


def test_what_torch_refuses() -> None:
    values, weight = torch.ones(1, 2, 3, 3), torch.ones(2, 2, 2, 2)
    assert refusal(values, torch.ones(2, 2, 4, 4)) == (
        "windows that span [4, 4] do not fit sizes [3, 3]"
    )
    assert refusal(values, weight, dilation=[3, 3]) == (
        "windows that span [4, 4] do not fit sizes [3, 3]"
    )
    assert refusal(values, weight, stride=[0, 1]) == "stride [0, 1] has a number less than 1"
    assert refusal(values, weight, padding=[-1, 0]) == "padding [-1, 0] has a number less than 0"
    assert refusal(values, weight, dilation=[0, 1]) == "dilation [0, 1] has a number less than 1"
    assert refusal(values, weight, groups=2) == (
        "weight [2, 2, 2, 2] in 2 groups does not take the channels of [1, 2, 3, 3]"
    )
    assert refusal(values, weight.double()) == "input float32 and weight float64 differ in dtype"
    assert refusal(values[0], weight) == (
        "input [2, 3, 3] and weight [2, 2, 2, 2] are not both [n, channels, *sizes]"
    )
    assert refusal(values, weight, bias=torch.ones(3)) == (
        "bias [3] is not one for each of the filters"
    )
    assert refusal(values, weight, transposed=True, output_padding=[1, 0]) == (
        "output_padding [1, 0] must be less than stride [1, 1] or dilation [1, 1]"
    )
    assert refusal(values, weight, transposed=True, padding=[3, 3]) == (
        "output sizes [-2, -2] has a number less than 0"
    )
    assert refused("aten.conv2d.padding", values, weight, None, [2, 2], "same") == (
        'padding \'same\' with stride [2, 2] is not "valid" or "same"'
    )
