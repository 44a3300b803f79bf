"""Bounds are no wider than a fault, and no narrower than what right kernels do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from semantics.test_tolerance import bounds_of, parts_of
from torch_ir import parse
from torch_ir.semantics.chain import bounded

HALF = (torch.float16, torch.bfloat16)
MASKS = (-1e4, -1e9, -3e38, torch.finfo(torch.float32).min)


def _random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def _is_found(op_type: str, wrong: Any, *args: Any) -> bool:
    """Whether a result is out of its bound somewhere."""
    (meant, *_), _, (allowed, *_) = bounds_of(op_type, *args)
    return bool((np.abs(np.asarray(wrong, "float64") - meant) > allowed).any())


def _masked_rows(mask: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    rows = _random(8, 1000, dtype=dtype)
    rows[:, 500:] = mask
    return rows


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", ["_softmax", "_log_softmax"])
def test_faults_of_a_masked_softmax_are_found(name: str, mask: float) -> None:
    op_type, args = f"aten.{name}.default", (_masked_rows(mask), 1, False)
    (meant,), _, (allowed,) = bounds_of(op_type, *args)
    for wrong in (meant * 0, meant * 0 + 7, meant[:, ::-1], np.roll(meant, 1, axis=0)):
        assert _is_found(op_type, wrong, *args)
    even = np.full(meant.shape, 1 / 1000)
    assert _is_found(op_type, even if name == "_softmax" else np.log(even), *args)
    seen = 64 * 2.0**-23 * np.abs(meant) > allowed
    assert seen[:, :500].mean() >= 0.95
    assert parts_of(op_type, *args) <= 1


@pytest.mark.parametrize("mask", MASKS)
def test_faults_of_a_masked_logsumexp_are_found(mask: float) -> None:
    (meant,), _, (allowed,) = bounds_of("aten.logsumexp.default", _masked_rows(mask), [1])
    assert (64 * 2.0**-23 * np.abs(meant) > allowed).all()


@pytest.mark.parametrize("mask", MASKS)
def test_faults_of_masked_attention_are_found(mask: float) -> None:
    op_type = "aten.scaled_dot_product_attention.default"
    query, key, value = (_random(1, 2, 24, 32, seed=seed) for seed in range(3))
    added = torch.zeros(1, 1, 24, 24)
    added[..., 16:] = mask
    args = (query, key, value, added)
    (meant,), _, (allowed,) = bounds_of(op_type, *args)
    right = torch.nn.functional.scaled_dot_product_attention
    unmasked = right(query, key, value).numpy()
    scaled = right(query, key, value, added, scale=1.0).numpy()
    even = value.mean(dim=-2, keepdim=True).expand_as(value).numpy()
    for wrong in (meant * 0, value.numpy() * 1000, unmasked, scaled, even, meant[:, ::-1]):
        assert _is_found(op_type, wrong, *args)
    assert (100 * 2.0**-23 * float(value.abs().max()) > allowed).all()
    assert parts_of(op_type, *args) <= 1


CALLS: dict[str, Any] = {
    "aten._softmax.default": lambda r: (r(8, 1000), 1, False),
    "aten.native_layer_norm.default": lambda r: (r(8, 256), [256], r(256), r(256), 1e-5),
    "aten.native_group_norm.default": lambda r: (r(2, 8, 8, 8), r(8), r(8), 2, 8, 64, 4, 1e-5),
    "aten.gelu.default": lambda r: (r(100, 100),),
    "aten.exp.default": lambda r: (r(100, 100),),
    "aten.mm.default": lambda r: (r(32, 384), r(384, 32)),
    "aten.mean.dim": lambda r: (r(64, 512), [1]),
    "aten.convolution.default": lambda r: (
        *(r(1, 16, 12, 12), r(16, 16, 3, 3), r(16)),
        *([1, 1], [1, 1], [1, 1], False, [0, 0], 1),
    ),
    "aten.upsample_linear1d.default": lambda r: (r(4, 8, 64), [150], False),
    "aten.upsample_bilinear2d.default": lambda r: (r(1, 4, 64, 48), [112, 30], False),
    "aten.upsample_trilinear3d.default": lambda r: (r(1, 4, 12, 9, 16), [20, 9, 31], True),
    "aten.upsample_bicubic2d.default": lambda r: (r(1, 4, 64, 48), [112, 30], False),
}


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("op_type", CALLS)
def test_planted_errors_of_half_types_are_seen(op_type: str, dtype: torch.dtype) -> None:
    args = CALLS[op_type](lambda *shape: _random(*shape, seed=len(shape), dtype=dtype))
    (meant, *_), _, (allowed, *_) = bounds_of(op_type, *args)
    planted = 8 * torch.finfo(dtype).eps * np.abs(meant)
    assert (planted > allowed)[meant != 0].mean() >= 0.95
    assert parts_of(op_type, *args) <= 1


@pytest.mark.parametrize(("name", "units"), [("gelu", 32), ("erf", 8), ("exp", 8)])
def test_planted_errors_of_single_precision_are_seen(name: str, units: int) -> None:
    x = _random(200, 100)
    (meant,), _, (allowed,) = bounds_of(f"aten.{name}.default", x)
    assert (units * 2.0**-23 * np.abs(meant) > allowed).mean() >= 0.95
    every = torch.linspace(-14, 14, 400_000)
    assert 0.05 < parts_of(f"aten.{name}.default", every) <= 1


@pytest.mark.parametrize("dtype", HALF)
def test_planted_errors_of_attention_in_half_types_are_seen(dtype: torch.dtype) -> None:
    args = [_random(1, 2, 24, 32, seed=seed, dtype=dtype) for seed in range(3)]
    (meant,), _, (allowed,) = bounds_of("aten.scaled_dot_product_attention.default", *args)
    assert (8 * torch.finfo(dtype).eps * np.abs(meant) > allowed).mean() >= 0.5


@pytest.mark.parametrize("name", ["sum", "mean"])
def test_a_dropped_term_of_a_long_sum_is_found(name: str) -> None:
    x = torch.rand(2**17, generator=torch.Generator().manual_seed(0)) + 0.5
    (meant,), _, _ = bounds_of(f"aten.{name}.default", x)
    lost = float(x[77]) / (len(x) if name == "mean" else 1)
    assert _is_found(f"aten.{name}.default", meant - lost, x)
    assert parts_of(f"aten.{name}.default", x) <= 1


@pytest.mark.parametrize(("size", "goal"), [(64, 224), (512, 224), (720, 300), (1080, 64)])
@pytest.mark.parametrize("name", ["bilinear", "bicubic"])
@pytest.mark.parametrize("align_corners", [False, True])
def test_right_resampling_agrees(name: str, size: int, goal: int, align_corners: bool) -> None:
    x = _random(1, 1, size, 64)
    op_type = f"aten.upsample_{name}2d.default"
    assert parts_of(op_type, x, [goal, 80], align_corners) <= 1


@pytest.mark.parametrize("mode", [0, 2])
@pytest.mark.parametrize("padding", [0, 1, 2])
def test_right_sampling_agrees(mode: int, padding: int) -> None:
    grid = torch.rand(1, 60, 60, 2, generator=torch.Generator().manual_seed(0)) * 2.4 - 1.2
    x = _random(1, 1, 300, 300)
    assert parts_of("aten.grid_sampler_2d.default", x, grid, mode, padding, False) <= 1


def test_sums_in_open_order_agree() -> None:
    index = torch.randint(0, 7, (5000,), generator=torch.Generator().manual_seed(0))
    values = _random(5000)
    assert parts_of("aten.bincount.default", index, values) <= 1
    for reduce in ("add", "multiply"):
        source = values if reduce == "add" else 1 + values / 100
        zero = torch.ones(7)
        assert parts_of("aten.scatter.reduce", zero, 0, index, source, reduce=reduce) <= 1


@pytest.mark.parametrize("length", [32, 1024, 8192, 40_000])
def test_right_products_of_positive_terms_agree(length: int) -> None:
    for rows, columns in ((1, 8), (8, 16)):
        first, second = _random(rows, length).abs(), _random(length, columns).abs()
        assert parts_of("aten.mm.default", first, second) <= 1
        assert parts_of("aten.linear.default", first, second.t()) <= 1


@pytest.mark.parametrize("channels", [4, 16])
def test_right_gradients_of_a_convolution_of_positive_terms_agree(channels: int) -> None:
    shape = (8, channels, 14, 14)
    how = [channels], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True] * 3
    for seed in range(3):
        gradient, values = (_random(*shape, seed=seed + i).abs() for i in (0, 9))
        weight = _random(channels, channels, 3, 3, seed=seed).abs()
        assert parts_of("aten.convolution_backward.default", gradient, values, weight, *how) <= 1


@pytest.mark.parametrize("name", ["erf", "gelu"])
def test_right_functions_of_all_numbers_of_half_precision_agree(name: str) -> None:
    every = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(torch.float16)
    assert parts_of(f"aten.{name}.default", every[every.isfinite()]) <= 1


@pytest.mark.parametrize("name", ["logsumexp", "_log_softmax"])
def test_what_overflows_in_half_precision_on_the_way_is_open(name: str) -> None:
    rows = torch.rand(2, 120_000, generator=torch.Generator().manual_seed(0)).half()
    arguments = (rows, [1]) if name == "logsumexp" else (rows, 1, False)
    _, _, (allowed,) = bounds_of(f"aten.{name}.default", *arguments)
    assert np.isinf(allowed).all()
    _, _, (allowed,) = bounds_of(f"aten.{name}.default", *(arguments[0].float(), *arguments[1:]))
    assert np.isfinite(allowed).all()


_PLACES = torch.tensor([[1.0, 0.0], [2.0, 3.0]])


@pytest.mark.parametrize(
    ("op_type", "args"),
    [
        ("special_i1e", (torch.tensor([0.0, 1e-300, -1e-9, 0.5], dtype=torch.float64),)),
        ("special_i1", (torch.tensor([0, 1]),)),
        ("_cdist_backward", (_PLACES, _PLACES / 3 + 0.1, _PLACES.T / 7, 0.5, _PLACES)),
        (
            "fake_quantize_per_channel_affine",
            (
                torch.linspace(-3, 3, 6, dtype=torch.float64).reshape(2, 3),
                *(torch.tensor([0.3, 0.7]), torch.tensor([0, 2], dtype=torch.int32), 0, -8, 7),
            ),
        ),
        ("special_zeta", (torch.tensor([2.0, 3.5]), torch.tensor([True, True]))),
    ],
)
def test_kernels_are_within_bounds_at_zero_and_of_integers(op_type: str, args: Any) -> None:
    assert parts_of(f"aten.{op_type}.default", *args) <= 1


def test_a_conversion_to_fewer_digits_rounds_what_is_off_to_either_side():
    ir = parse("""ir {
      input %x: f32[2]
      %y: f32[2] = aten.mul.Tensor(%x, 3.0)
      %z: f16[2] = aten._to_copy.default(%y, dtype=torch.float16)
      return %z
    }""")
    tie, unit = 1 + 2.0**-11, 2.0**-10
    x = (np.float32([tie, 1.25]) / 3).astype("float32")
    _, off = bounded(ir, {"x": x}, {})
    assert off["z"].tolist() == [unit, 0.0]
