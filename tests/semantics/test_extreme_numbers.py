"""Right kernels agree beside numbers that overflow, or are less than normal, on the way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from semantics.compare import check
from semantics.test_tolerance import bounds_of
from torch_ir.debug.reference.tolerance_check import within
from torch_ir.semantics.tolerance import subtracts

INF, NAN = float("inf"), float("nan")


def reasons(op_type: str, *call: Any, **how: Any) -> set[str]:
    """Why torch's results are not what a call means."""
    triples = zip(*bounds_of(op_type, *call, **how), strict=True)
    return {within(m, g, b, subtracts=subtracts(op_type)).reason for m, g, b in triples} - {""}


def drawn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("size", [2, 3, 5])
def test_gradients_of_windows_that_overlap_add_up_in_the_type(dtype: torch.dtype, size: int):
    values = drawn(1, 2, 12, 12, dtype=dtype)
    gradient = drawn(1, 2, 13 - size, 13 - size, dtype=dtype, seed=1)
    how = ([size, size], [1, 1], [0, 0], False, True, None)
    op_type = "aten.avg_pool2d_backward.default"
    assert not reasons(op_type, gradient, values, *how)
    (meant,), _, (allowed,) = bounds_of(op_type, gradient, values, *how)
    assert np.median(allowed) < 8 * torch.finfo(dtype).eps * np.abs(meant).max()


@pytest.mark.parametrize("value", [INF, NAN])
def test_of_points_outside_of_planes_gradients_that_are_not_finite_are_open(value: float):
    gradient, values = drawn(1, 2, 3, 3), drawn(1, 2, 4, 5)
    gradient[0, 1, 0, 0] = gradient[0, 0, 2, 1] = value
    grid = torch.full((1, 3, 3, 2), 4.0)
    call = (gradient, values, grid, 0, 0, False, [True, True])
    assert not reasons("aten.grid_sampler_2d_backward.default", *call)
    _, _, (_, allowed) = bounds_of("aten.grid_sampler_2d_backward.default", *call)
    assert np.isinf(allowed).all(-1).sum() == 2


def test_of_operands_less_than_normal_numbers_products_may_be_nothing():
    values, weight = drawn(2, 2, 4, dtype=torch.bfloat16), drawn(2, 2, 4, dtype=torch.bfloat16)
    values[:, 0], weight[:, 0] = 2.9e-39, 3.3e38
    how = (None, [1], [0], [1], False, [0], 1)
    assert not reasons("aten.convolution.default", values, weight, *how)
    _, _, (allowed,) = bounds_of("aten.convolution.default", values, weight, *how)
    assert (allowed > 0.9).all()
    _, _, (allowed,) = bounds_of("aten.convolution.default", values, weight.clamp(-2, 2), *how)
    assert (allowed < 0.1).all(), "of ordinary products no more than before"


def test_rows_that_overflow_on_the_way_through_cubic_weights_are_open_alone():
    values = drawn(1, 1, 8, 6, dtype=torch.float16)
    values[0, 0, 0] = torch.tensor([-1, 1, 1, 1, 1, -1]) * 65504.0
    (meant,), _, (allowed,) = bounds_of("aten.upsample_bicubic2d.default", values, [7, 4], True)
    assert np.isinf(allowed[0, 0, 1]).tolist() == [False, True, True, False]
    assert np.isfinite(meant[0, 0, 1]).all()
    assert np.isfinite(allowed[0, 0, -1]).all()
    assert not reasons("aten.upsample_bicubic2d.default", values, [7, 4], True)


LIGHT = ("sub.Tensor", "mul.Tensor", "div.Tensor", "atan2.default", "hypot.default", "lt.Tensor")


@pytest.mark.parametrize("name", [*LIGHT, "pow.Tensor_Tensor", "remainder.Tensor"])
@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_a_tensor_without_dimensions_may_be_rounded_to_a_half_type_first(
    name: str, half: torch.dtype
):
    heavy = drawn(40, dtype=half).abs() + 1
    for light in (torch.tensor(1.30078), torch.tensor(3.4028e38), torch.tensor(2e-42)):
        heavy[0] = light.to(half)
        for call in ((heavy, light), (light, heavy)):
            assert not reasons(f"aten.{name}", *call)


def test_and_that_is_all_that_it_may_be_off():
    heavy, light = drawn(40, dtype=torch.bfloat16), torch.tensor(1.30078)
    _, _, (allowed,) = bounds_of("aten.add.Tensor", heavy, light)
    _, _, (plain,) = bounds_of("aten.add.Tensor", heavy, light.bfloat16())
    assert np.median(allowed - plain) <= 2.0**-7
    _, _, (same,) = bounds_of("aten.add.Tensor", heavy, light.bfloat16().float())
    assert (same == plain).all()


def test_sums_that_overflow_in_a_half_type_on_the_way_are_open():
    gradient = torch.tensor([[[[-65504.0, -65504.0, 65504.0, 1.0]]]], dtype=torch.float16)
    values = torch.ones(1, 1, 1, 2, dtype=torch.float16)
    call = (gradient, values, [1, 1, 0, 0])
    assert not reasons("aten.replication_pad2d_backward.default", *call)
    gradient = torch.tensor([[[[1.0, -1.0, 65504.0, 1.0]]]], dtype=torch.float16)
    _, _, (allowed,) = bounds_of("aten.replication_pad2d_backward.default", gradient, *call[1:])
    assert np.isinf(allowed).tolist() == [[[[False, True]]]]


def test_a_complex_quotient_by_less_than_normal_numbers_is_open():
    first = torch.tensor([1 + 2j, 3 - 1j])
    small = torch.tensor([3e-40 - 1e-40j, 1 + 1j])
    _, _, (allowed,) = bounds_of("aten.addcdiv.default", first, small, small)
    assert np.isinf(allowed).tolist() == [True, False]


def test_running_statistics_of_half_types_are_rounded_before_they_are_mixed():
    op_type = "aten._native_batch_norm_legit_functional.default"
    for seed in range(40):
        values = drawn(5, 5, 5, dtype=torch.bfloat16, seed=seed) + 3
        running = -values.float().mean((0, 2)).bfloat16() * 1.01
        spread = values.float().var((0, 2)).bfloat16()
        call = (values, None, None, running, spread, True, 0.5, 0.6)
        assert not reasons(op_type, *call)


@pytest.mark.parametrize("divisor", [2, -3, None])
def test_means_of_extreme_integers_are_cut_toward_zero(divisor: int | None):
    info = torch.iinfo(torch.int64)
    values = torch.tensor([[[info.min, 5, 0, info.max, -7, 3, info.min, -1]]])[..., None, :]
    check("aten.avg_pool2d.default", values, [1, 2], [1, 1], [0, 0], False, True, divisor)
