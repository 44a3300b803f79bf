"""Resampling: torch's choice of elements exactly, its weights within rounding."""

from __future__ import annotations

import itertools
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from semantics.compare import check, refused
from semantics.test_tolerance import HALF, bounds_of, parts_of
from torch_ir.semantics.operators.separable import BACKWARD
from torch_ir.semantics.tolerance import bound

SIZES = [
    ([7, 3], None),
    ([1, 1], None),
    ([5, 6], None),
    ([10, 12], None),
    (None, [2.0, 1.5]),
    (None, [0.4, 0.7]),
    (None, [1.1, 1.1]),
    (None, [1.7, 3.3]),
]
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def tensor(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize(("size", "factors"), SIZES)
def test_interpolation(
    size: list[int] | None, factors: list[float] | None, align_corners: bool, dtype: torch.dtype
) -> None:
    values = tensor((2, 3, 5, 6), dtype)
    bound = 32 * torch.finfo(dtype).eps
    arguments = (size, align_corners, factors)
    check("aten.upsample_bilinear2d.vec", values, *arguments, atol=bound)
    check("aten.upsample_bicubic2d.vec", values, *arguments, atol=bound)
    arguments = (size and size[:1], align_corners, factors and factors[:1])
    check("aten.upsample_linear1d.vec", values[0], *arguments, atol=bound)
    arguments = (size and [2, *size], align_corners, factors and [1.5, *factors])
    check("aten.upsample_trilinear3d.vec", values[None], *arguments, atol=bound)


@pytest.mark.parametrize("align_corners", [False, True])
def test_to_a_size_with_a_factor(align_corners: bool) -> None:
    values = tensor((2, 3, 5, 6))
    arguments = ([7, 3], align_corners, 1.5, 0.6)
    check("aten.upsample_bilinear2d.default", values, *arguments, atol=1e-5)
    check("aten.upsample_bicubic2d.default", values, *arguments, atol=1e-5)
    check("aten.upsample_linear1d.default", values[0], [7], align_corners, 1.5, atol=1e-5)
    arguments = ([3, 7, 3], align_corners, 2.0, 1.5, 0.6)
    check("aten.upsample_trilinear3d.default", values[None], *arguments, atol=1e-5)
    check("aten.upsample_nearest1d.default", values[0], [7], 1.5)
    check("aten.upsample_nearest2d.default", values, [7, 3], 1.5, 0.6)


@pytest.mark.parametrize("name", ["upsample_nearest", "_upsample_nearest_exact"])
def test_the_nearest_is_torchs_for_all_small_sizes(name: str) -> None:
    for size in range(1, 33):
        values = torch.arange(size, dtype=torch.float32).reshape(1, 1, size)
        for goal in range(1, 65):
            check(f"aten.{name}1d.vec", values, [goal], None)
        for factor in (1.1, 2.0, 2.7, 1 / 3, 0.3):
            if int(size * factor):
                check(f"aten.{name}1d.vec", values, None, [factor])


@pytest.mark.parametrize("name", ["upsample_nearest", "_upsample_nearest_exact"])
def test_the_nearest_on_more_axes(name: str) -> None:
    for size, factors in SIZES:
        check(f"aten.{name}2d.vec", tensor((2, 3, 5, 6)), size, factors)
        goal, scales = size and [2, *size], factors and [2.5, *factors]
        check(f"aten.{name}3d.vec", tensor((2, 3, 2, 5, 6)), goal, scales)


SCALES = (None, 0.7, 1.2, 2.1)


@pytest.mark.parametrize("name", [name for name in BACKWARD if "_aa" not in name])
def test_gradients_with_scales_at_all_small_sizes(name: str) -> None:
    rank = next(rank for rank in (1, 2, 3) if f"{rank}d" in name)
    corners = () if "nearest" in name else (False,)
    for size, goal, scale in itertools.product((1, 2, 3, 5), (1, 2, 3, 4, 6, 10), SCALES):
        for axis in range(rank):
            goals, sizes, scales = [3] * rank, [3] * rank, [None] * rank
            goals[axis], sizes[axis], scales[axis] = goal, size, scale
            gradient = tensor((1, 2, *goals))
            call = name, gradient, goals, [1, 2, *sizes], *corners, *scales
            check(*call, atol=1e-4)


@pytest.mark.parametrize("kind", ["bilinear", "bicubic"])
@pytest.mark.parametrize("align_corners", [False, True])
def test_antialiasing_leaves_out_an_axis_whose_size_stays(kind: str, align_corners: bool) -> None:
    name = f"aten._upsample_{kind}2d_aa"
    values = tensor((1, 2, 3, 4))
    for goal, scale in itertools.product(([3, 4], [5, 4], [3, 2]), SCALES):
        scales = [
            scale if size == count else None for size, count in zip((3, 4), goal, strict=True)
        ]
        check(f"{name}.default", values, goal, align_corners, *scales, atol=1e-4)
        gradient = tensor((1, 2, *goal))
        call = gradient, goal, [1, 2, 3, 4], align_corners, *scales
        check(f"{name}_backward.default", *call, atol=1e-4)
    for dtype in (torch.int32, torch.bool, torch.uint8):
        check(f"{name}.default", values.to(dtype), [3, 4], align_corners, 1.2, None)
    check(f"{name}.vec", values, None, align_corners, [1.2, 1.1], atol=1e-4)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize("mode", [0, 1, 2])
def test_sampling_at_points(
    mode: int, padding: int, align_corners: bool, dtype: torch.dtype
) -> None:
    bound = (64 if mode != 1 else 0) * torch.finfo(dtype).eps
    planes, points = tensor((2, 3, 5, 6), dtype), tensor((2, 4, 7, 2), dtype) * 1.3
    arguments = (mode, padding, align_corners)
    check("aten.grid_sampler_2d.default", planes, points, *arguments, atol=bound)
    check("aten.grid_sampler.default", planes, points, *arguments, atol=bound)
    if mode != 2:
        planes, points = tensor((2, 3, 5, 6, 2), dtype), tensor((2, 4, 7, 1, 3), dtype) * 1.3
        check("aten.grid_sampler_3d.default", planes, points, *arguments, atol=bound)


@pytest.mark.parametrize("align_corners", [False, True])
def test_affine_grids(align_corners: bool) -> None:
    operator = "aten.affine_grid_generator.default"
    check(operator, tensor((2, 2, 3)), [2, 3, 4, 5], align_corners, atol=1e-6)
    check(operator, tensor((2, 3, 4)), [2, 3, 4, 5, 1], align_corners, atol=1e-6)


def test_nan_and_infinity_reach_their_neighbors() -> None:
    values = tensor((1, 1, 4, 4))
    values[0, 0, 1, 1], values[0, 0, 3, 3] = math.nan, math.inf
    check("aten.upsample_bilinear2d.vec", values, [7, 7], False, None, atol=1e-5)


def test_what_torch_refuses() -> None:
    values = tensor((1, 2, 3, 3))
    operator = "aten.upsample_bilinear2d.vec"
    assert refused(operator, values, None, False, None) == (
        "one of output_size and scale_factors is to be given"
    )
    assert refused(operator, values, [2, 2], False, [2.0, 2.0]) == (
        "one of output_size and scale_factors is to be given"
    )
    assert refused(operator, values, [0, 2], False, None) == (
        "output_size [0, 2] has a number less than 1"
    )
    assert refused(operator, values[:, :0], [2, 2], False, None) == (
        "a tensor of shape [1, 0, 3, 3] is not [n, c, *sizes] of 2 sizes"
    )
    operator = "aten.grid_sampler_2d.default"
    points = tensor((1, 2, 2, 2))
    assert refused(operator, values, points.double(), 0, 0, False) == (
        "input float32 and grid float64 differ in dtype"
    )
    assert refused(operator, values, points[..., :1], 0, 0, False) == (
        "input [1, 2, 3, 3] and grid [1, 2, 2, 1] are not planes and points of 2 axes"
    )
    assert refused(operator, values[:, :, :0], points, 0, 0, False) == (
        "input [1, 2, 0, 3] and grid [1, 2, 2, 2] differ in batch, or there is nothing to sample"
    )


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize(
    ("name", "shape", "size"),
    [
        ("linear1d", (1, 8, 128), [1080]),
        ("bilinear2d", (1, 4, 97, 5), [1080, 9]),
        ("trilinear3d", (1, 2, 14, 9, 5), [60, 11, 13]),
    ],
)
def test_half_weights_are_1_less_the_other_as_rounded(dtype, name, shape, size):
    values = torch.randn(shape, generator=torch.Generator().manual_seed(3)).to(dtype)
    assert 0.2 < parts_of(f"aten.upsample_{name}.vec", values, size, True, None) <= 1


_RANKS = {"linear1d": 1, "bilinear2d": 2, "bicubic2d": 2, "trilinear3d": 3}
_LAST = {2: torch.channels_last, 3: torch.channels_last_3d}


@st.composite
def resamplings(draw: st.DrawFn) -> tuple[Any, ...]:
    """An overload and its operands: any rank, type, memory format, sizes or factors."""
    name = draw(st.sampled_from([*_RANKS]))
    rank = _RANKS[name]
    sizes = draw(st.lists(st.integers(1, (500, 60, 12)[rank - 1]), min_size=rank, max_size=rank))
    dtype = draw(st.sampled_from([*HALF, torch.float32, torch.float64]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    values = torch.randn(1, 3, *sizes, generator=generator) * 10 ** draw(st.floats(-3, 3))
    values = (values + draw(st.sampled_from([0, 100]))).to(dtype)
    if draw(st.booleans()) and rank > 1:
        values = values.contiguous(memory_format=_LAST[rank])
    factors = [draw(st.floats(max(0.4, 1.01 / size), 2.5)) for size in sizes]
    goal = [int(size * factor) for size, factor in zip(sizes, factors, strict=True)]
    by_factors = draw(st.booleans())
    size, scale = (None, factors) if by_factors else (goal, None)
    return f"aten.upsample_{name}.vec", values, size, draw(st.booleans()), scale


@settings(max_examples=150, deadline=None)
@given(resamplings())
def test_torchs_interpolation_is_within_its_bound(call: tuple[Any, ...]) -> None:
    assert parts_of(*call) <= 1


def test_torch_counts_elements_of_double_precision_in_single_precision() -> None:
    ramp = torch.arange(3000, dtype=torch.float64)[None, None]
    call = "aten.upsample_linear1d.vec", ramp, None, False, [1.4779651487630214]
    (meant,), (made,), _ = bounds_of(*call)
    assert np.abs(meant - made).max() > 1e-5  # at position 1689.99994 the element 1690
    assert parts_of(*call) <= 1


def test_points_that_torch_takes_from_behind_a_plane_are_open():
    def open_ones(size: int, padding: int) -> list[bool]:
        plane = np.zeros((1, 1, size, 3), ml_dtypes.bfloat16)
        points = np.array([[[[0.0, 1.2], [0.0, 0.5]]]], ml_dtypes.bfloat16)
        call = {
            "input": plane,
            "grid": points,
            "interpolation_mode": 1,
            "padding_mode": padding,
            "align_corners": True,
        }
        (error,) = bound("aten.grid_sampler_2d.default", call, [plane[:, :, :1, :2]]) or ()
        return np.isinf(error).ravel().tolist()

    assert [open_ones(1080, padding) for padding in range(3)] == [
        [False, False],
        [True, False],
        [True, True],
    ]
    assert open_ones(1081, 1) == open_ones(10, 2) == [False, False]
