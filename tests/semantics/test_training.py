"""What only training calls: gradients of samples, of attention, of gates, and learned codes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
import torch.ao.quantization.fx._decomposed

from semantics.compare import as_numpy, check, denoted, operator, refused
from semantics_agreement import worst_error
from semantics_calls import Call, bound
from torch_ir.semantics import tolerance

ATEN = torch.ops.aten
KINDS = ("normal", "large", "tiny", "positive", "equal", "off", "outlier")
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INFINITY = float("inf")


def drawn(kind: str, dtype: torch.dtype, *shape: int, seed: int = 0) -> torch.Tensor:
    """Operands whose sums cancel, repeat, lie far from zero, or have one that outweighs all."""
    generator = torch.Generator().manual_seed(seed + 100 * len(shape))
    values = torch.randn(shape, generator=generator, dtype=torch.float64)
    changed = {
        "large": values * 1e3,
        "tiny": values * 1e-4,
        "positive": values.abs(),
        "equal": torch.where(torch.rand(shape, generator=generator) < 0.06, values, 0.3),
        "off": values + 100,
    }
    values = changed.get(kind, values)
    if kind == "outlier":
        values.view(-1)[:1] *= 1e4
    return values.to(dtype)


def error(op_type: str, *args: Any, **kwargs: Any) -> float:
    """torch's own error as a part of what is allowed; raises where it is more than that."""
    return error_of_result(op_type, operator(op_type)(*args, **kwargs), *args, **kwargs)


def error_of_result(op_type: str, result: Any, *args: Any, **kwargs: Any) -> float:
    """The same of another result."""
    given = bound(operator(op_type), args, kwargs)
    named = {name: as_numpy(value) for name, value in given.items()}
    return worst_error(Call(op_type, named, as_numpy(result)))


def _softmaxes(kind: str, dtype: torch.dtype, n: int) -> Iterator[tuple[str, tuple[Any, ...]]]:
    x, y = (drawn(kind, dtype, 3, n, seed=seed) for seed in (0, 1))
    mask = torch.rand(3, n, generator=torch.Generator().manual_seed(n)) < 0.3
    mask[0], mask[1, 0] = False, False
    made = ATEN._masked_softmax(x, mask, 1, 2)
    yield "aten._masked_softmax.default", (x, mask, 1, 2)
    yield "aten._masked_softmax.default", (x, mask, 0)
    yield "aten._masked_softmax_backward.default", (y, made, mask, 1)


def _gates(kind: str, dtype: torch.dtype, n: int) -> Iterator[tuple[str, tuple[Any, ...]]]:
    x, dx = (drawn(kind, dtype, 3, 2 * n, seed=seed) for seed in (0, 1))
    first, second = (drawn(kind, dtype, 3, n, seed=seed) for seed in (2, 3))
    yield "aten.glu_jvp.default", (torch.nn.functional.glu(x, 1), x, dx, 1)
    gradient = ATEN.glu_backward(first, x, 1)
    yield "aten.glu_backward_jvp.default", (gradient, first, x, second, dx, 1)
    norms = first.norm(dim=1, keepdim=True)
    scales = drawn(kind, dtype, 3, 1).abs() + 0.1
    backward = "aten._weight_norm_interface_backward.default"
    yield backward, (second, first, scales, norms, 0)
    norms, scales = first.norm(dim=0, keepdim=True), drawn(kind, dtype, 1, n).abs() + 0.1
    yield backward, (second, first, scales, norms, 1)
    yield "aten._add_relu.Tensor", (first, second)
    yield "aten._add_relu.Scalar", (first, 0.3)


def _powers(kind: str, dtype: torch.dtype, n: int) -> Iterator[tuple[str, tuple[Any, ...]]]:
    x = drawn(kind, dtype, 3, n)
    for order in (0, 1, 2, 3, 0.5, -1):
        yield "aten.linalg__powsum.default", (x, order, [1])
        yield "aten.linalg__powsum.default", (x, order)


