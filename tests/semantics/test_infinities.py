"""Infinities and NaN: no bound opens what is the value itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch

import torch_ir
from semantics.compare import as_numpy, denoted, operator
from semantics.test_tolerance import HALF, bounds_of
from torch_ir.debug.reference.tolerance_check import within
from torch_ir.executor import unregister_executor
from torch_ir.semantics import denotes
from torch_ir.semantics.chain import bounded
from torch_ir.semantics.tolerance import bound, subtracts

FLASH = "_scaled_dot_product_flash_attention_for_cpu"
INF = float("inf")
INFINITE: dict[str, Any] = {
    "aten.log.default": ([0.0, 1.0],),
    "aten.log1p.default": ([-1.0, 1.0],),
    "aten.rsqrt.default": ([0.0, 1.0],),
    "aten.reciprocal.default": ([-0.0, 1.0],),
    "aten.div.Tensor": ([1.0, -2.0], [0.0, 0.0]),
    "aten.exp.default": ([1e3, 0.0],),
    "aten.sinh.default": ([-1e3, 0.0],),
    "aten.pow.Tensor_Scalar": ([0.0, 1.0], -2),
    "aten.mul.Tensor": ([INF, 1.0], [2.0, 2.0]),
    "aten.add.Tensor": ([1.0, 2.0], [-INF, 0.0]),
    "aten.addcdiv.default": ([1.0, 2.0], [1.0, 1.0], [0.0, 1.0]),
    "aten.lerp.Scalar": ([INF, 1.0], [1.0, 2.0], 0.25),
    "aten.sum.dim_IntList": ([[1.0, -INF], [1.0, 2.0]], [1]),
    "aten.cumsum.default": ([1.0, INF], 0),
    "aten.mm.default": ([[1.0, INF], [1.0, 2.0]], [[1.0], [1.0]]),
    "aten.var.correction": ([[1.0, INF], [1.0, 2.0]], [1]),
    "aten.logsumexp.default": ([[-INF, -INF], [1.0, 2.0]], [1]),
    "aten._log_softmax.default": ([[-INF, 0.0], [1.0, 2.0]], 1, False),
    "aten.gelu.default": ([INF, 1.0],),
    "aten.softplus.default": ([INF, 1.0],),
    "aten.lgamma.default": ([0.0, 3.0],),
    "aten.scalar_tensor.default": (-INF,),
    "aten.full.default": ([2], -INF),
    "aten.linalg_vector_norm.default": ([[1.0, INF], [1.0, 2.0]], 2, [1]),
    "aten.masked_fill.Scalar": ([1.0, 2.0], torch.tensor([True, False]), -INF),
    "aten.where.self": (torch.tensor([True, False]), [-INF, 1.0], [1.0, 2.0]),
}


NAN = float("nan")
LARGEST, LEAST = float(np.finfo("float64").max), float(np.finfo("float64").smallest_subnormal)
NEAR_THE_LARGEST: dict[str, tuple[Any, ...]] = {
    "aten.addcmul.default": ([-LARGEST, 1.0], [1.5e308, 2.0], [1.9, 2.0]),
    "aten.addcdiv.default": ([-INF, 3.0], [-LARGEST, 5e-324], [INF, 2e-323], 3.14),
    "aten.addmm.default": ([[0.0]], [[1e154, 1e154]], [[1e154], [1e154]], 0.2, 0.6),
    "aten.lerp.Scalar": ([-LARGEST], [LARGEST / 2], 0.4),
    "aten.lgamma.default": ([LARGEST, 1e306],),
    "aten.special_zeta.default": (
        [INF, INF, 1.9, 2.5, NAN, NAN, 3.0, 4.0],
        [-0.5, 3.0, LARGEST, INF, 0.0, 1.5, -INF, -2e5 - 0.25],
    ),
    "aten.polygamma.default": (2, [LARGEST, INF, -INF, -0.0, -3.5, LEAST]),
    "aten.special_ndtri.default": ([LEAST, 1e-310, 1e-270, 1e-200, 0.01],),
    "aten.igamma.default": (
        [LARGEST, 1e200, 3e8, 3e8, 3 * LEAST, INF, NAN, NAN, NAN],
        [1e154, 2e200, 3.0001e8, 2.9999e8, 1.0, NAN, 0.0, INF, 1.0],
    ),
    "aten.igammac.default": (
        [LARGEST, 1e200, 3e8, 1e154, INF, NAN, NAN],
        [1e154, 2e200, 3.0001e8, 1e154, NAN, 0.0, INF],
    ),
    "aten.linalg_matrix_exp.default": ([[LARGEST, LARGEST], [0.0, LARGEST]],),
    "aten.native_group_norm.default": ([[[LARGEST, LARGEST]]], None, None, 1, 1, 2, 1, 1e-5),
    "aten._native_batch_norm_legit_no_training.default": (
        *([[-LARGEST]], [2.0], [1.0], [LARGEST], [1.0]),
        *(0.1, 1e-5),
    ),
} | {
    f"aten.special_{name}.default": ([LARGEST, 1e301, 1e-200, 1e-310, 3 * LEAST, LEAST],)
    for name in (
        *("i0e", "i1e", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1"),
        *("modified_bessel_k0", "modified_bessel_k1"),
        *("scaled_modified_bessel_k0", "scaled_modified_bessel_k1"),
    )
}


@pytest.mark.parametrize("op_type", NEAR_THE_LARGEST)
def test_right_kernels_agree_near_the_largest_numbers(op_type: str) -> None:
    call = [
        torch.tensor(value, dtype=torch.float64) if isinstance(value, list) else value
        for value in NEAR_THE_LARGEST[op_type]
    ]
    schema = operator(op_type)._schema.arguments
    names = [a.name for a in schema if not a.kwarg_only]
    named = [a.name for a in schema if a.kwarg_only]
    more = dict(zip(named, call[len(names) :], strict=False))
    meant, got, allowed = bounds_of(op_type, *call[: len(names)], **more)
    for mine, theirs, error in zip(meant, got, allowed, strict=True):
        assert within(mine, theirs, error, subtracts=subtracts(op_type)).reason == ""


def _call(op_type: str, dtype: torch.dtype) -> list[Any]:
    schema = [a.type.kind() for a in operator(op_type)._schema.arguments]
    pairs = zip(INFINITE[op_type], schema, strict=False)
    return [
        torch.tensor(value, dtype=dtype)
        if kind == "TensorType" and isinstance(value, list)
        else value
        for value, kind in pairs
    ]


def test_padding_times_an_infinite_weight_alone_is_open():
    images, weight = torch.ones(1, 1, 4, 4), torch.ones(1, 1, 3, 3)
    weight[0, 0, 0, 0] = INF
    _, _, (allowed,) = bounds_of("aten.conv2d.default", images, weight, None, [1, 1], [1, 1])
    places = np.zeros((4, 4), bool)
    places[0], places[:, 0] = True, True
    assert (np.isinf(allowed[0, 0]) == places).all(), "where the weight meets padding"
    images[0, 0, 2, 2] = INF
    ones = torch.ones(1, 1, 3, 3)
    call = (images, ones, None, [1, 1], [1, 1])
    _, _, (allowed,) = bounds_of("aten.conv2d.default", *call)
    assert np.isfinite(allowed).all(), "what is infinite in an image is so in all that it meets"
    call = (images.bfloat16(), ones.bfloat16(), None, [1, 1], [1, 1])
    _, _, (allowed,) = bounds_of("aten.conv2d.default", *call)
    assert np.isfinite(allowed[0, 0, 0]).all(), "in pairs of places, in those beside it"
    assert np.isinf(allowed[0, 0, 2, 0])


def test_zeros_between_transposed_images_times_an_infinite_weight_are_open():
    weight = torch.ones(1, 2, 2, 2)
    weight[0, 1, 0, 0] = INF
    call = (torch.ones(1, 1, 3, 3), weight, None, [2, 2])
    _, _, (allowed,) = bounds_of("aten.conv_transpose2d.input", *call)
    assert np.isfinite(allowed[0, 0]).all()
    assert np.isinf(allowed[0, 1]).all()


@pytest.mark.parametrize("name", ["scaled_dot_product_attention", FLASH])
def test_a_row_with_a_score_that_is_no_number_is_open_alone(name: str) -> None:
    query = torch.randn(1, 2, 3, 4, generator=torch.Generator().manual_seed(0))
    query[0, 1, 2, 0] = float("nan")
    _, _, (allowed, *_) = bounds_of(f"aten.{name}.default", query, query + 0.5, query)
    rows = np.isinf(allowed).all(-1)[0]
    assert rows.tolist() == [[False] * 3, [True] * 3], "a key that is no number is in each row"
    assert np.isfinite(allowed[0, 0]).all()


@pytest.mark.parametrize("zero", [torch.tensor([3, 4]).int(), torch.tensor([0.5, 4.0])])
@pytest.mark.parametrize("name", ["", "_cachemask"])
def test_by_channels_the_code_of_what_is_not_finite_is_open(name: str, zero: torch.Tensor) -> None:
    given = torch.tensor([[float("nan"), 1.0], [2.0, INF]]), torch.tensor([0.1, 0.2]), zero
    op_type = f"aten.fake_quantize_per_channel_affine{name}.default"
    _, _, bounds = bounds_of(op_type, *given, 0, -8, 7)
    for allowed in bounds:
        assert np.isinf(allowed).tolist() == [[True, False], [False, True]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *HALF])
@pytest.mark.parametrize("op_type", INFINITE)
def test_an_infinity_is_no_number_and_not_the_other(op_type: str, dtype: torch.dtype) -> None:
    kwargs = (
        {"dtype": dtype} if op_type in ("aten.scalar_tensor.default", "aten.full.default") else {}
    )
    meant = denoted(op_type, *_call(op_type, dtype), **kwargs)
    meant = meant[0] if isinstance(meant, tuple) else meant
    _, got, (allowed, *_) = bounds_of(op_type, *_call(op_type, dtype), **kwargs)
    lost = ~np.isfinite(meant.astype("float64"))
    assert lost.any()
    assert np.isfinite(allowed).all()
    assert not within(meant, got[0].astype(meant.dtype), allowed).reason
    largest = float(torch.finfo(dtype).max)
    others = (0.0, largest, -largest, *({INF, -INF} - set(meant[lost].tolist())))
    is_nan = subtracts(op_type) or np.isnan(meant[lost].astype("float64")).any()
    for wrong in (*others, *([] if is_nan else [float("nan")])):
        found = np.where(lost, wrong, meant).astype(meant.dtype)
        assert within(meant, found, allowed, subtracts=subtracts(op_type)).reason, wrong


def test_a_number_that_overflows_opens_no_other_element() -> None:
    z = torch.tensor([1e30 + 0j, 1 + 1j, complex(INF, 0)], dtype=torch.complex64)
    rows = torch.tensor([[1e30, 1.0], [1.0, 2.0]])
    for op_type, *given in [
        ("aten.square.default", z),
        ("aten.mul.Tensor", z, z),
        ("aten.exp.default", z),
        ("aten.linalg_vector_norm.default", rows, 2, [1]),
    ]:
        _, _, (allowed, *_) = bounds_of(op_type, *given)
        assert allowed[1] < 1e-4, op_type


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("factor", [0.9, 1.01])
def test_within_rounding_of_the_largest_number_overflow_is_open(
    dtype: torch.dtype, factor: float
) -> None:
    largest = torch.tensor([torch.finfo(dtype).max], dtype=dtype)
    half = largest.double() * torch.finfo(dtype).eps / 4  # half a unit, from where it rounds up
    rows = torch.stack([largest, (half * factor).to(dtype)], dim=1)
    meant = denoted("aten.sum.dim_IntList", rows, [1])
    assert np.isinf(meant.astype("float64")).all() == (factor > 1)
    _, _, (allowed,) = bounds_of("aten.sum.dim_IntList", rows, [1])
    for right in (largest, largest * INF):
        assert not within(meant, as_numpy(right), allowed).reason
    for wrong in (largest * 0.9, -largest, -largest * INF):
        assert within(meant, as_numpy(wrong), allowed).reason


def test_beyond_rounding_it_is_not() -> None:
    rows = torch.tensor([[65504.0, 100.0]], dtype=torch.float16)
    meant = denoted("aten.sum.dim_IntList", rows, [1])
    _, _, (allowed,) = bounds_of("aten.sum.dim_IntList", rows, [1])
    assert np.isinf(meant).all()
    assert within(meant, np.float16([65504.0]), allowed).reason


def test_complex_infinities_may_be_any_that_is_not_finite() -> None:
    x = torch.tensor([0j, 1 + 1j], dtype=torch.complex64)
    meant = denoted("aten.log.default", x)
    (allowed,) = bound("aten.log.default", {"self": as_numpy(x)}, [meant]) or []
    other, wrong = meant.copy(), meant.copy()
    other[0], wrong[0] = complex(INF, float("nan")), -1e30
    assert not within(meant, other, allowed).reason
    assert within(meant, wrong, allowed).reason


def test_of_an_infinite_line_no_frequency_is_a_number() -> None:
    x = torch.tensor([1.0, INF, 2.0, 3.0])
    meant = denoted("aten._fft_r2c.default", x, [0], 0, True)
    arguments = {"self": as_numpy(x), "dim": [0], "normalization": 0, "onesided": True}
    (allowed,) = bound("aten._fft_r2c.default", arguments, [meant]) or []
    got = as_numpy(torch.ops.aten._fft_r2c.default(x, [0], 0, True))
    assert not within(meant, got, allowed).reason
    assert within(meant, np.zeros_like(meant), allowed).reason


def test_a_stated_tolerance_opens_no_infinity() -> None:
    def own(arguments: Mapping[str, Any], results: Sequence[Any]) -> list[Any]:
        return [1e-3 * np.abs(arguments["x"])]

    denotes("tolerancetest.stated.default", tolerance=own)(lambda x: x)
    x = np.array([INF, 2.0], "f4")
    (allowed,) = bound("tolerancetest.stated.default", {"x": x}, [x]) or []
    assert within(x, np.float32([1.0, 2.0]), allowed).reason
    assert not within(x, np.float32([INF, 2.001]), allowed).reason


# -- programs -------------------------------------------------------------------------------------


def test_an_infinite_mask_is_closed_at_the_end_of_a_chain() -> None:
    ir = torch_ir.parse("""ir "Masked" {
      input %x: f32[2, 2]
      input %m: f32[2, 2]
      %a: f32[2, 2] = aten.mm.default(%x, %x)
      %b: f32[2, 2] = aten.add.Tensor(%a, %m)
      %c: f32[2, 2] = aten.mm.default(%b, %x)
      return %b, %c
    }""")
    x, m = np.float32([[0.3, 1], [2, 0.7]]), np.float32([[0, -INF], [0, 0]])
    made, errors = bounded(ir, {"x": x, "m": m}, {})
    for name in ("b", "c"):
        assert np.isneginf(made[name]).any()
        assert np.isfinite(errors[name]).all()
        assert within(made[name], np.nan_to_num(made[name]), errors[name]).reason


@pytest.mark.parametrize("name", ["log", "reciprocal", "rsqrt"])
def test_validate_finds_a_kernel_that_saturates(name: str) -> None:
    op_type = f"aten.{name}.default"
    ir = torch_ir.parse(
        f'ir "One" {{\ninput %x: f32[2]\n%y: f32[2] = {op_type}(%x)\nreturn %y\n}}'
    )
    x = torch.tensor([0.0, 2.0])
    assert torch_ir.validate(ir, {}, (x,)).is_valid
    right = operator(op_type)
    register = torch_ir.register_executor(op_type)
    register(lambda inputs, attrs: [right(inputs[0]).nan_to_num()])
    try:
        assert not torch_ir.validate(ir, {}, (x,), against=("denotation",)).is_valid
    finally:
        unregister_executor(op_type)


@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("padding", [0, 1, 2])
def test_a_coordinate_that_is_no_number_opens_its_point_alone(
    rank: int, mode: int, padding: int
) -> None:
    if (rank, mode) == (3, 2):
        return
    generator = torch.Generator().manual_seed(0)
    planes = torch.randn([1, 2, *[4] * rank], generator=generator)
    points = torch.randn([1, *[3] * rank, rank], generator=generator)
    points.view(-1)[rank + 1 :: 3 * rank] = float("nan")
    arguments = (planes, points, mode, padding, True)
    op_type = f"aten.grid_sampler_{rank}d.default"
    (meant,), (made,), (limits,) = bounds_of(op_type, *arguments)
    lost = np.isnan(points.numpy()).any(-1)[:, None]
    assert (np.isinf(limits) == lost).all()
    assert not within(meant, made, limits).reason


@pytest.mark.parametrize(
    "op_type",
    [
        "aten._adaptive_avg_pool2d_backward.default",
        "aten._adaptive_avg_pool3d_backward.default",
        "aten._upsample_nearest_exact2d_backward.default",
        "aten.upsample_bilinear2d_backward.default",
        "aten.upsample_bicubic2d_backward.default",
        "aten._upsample_bilinear2d_aa_backward.default",
    ],
)
def test_an_infinite_gradient_stays_where_its_weights_are(op_type: str) -> None:
    rank = 3 if "3d" in op_type else 2
    gradient = torch.ones([1, 1, *[3] * rank])
    gradient[(0, 0, *[1] * rank)] = INF
    sizes = [1, 1, *[11] * rank]
    more: list[Any] = [False] if "linear" in op_type or "cubic" in op_type else []
    rest = [torch.zeros(sizes)] if "pool" in op_type else [[3] * rank, sizes, *more]
    (meant,), (made,), (limits,) = bounds_of(op_type, gradient, *rest)
    assert np.isinf(meant).any()
    assert np.isfinite(meant[0, 0, 0]).any()
    assert not within(meant, made, limits).reason


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *HALF])
@pytest.mark.parametrize("name", ["_softmax", "_log_softmax"])
def test_of_a_softmax_that_is_not_finite_the_gradient_is(name: str, dtype: torch.dtype) -> None:
    op_type = f"aten.{name}_backward_data.default"
    gradient = torch.tensor([[1.0, -2.0, 3.0], [1.0, 1.0, 1.0]], dtype=dtype)
    for values in ([INF, 0.5, 0.25], [NAN, 0.5, 0.25], [-INF, 0.5, 0.25], [1e4, -1e4, 0.0]):
        made = torch.tensor([values, [0.25, 0.5, 0.25]], dtype=dtype)
        meant, got, allowed = bounds_of(op_type, gradient, made, 1, dtype)
        assert not within(meant[0], got[0], allowed[0]).reason
        assert np.isfinite(allowed[0][1]).all(), "the other row is closed"
        assert within(meant[0][1], got[0][1] + 0.1, allowed[0][1]).reason


def test_a_pole_is_open_and_an_infinite_phase() -> None:
    for op_type, arguments in (
        ("aten.polygamma.default", (1, torch.tensor([-1.0, 0.5]))),
        ("aten.special_bessel_j0.default", (torch.tensor([INF, 0.5]),)),
    ):
        _, _, (limits,) = bounds_of(op_type, *arguments)
        assert np.isinf(limits).tolist() == [True, False]


def test_what_adds_up_in_a_narrow_type_may_overflow_in_it() -> None:
    values = torch.full([1, 1, 1, 1, 6], 3e4, dtype=torch.float16)
    op_type = "aten._adaptive_avg_pool3d.default"
    (meant,), (made,), (limits,) = bounds_of(op_type, values, [1, 1, 2])
    assert not within(meant, made, limits).reason


LARGE = float(np.finfo("float32").max)
RIGHT: dict[str, tuple[Any, ...]] = {
    "aten.grid_sampler_2d.default": (
        torch.ones(1, 1, 5, 5),
        torch.tensor([LARGE, 0.0, 0.5, 0.5]).reshape(1, 1, 2, 2),
        *(0, 0, False),
    ),
    "aten.upsample_bicubic2d.default": (
        torch.tensor([[LARGE, -LARGE, LARGE, 1.0]] + [[1.0] * 4] * 3).reshape(1, 1, 4, 4),
        *([5, 6], True),
    ),
    "aten.upsample_bicubic2d.vec": (
        torch.tensor(
            [[LARGEST, -LARGEST, LARGEST, INF]] + [[1.0, -INF, 1.0, 1.0]] * 3, dtype=torch.float64
        ).reshape(1, 1, 4, 4),
        *([5, 5], True, None),
    ),
    "aten.native_batch_norm.default": (
        *(torch.tensor([[1e-40], [-1e-40]]), torch.tensor([LARGE]), torch.tensor([0.5])),
        *(None, None, True, 0.1, 1e-5),
    ),
    "aten._trilinear.default": (
        *(torch.full((2, 1), 3e4).half(), torch.full((2, 1), 3e4).half()),
        *(torch.full((2, 1), 1e-4).half(), [], [], [], [1], 1),
    ),
    "aten._trilinear.default ": (
        *(torch.full((2, 1), 3), torch.full((2, 1), 3), torch.full((2, 1), 2)),
        *([], [], [], [1], 1),
    ),
    "aten._linalg_det.default": (torch.diag(torch.tensor([1e30, 1e30, 1e-40])),),
    "aten.linalg_lu_factor_ex.default": (
        torch.tensor([[1.0, LARGE, 2.0], [0.9, -LARGE, 1.0], [0.5, LARGE, 3.0]]),
    ),
    "aten.linalg_lu_solve.default": (
        *(torch.tensor([[1e-38, 0.5], [0.25, 2.0]]), torch.tensor([1, 2], dtype=torch.int32)),
        torch.tensor([[5.0, 1.0], [1e-3, 1e-40]]),
    ),
    "aten.linalg_cholesky_ex.default": (
        torch.tensor([[INF, 0.5, NAN], [0.5, 2.0, 1.0], [1.0, 1.0, 3.0]]),
    ),
    "aten.bucketize.Tensor": (torch.tensor([2.0, 3.0]), torch.tensor([1.0, NAN, 2.5, 4.0])),
    "aten.searchsorted.Tensor": (
        torch.tensor([[1.0, NAN, 2.5, 4.0], [1.0, 2.0, 3.0, 4.0]]),
        torch.tensor([[2.0], [3.0]]),
    ),
    "aten.mode.default": (torch.tensor([[NAN, INF, NAN, 1.0, INF], [1.0, 2.0, 1.0, 2.0, 2.0]]),),
    "aten._fft_c2r.default": (
        torch.tensor([[INF, 1, NAN, 2, -INF], [1, 2, 3, 4, 5]], dtype=torch.complex64),
        *([1], 2, 8),
    ),
    "aten.triangular_solve.default": (
        torch.tensor([[1.0], [2.0], [3.0]]),
        torch.tensor([[NAN, 1.0, 1.0], [0.0, 3.0, 0.7], [0.0, 0.0, 7.0]]),
    ),
    "aten.index_reduce.default": (
        torch.tensor([6e4, 6.0], dtype=torch.float16),
        *(0, torch.tensor([0, 0]), torch.tensor([6e4, 6e4], dtype=torch.float16), "mean"),
    ),
} | {
    f"aten.special_{name}.default": (
        torch.tensor([NAN, NAN, NAN, 0.5, 0.5]),
        torch.tensor([0.0, 1.0, 3.0, LARGE, INF]),
    )
    for name in ("chebyshev_polynomial_u", "hermite_polynomial_h", "legendre_polynomial_p")
}
OPEN = {
    "aten.special_legendre_polynomial_p.default": [False, False, True, False, False],
    "aten.bucketize.Tensor": [True, True],
    "aten.searchsorted.Tensor": [[True], [False]],
    "aten.mode.default": [True, False],
    "aten._fft_c2r.default": [[True] * 8, [False] * 8],
    "aten.triangular_solve.default": [[False], [False], [False]],
    "aten.grid_sampler_2d.default": [[[[True, False]]]],
    "aten.index_reduce.default": [True, False],
}


@pytest.mark.parametrize("op_type", RIGHT)
def test_right_kernels_are_right_beside_what_is_not_finite_or_large(op_type: str) -> None:
    meant, made, limits = bounds_of(op_type.strip(), *RIGHT[op_type])
    for first, second, allowed in zip(meant, made, limits, strict=True):
        assert not within(first, second, allowed).reason
    if op_type in OPEN:
        assert np.isinf(limits[0]).tolist() == OPEN[op_type]


def test_a_rule_that_overflows_itself_knows_nothing() -> None:
    values = torch.ones(1, 1, 4, 5, dtype=torch.float64)
    values[0, 0, 2] = LARGEST
    values[0, 0, 3] = -LARGEST
    meant, made, limits = bounds_of("aten.upsample_bilinear2d.default", values, [5, 6], False)
    assert not within(meant[0], made[0], limits[0]).reason
    assert np.isfinite(limits[0][0, 0, 0]).all()


M = float(np.finfo("float32").max)
OVERFLOWING: dict[str, tuple[Any, ...]] = {
    "aten.sgn.default": (torch.tensor([1e-39 + 1e-39j, 3.0 + 4.0j]),),
    "aten.div.Tensor": (torch.tensor([1 + 2j, 3 + 1j]), torch.tensor([1e-39, 2.0])),
    "aten.pow.Tensor_Scalar": (torch.tensor([complex(INF, 1.0), 3 + 4j]), -1.0),
    "aten.triangular_solve.default": (
        torch.tensor([[M, 1.0], [M, 2.0]]),
        torch.tensor([[0.5, 2.0], [0.0, 0.25]]),
    ),
    "aten.dist.default": (torch.full((3,), 1 + 2j), torch.full((3,), complex(INF, INF))),
    "aten.norm.ScalarOpt_dim": (torch.tensor([[M, -M], [1.0, 2.0]]), -2, [1]),
    "aten.index_reduce.default": (
        torch.tensor([2.0**-17, 1.0], dtype=torch.float16),
        *(0, torch.tensor([0, 0, 1]), torch.tensor([0.3, 9.7, 3.0], dtype=torch.float16), "prod"),
    ),
    "aten.special_hermite_polynomial_he.default": (torch.tensor([0.0, 1.0]), torch.tensor(127)),
    "aten._cdist_backward.default": (
        torch.full((2, 2), INF),
        *(torch.ones(2, 3), torch.ones(2, 3), 0.0, torch.ones(2, 2)),
    ),
    "aten._pdist_backward.default": (
        *(torch.ones(3), torch.tensor([[1.0], [2.0], [5.0]]), 2.0, torch.full((3,), 1e-38)),
    ),
    "aten.softshrink_backward.default": (torch.ones(20), torch.linspace(-1, 1, 20), NAN),
    "aten.group_norm.default": (
        torch.tensor([[1.0, 2.0, 4.0]]),
        *(1, torch.tensor([M, 1.0, 2.0]), torch.ones(3)),
    ),
    "aten.layer_norm.default": (
        torch.tensor([[3.0]]),
        *([1], torch.tensor([INF]), torch.tensor([1.0])),
    ),
    "aten.native_layer_norm_backward.default": (
        *(torch.ones(2, 3), torch.randn(2, 3, generator=torch.Generator().manual_seed(0)), [3]),
        *(torch.tensor([[-INF], [0.5]]), torch.ones(2, 1), torch.tensor([1.0, -2.0, 3.0])),
        *(torch.ones(3), [True, True, True]),
    ),
}
"""Calls that overflow on the way in kernels, or hold what is not finite."""


@pytest.mark.parametrize("op_type", OVERFLOWING)
def test_right_kernels_are_right_where_their_steps_overflow(op_type: str) -> None:
    meant, got, limits = bounds_of(op_type, *OVERFLOWING[op_type])
    for mine, theirs, allowed in zip(meant, got, limits, strict=True):
        assert not within(mine, theirs, allowed, subtracts=subtracts(op_type)).reason


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64])
def test_common_divisors_and_multiples_wrap_as_torch_has_them(dtype: torch.dtype) -> None:
    info = torch.iinfo(dtype)
    values = torch.tensor([info.min, info.max, info.max - 1, -7, 6, 0], dtype=dtype)
    others = torch.tensor([6, 7, -9, info.max, 4, info.max], dtype=dtype)
    for name in ("gcd", "lcm"):
        (meant,), (got,), (allowed,) = bounds_of(f"aten.{name}.default", values, others)
        assert np.isinf(allowed).tolist() == [True, *[False] * 5], "the least one has no modulus"
        assert (meant == got)[1:].all()


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_the_least_integer_counts_in_the_bound_of_a_sum(dtype: torch.dtype) -> None:
    info = torch.iinfo(dtype)
    values = torch.tensor([info.min, 5, info.max, -44, 98, 61], dtype=dtype)
    for op_type, args in (("aten.mean.default", ()), ("aten.sum.dim_IntList", ([0],))):
        (meant,), (got,), (allowed,) = bounds_of(op_type, values, *args, dtype=torch.float32)
        assert not within(meant, got, allowed).reason
