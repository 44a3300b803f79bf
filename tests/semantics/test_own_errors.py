"""torch's own error is within the bound of its operator: random calls of a share of them."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from semantics.test_tolerance import bounds_of, parts_of

TOOLS = Path(__file__).parents[2] / "tools"
sys.path.insert(0, str(TOOLS))

from own_errors import of_operator  # noqa: E402  # the path comes first
from torch_ir.debug.fuzzing.random_programs import callable_operators  # noqa: E402  # as above
from torch_ir.debug.reference.tolerance_check import within  # noqa: E402  # as above

HALF = ("float16", "bfloat16")
MENDED = (
    "aten._cdist_forward.default",
    "aten._fake_quantize_learnable_per_tensor_affine.default",
    "aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default",
    "aten._fft_c2c.default",
    "aten._fft_c2r.default",
    "aten._fft_r2c.default",
    "aten._upsample_bicubic2d_aa.default",
    "aten.convolution.default",
    "aten.isclose.default",
    "aten.lerp.Scalar",
    "aten.lerp.Tensor",
    "aten.logsumexp.default",
    "aten.nll_loss2d.default",
    "aten.rrelu_with_noise_backward.default",
    "aten.upsample_bicubic2d.default",
)
"""What random calls once showed to be out of its bound, or to raise."""


INFINITE = (
    "aten._adaptive_avg_pool3d.default",
    "aten._fake_quantize_learnable_per_tensor_affine.default",
    "aten._linalg_det.default",
    "aten._linalg_slogdet.default",
    "aten._scaled_dot_product_attention_math.default",
    "aten._scaled_dot_product_flash_attention_for_cpu.default",
    "aten._trilinear.default",
    "aten.avg_pool3d.default",
    "aten.conv1d.default",
    "aten.conv3d.default",
    "aten.conv_transpose2d.input",
    "aten.convolution.default",
    "aten.convolution_backward.default",
    "aten.fmod.Tensor",
    "aten.grid_sampler_2d.default",
    "aten.grid_sampler_2d_backward.default",
    "aten.grid_sampler_3d_backward.default",
    "aten.hardswish.default",
    "aten.index_reduce.default",
    "aten.linalg_lu.default",
    "aten.linalg_lu_factor_ex.default",
    "aten.mode.default",
    "aten.remainder.Tensor",
    "aten.round.decimals",
    "aten.scatter_reduce.two",
    "aten.scaled_dot_product_attention.default",
    "aten.sinc.default",
    "aten.upsample_bicubic2d_backward.default",
    "aten.upsample_linear1d_backward.default",
    "aten.upsample_trilinear3d_backward.default",
)
"""What was, where NaN, infinities and numbers near the largest are among the operands."""


@pytest.mark.parametrize("op_type", INFINITE)
def test_what_was_out_of_its_bound_beside_infinities_is_not(op_type: str) -> None:
    count, found = of_operator(
        op_type,
        dtypes=("float32", "float64", "bfloat16"),
        seeds=range(2),
        sizes=["small"],
        operands=["special"],
    )
    assert found == []
    assert count


def test_own_errors_are_within_their_bounds():
    names = callable_operators()
    assert len(names) > 600
    total = 0
    for op_type in names[::12]:
        count, found = of_operator(
            op_type,
            dtypes=("float32", *HALF),
            seeds=[0],
            sizes=["small"],
            operands=["as drawn", "transposed"],
        )
        assert found == []
        total += count
    assert total > 150


@pytest.mark.parametrize("op_type", MENDED)
def test_what_was_out_of_its_bound_is_not(op_type: str) -> None:
    dtypes = ("complex64",) if "_fft_c2" in op_type else ("float32", *HALF)
    count, found = of_operator(
        op_type,
        dtypes=dtypes,
        seeds=range(2),
        operands=["as drawn", "large", "small"],
    )
    assert count
    assert found == []


@pytest.mark.parametrize(
    ("op_type", "dtype", "operands"),
    [
        ("aten._fake_quantize_learnable_per_channel_affine.default", "float32", "special"),
        ("aten.conv1d.padding", "bfloat16", "special"),
        ("aten.conv_transpose2d.input", "complex64", "special"),
        ("aten.div.Tensor_mode", "bfloat16", "as drawn"),
        ("aten.elu.default", "float32", "as drawn"),
        ("aten.conv_tbc.default", "int64", "as drawn"),
        ("aten.grid_sampler_2d_backward.default", "int64", "as drawn"),
        ("aten.grid_sampler_2d_backward.default", "complex64", "as drawn"),
        ("aten.grid_sampler_3d_backward.default", "float32", "mostly equal"),
        ("aten.grid_sampler_3d_backward.default", "bfloat16", "mostly equal"),
        ("aten.histc.default", "float16", "large"),
        ("aten.histc.default", "bfloat16", "large"),
        ("aten.index_reduce.default", "complex64", "as drawn"),
        ("aten.nansum.default", "float16", "special"),
        ("aten.native_group_norm_backward.default", "float64", "special"),
        ("aten.polygamma.default", "float16", "far from zero"),
        ("aten.scaled_dot_product_attention.default", "int64", "as drawn"),
    ],
)
def test_rare_types_and_operands_are_within_their_bounds(
    op_type: str, dtype: str, operands: str
) -> None:
    count, found = of_operator(op_type, dtypes=[dtype], seeds=range(8), operands=[operands])
    assert count
    assert found == []


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_bounds_of_what_kernels_round_on_the_way_are_met_near_them(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(64, 200, generator=generator) * 4
    assert 0.2 < parts_of("aten.logsumexp.default", rows.to(dtype), [1]) <= 1
    first, second, weight = (torch.randn(64, 64, generator=generator) for _ in range(3))
    assert 0.2 < parts_of("aten.lerp.Tensor", first, second, weight) <= 1


def test_what_is_close_is_open_only_by_the_limit() -> None:
    op_type = "aten.isclose.default"
    first = torch.tensor([1.0, 1.0, 1.0]).half()
    second = torch.tensor([1.0, 1.25, 1.5]).half()
    _, _, (allowed,) = bounds_of(op_type, first, second, 0.2, 0.0)
    assert allowed.tolist() == [0, float("inf"), 0]


@pytest.mark.parametrize("shift", [0, 1, 300])
def test_a_variance_is_bounded_as_kernels_in_one_pass_and_in_two_are_off(shift: int) -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(400, 30, generator=generator, dtype=torch.float64) + shift
    for values in (rows, rows.sort(0).values):  # float64 in one pass, at its worst
        assert 0.0001 < parts_of("aten.var.correction", values, [0]) <= 1
    _, _, (allowed,) = bounds_of("aten.var.correction", rows.float(), [0])
    values = rows.float().numpy()
    exact = values.astype("float64").var(0, ddof=1)
    centered = values - values.mean(0, dtype="float32")
    passes = (centered**2).sum(0, dtype="float32") / np.float32(399)
    assert (np.abs(passes - exact) <= allowed).all()
    if shift < 2:
        assert (allowed < 16 * 2.0**-23 * exact).all()


@pytest.mark.parametrize(("size", "goal"), [(4, 3), (5, 3), (7, 40)])
def test_cubic_weights_are_off_by_what_their_terms_cancel(size: int, goal: int) -> None:
    generator = torch.Generator().manual_seed(0)
    planes = torch.rand(9, 2, size, size, generator=generator) + 100
    part = parts_of("aten.upsample_bicubic2d.vec", planes, [goal, goal], False, None)
    assert 0.05 < part <= 1


@pytest.mark.parametrize(
    ("name", "reach"),
    [
        ("mish", 120),
        ("softplus", 120),
        ("digamma", 9.99),
        ("special_i1", 80),
        ("special_i1e", 120),
    ],
)
def test_functions_are_within_their_bounds_from_end_to_end(name: str, reach: float) -> None:
    values = torch.linspace(-reach, reach, 9600)
    assert parts_of(f"aten.{name}.default", values) <= 1


@pytest.mark.parametrize("name", ["i0", "special_i1", "special_modified_bessel_k0", "softplus"])
def test_functions_far_from_zero_have_bounds_by_their_last_places(name: str) -> None:
    values = torch.linspace(30, 80, 100, dtype=torch.float64)
    (meant,), _, (limits,) = bounds_of(f"aten.{name}.default", values)
    assert (limits < 20 * np.finfo("float64").eps * abs(meant)).all()


def test_the_reflected_digamma_is_bounded_by_its_angle() -> None:
    (meant,), _, (limits,) = bounds_of("aten.digamma.default", torch.tensor([-1e-3, -1e-6, -1e-9]))
    assert (limits < 8 * np.finfo("float32").eps * abs(meant)).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("divisor", [7.1, [7.1] * 96])
def test_a_quotient_that_is_cut_off_is_one_of_two(dtype: torch.dtype, divisor: Any) -> None:
    values = (torch.arange(96) * 7.1).to(dtype)  # quotients round up to a whole number
    op_type, by = "aten.div.Tensor_mode", torch.tensor(divisor, dtype=dtype)
    meant, made, limits = bounds_of(op_type, values, by, rounding_mode="trunc")
    assert not within(meant[0], made[0], limits[0]).reason
    assert 0 < (limits[0] >= 1).sum() < 96
    assert limits[0].max() < 2


@pytest.mark.parametrize(
    ("op_type", "more"), [("aten.elu.default", (1.0, 1.0, -3.0)), ("aten.celu.default", (-0.3,))]
)
def test_a_power_is_off_by_its_exponent(op_type: str, more: tuple[float, ...]) -> None:
    part = parts_of(op_type, torch.linspace(-25, -1, 9600), *more)
    assert 0.05 < part <= 1


def test_channels_that_come_last_of_lines_are_added_step_by_step():
    """torch has channels last for images and volumes alone; seed 9000 draws one line."""
    count, found = of_operator(
        "aten.batch_norm.default",
        dtypes=["float16", "bfloat16"],
        seeds=range(9000, 9004),
        sizes=["large"],
        operands=["transposed"],
    )
    assert count >= 4
    assert not found
