"""Gradients of layers, antialiasing and fake quantization, against torch within their bounds."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
import torch.ao.quantization.fx._decomposed

from semantics.compare import as_numpy, operator, recorded_schema
from torch_ir.semantics import denotation
from torch_ir.semantics.tolerance import bound

ATEN = torch.ops.aten
TYPES = (torch.float32, torch.float16, torch.bfloat16)
KINDS = [k for k in ("bilinear", "bicubic", "lanczos") if hasattr(ATEN, f"_upsample_{k}2d_aa")]


def agrees(op_type: str, *args: Any) -> None:
    """The results are torch's within the bound; shapes and types are equal."""
    overload = operator(op_type)
    expected = overload(*args)
    names = [argument.name for argument in recorded_schema(op_type).arguments]
    given = {name: as_numpy(value) for name, value in zip(names, args, strict=False)}
    made = denotation(op_type).function(**given)
    mine = [r for r in (made if isinstance(made, tuple) else (made,)) if r is not None]
    theirs = [as_numpy(r) for r in (expected if isinstance(expected, tuple) else (expected,))]
    allowed = bound(op_type, given, mine)
    assert allowed is not None
    limits = iter(allowed)
    for got, wanted in zip(mine, theirs, strict=True):
        if not isinstance(wanted, np.ndarray):
            assert got == wanted
            continue
        assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
        error = np.abs(got.astype("float64") - wanted.astype("float64"))
        assert (error <= next(limits)).all(), op_type


def draws(seed: int, dtype: torch.dtype) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(shape, generator=generator).to(dtype)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_resampling(rank, dtype):
    r = draws(rank, dtype)
    names = {
        1: ["upsample_linear1d", "upsample_nearest1d"],
        2: ["upsample_bilinear2d", "upsample_bicubic2d", "upsample_nearest2d"],
        3: ["upsample_trilinear3d", "upsample_nearest3d"],
    }[rank]
    sizes = [((5, 9, 4)[:rank], (8, 3, 7)[:rank]), ((6, 4, 3)[:rank], (12, 8, 6)[:rank])]
    for name, (size, goal), align in product(names, sizes, (False, True)):
        how = () if "nearest" in name else (align,)
        for scales in ([None] * rank, [b / a for a, b in zip(size, goal, strict=True)]):
            arguments = r(2, 3, *goal), goal, [2, 3, *size], *how, *scales
            agrees(f"aten.{name}_backward.default", *arguments)
    if rank == 2 and dtype == torch.float32:
        for kind, (size, goal), align in product(KINDS, sizes, (False, True)):
            name = f"aten._upsample_{kind}2d_aa"
            agrees(f"{name}.default", r(2, 3, *size), goal, align)
            agrees(f"{name}_backward.default", r(2, 3, *goal), goal, [2, 3, *size], align)


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("padding", [0, 1, 2])
def test_sampling_at_points(mode, padding):
    r = draws(mode, torch.float32)
    for align, scale in product((True, False), (0.5, 1.0, 2.5)):
        how = mode, padding, align, [True, True]
        arguments = r(2, 3, 4, 5), r(2, 3, 6, 7), r(2, 4, 5, 2) * scale
        agrees("aten.grid_sampler_2d_backward.default", *arguments, *how)
        if mode < 2:
            arguments = r(2, 3, 4, 5, 2), r(2, 3, 6, 7, 5), r(2, 4, 5, 2, 3) * scale
            agrees("aten.grid_sampler_3d_backward.default", *arguments, *how)