def _learned(kind: str, dtype: torch.dtype, n: int) -> Iterator[tuple[str, tuple[Any, ...]]]:
    x, y = (drawn(kind, dtype, 3, n, seed=seed) for seed in (0, 1))
    generator = torch.Generator().manual_seed(n)
    for ends in ((0, 255), (-128, 127), (0, 3)):
        scale, zero = (torch.rand(n, generator=generator) * by for by in (0.1, 9))
        scale += 0.01
        tensors = "aten._fake_quantize_learnable_per_tensor_affine_backward.default"
        channels = "aten._fake_quantize_learnable_per_channel_affine_backward.default"
        yield tensors, (y, x, scale[:1], zero[:1], *ends)
        yield channels, (y, x, scale, zero, 1, *ends, 0.5)
        for symmetric in (False, True):
            for seen, quantizes in ((1, 1), (0, 1), (1, 0)):
                flags = torch.tensor([seen]), torch.tensor([quantizes])
                for rows in (1, 3):
                    for low in (-0.7, INFINITY):
                        given = [torch.full((rows,), v) for v in (low, -low, 0.1)]
                        zeros = torch.zeros(rows, dtype=torch.int32)
                        how = (0.01, *ends, 0, rows > 1, symmetric)
                        name = "aten._fused_moving_avg_obs_fq_helper_functional.default"
                        if seen or low < 0:
                            yield name, (x, *flags, *given, zeros, *how)


ROUNDED = [
    *[(_softmaxes, dtype) for dtype in FLOATS],
    *[(_powers, dtype) for dtype in FLOATS],
    *[(_gates, dtype) for dtype in FLOATS[:2]],
    (_learned, torch.float32),
]


@pytest.mark.parametrize(
    ("calls", "dtype"), ROUNDED, ids=lambda item: getattr(item, "__name__", str(item))
)
@pytest.mark.parametrize("kind", KINDS)
def test_torchs_own_error_is_within_the_bound(calls: Any, dtype: torch.dtype, kind: str) -> None:
    for n in (1, 7, 300):
        for op_type, args in calls(kind, dtype, n):
            assert error(op_type, *args) <= 1, op_type


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "large"])
def test_gradients_of_attention(dtype: torch.dtype, kind: str) -> None:
    name = "aten._scaled_dot_product_flash_attention_for_cpu_backward.default"
    for queries, keys, width in ((1, 1, 1), (5, 5, 8), (40, 33, 16)):
        shapes = (queries, keys, keys, queries)
        q, k, v, g = (drawn(kind, dtype, 1, 2, n, width, seed=i) for i, n in enumerate(shapes))
        mask = torch.where(torch.arange(keys) % 5 == 1, -1e4, 0.0).to(dtype).expand(queries, keys)
        for causal, attn_mask in ((False, None), (True, None), (False, mask[None, None])):
            forward = ATEN._scaled_dot_product_flash_attention_for_cpu
            made = forward(q, k, v, 0.0, causal, attn_mask=attn_mask)
            assert error(name, g, q, k, v, *made, 0.0, causal, attn_mask=attn_mask) <= 1


def _exact(a: float, x: float) -> float:
    """``dx/da`` of a gamma sample by a difference in 300 digits."""
    with mpmath.workdps(300):
        shape, at = mpmath.mpf(a), mpmath.mpf(x)
        step = shape * mpmath.mpf(10) ** -20
        low, high = (
            mpmath.gammainc(place, 0, at, regularized=True)
            for place in (shape - step, shape + step)
        )
        slope = (high - low) / (2 * step)
        density = mpmath.exp((shape - 1) * mpmath.log(at) - at - mpmath.loggamma(shape))
        return float(-slope / density)


@pytest.mark.parametrize("shape", [1e-3, 0.03, 0.5, 1.0, 2.7, 8.1, 30.0, 200.0])
def test_samples_of_gamma_move_with_their_shape(shape: float) -> None:
    for x in (1e-40, 1e-6, 0.3 * shape, shape, 2 * shape + 3):
        got = denoted(
            "aten._standard_gamma_grad.default",
            *(torch.tensor(v, dtype=torch.float64) for v in (shape, x)),
        )
        assert float(got) == pytest.approx(_exact(shape, x), rel=1e-9)