@pytest.mark.parametrize("padding", [0, 1, 2])
def test_cubic_weights_in_half_are_polynomials_that_round(padding):
    r = draws(padding, torch.float16)
    for size in (1, 2, 7):
        for align in (True, False):
            arguments = r(20, 2, 1, 1), r(20, 2, 1, size), r(20, 1, 1, 2) * 2
            how = 2, padding, align, [True, True]
            agrees("aten.grid_sampler_2d_backward.default", *arguments, *how)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_padding_pooling_and_shrinking(dtype):
    r = draws(0, dtype)
    for name in ("replication", "reflection"):
        agrees(f"aten.{name}_pad1d_backward.default", r(2, 3, 8), r(2, 3, 5), [1, 2])
        agrees(f"aten.{name}_pad2d_backward.default", r(3, 8, 9), r(3, 5, 5), [1, 3, 1, 2])
        sides = [0, 0, 1, 3, 1, 2]
        arguments = r(2, 3, 8, 9, 5), r(2, 3, 5, 5, 5), sides
        agrees(f"aten.{name}_pad3d_backward.default", *arguments)
    agrees("aten._adaptive_avg_pool3d_backward.default", r(3, 2, 3, 4), r(3, 5, 6, 7))
    x = r(2, 3, 7, 8)
    y, places = ATEN.adaptive_max_pool2d(x, (3, 4))
    agrees("aten.adaptive_max_pool2d_backward.default", r(*y.shape), x, places)
    y, places = ATEN.adaptive_max_pool3d(x, (3, 4, 2))
    agrees("aten.adaptive_max_pool3d_backward.default", r(*y.shape), x, places)
    for name in ("hardshrink", "softshrink"):
        agrees(f"aten.{name}_backward.default", r(50), r(50), 0.5)
    agrees("aten.masked_scatter_backward.default", r(5, 6), r(5, 6) > 0, [40])
    for trains in (True, False):
        for slopes in ((0.1, 0.3), (0.3, 0.1)):
            arguments = r(50), r(50), r(50), *slopes, trains, False
            agrees("aten.rrelu_with_noise_backward.default", *arguments)
    agrees("aten._trilinear.default", r(4, 5), r(3, 5, 6), r(4, 6), [1, 3], [0], [1, 2], [2, 3])


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, float("inf")])
def test_distances(p):
    r = draws(0, torch.float32)
    first, second, rows = r(2, 4, 3), r(2, 5, 3), r(5, 3)
    far = ATEN._cdist_forward(first, second, p, None)
    agrees("aten._cdist_backward.default", r(2, 4, 5), first, second, p, far)
    agrees("aten._pdist_backward.default", r(10), rows, p, ATEN._pdist_forward(rows, p))


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32, torch.int64])
def test_quantizing_integers_by_rows(dtype):
    low, high = (0, 255) if dtype is torch.uint8 else (-128, 127)
    x = torch.stack([torch.zeros(9), torch.linspace(low, high, 9), torch.arange(9)]).to(dtype)
    agrees("quantized_decomposed.choose_qparams_per_token_asymmetric.default", x, torch.int8)


@pytest.mark.parametrize("seed", range(6))
def test_quantizing(seed):
    for dtype in TYPES:
        r = draws(seed, dtype)
        x = r(5, 37) * 10.0 ** (seed - 3)
        x = (x, x.abs(), x + x.abs().max() * 0.7)[seed % 3].to(dtype)
        chosen = "quantized_decomposed.choose_qparams"
        for kind, low, high in ((torch.int8, -128, 127), (torch.uint8, 0, 255)):
            agrees(f"{chosen}.tensor", x, low, high, 1e-5, kind)
            agrees(f"{chosen}_symmetric.tensor", x, low, high, 1e-5, kind)
        agrees(f"{chosen}_per_token.default", x, torch.int8)
        agrees(f"{chosen}_per_token_asymmetric.default", x, torch.int8)
        if dtype is not torch.float32:
            continue
        agrees("aten._choose_qparams_per_tensor.default", x, seed % 2 == 1)
        scales, zeros = r(5).abs() + 0.01, torch.arange(-2, 3)
        fake = "fake_quantize_per_tensor_affine"
        one, zero, enabled = scales[:1], zeros[:1].int(), torch.tensor([seed % 3 / 2])
        agrees(f"aten.{fake}_cachemask.default", x, float(one), int(zero), -128, 127)
        agrees(f"aten.{fake}.tensor_qparams", x, one, zero, -128, 127)
        arguments = x, one, zero, enabled, -128, 127
        agrees(f"aten._{fake}_cachemask_tensor_qparams.default", *arguments)
        for points in (zeros.int(), zeros + 0.3):
            arguments = x, scales, points, 0, -128, 127
            agrees("aten.fake_quantize_per_channel_affine_cachemask.default", *arguments)
        arguments = x, scales, zeros + 0.4, 0, -128, 127
        agrees("aten._fake_quantize_learnable_per_channel_affine.default", *arguments)
        agrees("quantized_decomposed.fake_quant_per_channel.default", *arguments)


def test_draws_without_replacement_are_distinct_and_possible():
    from torch_ir.semantics.draws import Draws

    weights = np.array([[0.0, 1.0, 2.0, 0.0, 5.0]] * 50, "float32")
    function = denotation("aten.multinomial.default").function
    drawn = function(weights, 3, draws=Draws(0, "node"))
    assert all(sorted(row) == [1, 2, 4] for row in drawn.tolist())
    again = function(weights[0], 4000, draws=Draws(0, "node"), replacement=True)
    shares = np.bincount(again, minlength=5) / 4000
    assert np.abs(shares - weights[0] / 8).max() < 0.03