def test_samples_of_beta_move_with_their_shape() -> None:
    """``x = u^(1/alpha)`` where beta is 1."""
    for alpha in (0.01, 0.7, 1.0, 5.0, 90.0):
        for x in (1e-9, 0.2, 0.5, 0.9, 0.9999):
            given = (torch.tensor(v, dtype=torch.float64) for v in (x, alpha, alpha + 1))
            got = float(denoted("aten._dirichlet_grad.default", *given))
            assert got == pytest.approx(-x * math.log(x) / alpha / (1 - x), rel=1e-9)


@pytest.mark.parametrize("dtype", FLOATS[:2])
def test_torchs_fits_of_these_are_within_the_bound(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    first, second = 10 ** (torch.rand(2, 1500, dtype=torch.float64) * 5 - 2.5)
    gamma = torch.distributions.Gamma(first, 1.0).sample()
    assert 0 < error("aten._standard_gamma_grad.default", first.to(dtype), gamma.to(dtype)) <= 1
    beta = torch.distributions.Beta(first, second).sample()
    total = first.to(dtype) + second.to(dtype)
    assert 0 < error("aten._dirichlet_grad.default", beta.to(dtype), first.to(dtype), total) <= 1


def test_what_is_no_sample_has_no_gradient() -> None:
    ones = torch.ones(5)
    for x in (torch.tensor([0.0, -1.0, INFINITY, float("nan"), 2.0]),):
        assert np.isnan(denoted("aten._dirichlet_grad.default", x, ones, 2 * ones)).all()
        got = denoted("aten._standard_gamma_grad.default", ones, x)
        assert np.isnan(got).tolist() == [True, True, True, True, False]


def test_masks_of_scores() -> None:
    scores = drawn("normal", torch.float32, 2, 3, 4, 4)
    pairs = torch.arange(16).reshape(4, 4) % 3 == 1
    keys = torch.arange(8).reshape(2, 4) % 3 == 1
    name = "aten._masked_softmax.default"
    for mask, kind in ((pairs, 0), (keys, 1), (pairs.expand(2, 3, 4, 4), 2)):
        for dim in (None, 3, 2):
            assert error(name, scores, mask, dim, kind) <= 1
    assert (
        refused(name, scores, keys, 3, 0)
        == "a mask of bool [2, 4] hides no elements of [2, 3, 4, 4]"
    )
    assert (
        refused(name, scores, pairs, 3)
        == "a mask of bool [4, 4] hides no elements of [2, 3, 4, 4]"
    )
    row = torch.tensor([[1.0, 2.0]])
    check(name, row, torch.tensor([[True, True]]), 1, 2)  # NaN
    check("aten._masked_softmax_backward.default", row, row, torch.tensor([[True, True]]), 1)


def test_rectified_sums() -> None:
    check("aten._add_relu.Tensor", torch.tensor([1, -3]), torch.tensor([1, 2]), alpha=2)
    check("aten._add_relu.Scalar", torch.tensor(-3.0), 1)
    check("aten._add_relu.Tensor", torch.tensor([INFINITY, -INFINITY, 2.0]), torch.zeros(3))
    name = "aten._add_relu.Tensor"
    assert refused(name, *[torch.ones(1).half()] * 2) == "_add_relu does not exist on float16"


def test_rows_of_several_lengths() -> None:
    values, offsets = torch.arange(21.0).reshape(7, 3), torch.tensor([0, 3, 3, 7])
    padded, jagged = (
        f"aten._{name}_forward.default"
        for name in ("jagged_to_padded_dense", "padded_dense_to_jagged")
    )
    for dtype in (torch.float32, torch.int64, torch.bool, torch.bfloat16):
        for length in (0, 2, 5):
            check(padded, values.to(dtype), [offsets], [length], 1.0)
    check(padded, values[:, 0], [offsets], [5], -1.0)
    dense = torch.arange(30.0).reshape(3, 5, 2)
    check(jagged, dense, [offsets])
    check(jagged, dense[..., 0], [offsets], 7)
    assert refused(jagged, dense, [offsets], 9) == "offsets [0, 3, 3, 7] do not divide 3 rows"
    assert refused(jagged, dense[:, :2], [offsets]) == "a row of 4 elements has 2 only"
    assert refused(padded, values, [offsets, offsets], [2, 2]) == "2 levels of rows are not one"


SAME = [
    ("aten._aminmax.default", (torch.tensor([[3.0, -1.0], [2.0, 5.0]]),)),
    ("aten._aminmax.dim", (torch.tensor([[3.0, -1.0], [2.0, 5.0]]), 1, True)),
    ("aten._lazy_clone.default", (torch.ones(2, 3),)),
    ("aten.dequantize.self", (torch.tensor([1e300, 0.1], dtype=torch.float64),)),
    ("aten.dequantize.self", (torch.tensor([1 + 2j]),)),
    ("aten.unique_dim_consecutive.default", (torch.tensor([[1, 1], [1, 1], [2, 1]]), 0)),
    ("aten._index_put_impl.default", (torch.zeros(5), [torch.tensor([0, 3])], torch.ones(2))),
    ("aten._functional_assert_async.msg", (torch.tensor(True), "text", torch.ones(()))),
    ("aten._functional_assert_scalar.default", (True, "text", torch.ones(()))),
    ("aten._functional_sym_constrain_range.default", (3, 0, 5, torch.ones(()))),
    ("aten._functional_sym_constrain_range_for_size.default", (3, 0, 5, torch.ones(()))),
    ("quantized_decomposed.convert_element_type.no_fuse", (torch.ones(2), torch.int8)),
]


@pytest.mark.parametrize(("op_type", "args"), SAME, ids=[name for name, _ in SAME])
def test_what_rounds_nothing_is_equal(op_type: str, args: tuple[Any, ...]) -> None:
    check(op_type, *args)


@pytest.mark.parametrize("bias", [None, torch.tensor([1.0, -2.0])])
def test_what_no_channels_add_up_to(bias: torch.Tensor | None) -> None:
    image, filters = torch.ones(1, 0, 4, 5), torch.ones(2, 0, 2, 2)
    check("aten.slow_conv_dilated2d.default", image, filters, [2, 2], bias)
    check(
        "aten.slow_conv_dilated3d.default", image[..., None], filters[..., None], [2, 2, 1], bias
    )


def test_convolutions_by_other_names() -> None:
    for dtype in FLOATS[:2]:
        image, volume = drawn("normal", dtype, 2, 3, 9, 8), drawn("normal", dtype, 2, 3, 5, 6, 5)
        flat, deep = drawn("normal", dtype, 4, 3, 3, 3), drawn("normal", dtype, 4, 3, 2, 3, 2)
        bias, ones = drawn("normal", dtype, 4), [1, 1, 1]
        calls = (
            ("_slow_conv2d_forward", (image, flat, [3, 3], bias, [1, 2], [1, 1])),
            ("slow_conv_dilated2d", (image, flat, [3, 3], bias, [1, 1], [1, 1], [2, 1])),
            ("slow_conv3d_forward", (volume, deep, [2, 3, 2], bias, [1, 1, 2], [1, 1, 0])),
            ("slow_conv_dilated3d", (volume, deep, [2, 3, 2], bias, ones, ones, [2, 1, 1])),
            ("slow_conv_transpose2d", (image, flat[:3], [3, 3], bias[:3], [2, 2], [1, 1], [1, 1])),
            ("slow_conv_transpose3d", (volume, deep[:3], [2, 3, 2], bias[:3], [2, 2, 2])),
        )
        for name, args in calls:
            assert error(f"aten.{name}.default", *args) <= 1, name
    image, weight = (
        drawn("normal", torch.float32, 2, 4, 6, 6),
        drawn("normal", torch.float32, 6, 2, 3, 3),
    )
    args = (image, weight, None, [1, 1], [2, 1], [1, 1], 2)
    assert error("aten.mkldnn_convolution.default", *args) <= 1


def test_scaled_products_of_the_second_version() -> None:
    torch.manual_seed(0)
    first, second = (torch.randn(16, 32).to(torch.float8_e4m3fn) for _ in range(2))
    one, rows = torch.tensor(0.5), (torch.rand(16, 1), torch.rand(1, 16))
    name = "aten._scaled_mm_v2.default"
    calls = [([one], [0], [one], [0], dtype) for dtype in (torch.float32, torch.bfloat16)]
    calls.append(([rows[0]], [1], [rows[1]], [1], torch.bfloat16))
    for scale_a, recipe_a, scale_b, recipe_b, dtype in calls:
        args = (scale_a, recipe_a, [0], scale_b, recipe_b, [0], None, dtype)
        assert error(name, first, second.t(), *args) <= 1


def test_samplers_and_norms_by_other_names() -> None:
    image = drawn("normal", torch.float32, 2, 3, 6, 5)
    grid = torch.rand(2, 4, 4, 2, generator=torch.Generator().manual_seed(0)) * 2 - 1
    name = "aten._grid_sampler_2d_cpu_fallback"
    assert error(f"{name}.default", image, grid, 0, 0, False) <= 1
    gradient = drawn("normal", torch.float32, 2, 3, 4, 4)
    assert error(f"{name}_backward.default", gradient, image, grid, 0, 1, True) <= 1
    given = (torch.zeros(3), torch.ones(3), 0.1, 1e-5)
    assert error("aten._batch_norm_no_update.default", image, None, None, *given) <= 1
    matrix = torch.linalg.cholesky(torch.eye(3) * 2 + 0.5)
    right = drawn("normal", torch.float32, 3, 2)
    assert error("aten._cholesky_solve_helper.default", right, matrix, False) <= 1
    assert error("aten._logcumsumexp.default", image, 2) <= 1


OPEN_BY_FAULT = [
    (
        "aten._embedding_bag_dense_backward.default",
        lambda rows: (
            torch.ones(2, 3),
            torch.tensor(rows),
            torch.tensor([0, 0, 1, 1]),
            torch.tensor([2, 2]),
            torch.zeros(2, 3, dtype=torch.int64),
            5,
            True,
            0,
            None,
        ),
        ([1, 2, 3, 4], [1, 1, 2, 4]),
    ),
    (
        "aten._segment_reduce_backward.default",
        lambda sign: (sign * torch.ones(1), torch.ones(1), torch.tensor([1.0, 1.0, 0.0]), "max"),
        (1.0, -1.0),
    ),
    (
        "aten._upsample_bilinear2d_aa.default",
        lambda columns: (drawn("normal", torch.float32, 1, 1, 5, 6), [3, columns], False),
        (2, 1),
    ),
    (
        "aten._upsample_bicubic2d_aa.default",
        lambda rows: (drawn("normal", torch.float32, 1, 1, 5, 6), [rows, 1], False),
        (1, 4),
    ),
]


@pytest.mark.parametrize(("op_type", "given", "cases"), OPEN_BY_FAULT, ids=lambda value: "")
def test_where_torchs_kernel_is_at_fault_values_are_open(
    op_type: str, given: Any, cases: tuple[Any, Any]
) -> None:
    """The meaning stays what it is beside; there a fault is still seen."""
    more = {"lengths": torch.tensor([3])} if "segment" in op_type else {}
    for case, is_open in zip(cases, (False, True), strict=True):
        args = given(case)
        assert error(op_type, *args, **more) <= 1
        named = bound(operator(op_type), args, more)
        arguments = {name: as_numpy(value) for name, value in named.items()}
        (limit,) = tolerance.bound(op_type, arguments, [denoted(op_type, *args, **more)])
        assert np.isinf(limit).any() == is_open


def test_groups_of_codes() -> None:
    numbers = drawn("normal", torch.float32, 4, 8)
    scales = torch.rand(4, 2, generator=torch.Generator().manual_seed(0)) + 0.1
    name = "quantized_decomposed.quantize_per_channel_group.default"
    check(name, numbers, scales, torch.full((4, 2), 2.0), -8, 7, torch.int8, 4)
    args = (numbers, scales, torch.zeros(4, 2), -8, 7, torch.int8, 3)
    with pytest.raises(Exception, match="groups of 3 do not divide 8 columns"):
        denoted(name, *args)
