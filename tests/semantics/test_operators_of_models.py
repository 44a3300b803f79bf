"""Packed sequences, quantized products, windows and others that exported models call."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from semantics.compare import check, denoted, refused
from semantics.judging import off_by, seen, verdict
from semantics.test_tolerance import bounds_of, parts_of
from torch_ir.torch_versions import torch_is

BOTH = ("denotation", "eager")
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    draws = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=draws, dtype=torch.float64).to(dtype)


def int8(*shape: int, seed: int = 0) -> torch.Tensor:
    draws = torch.Generator().manual_seed(seed)
    return torch.randint(-128, 128, shape, generator=draws, dtype=torch.int8)


def test_sequences_are_packed() -> None:
    for lengths in ([4, 4, 1], [3, 2, 2], [1, 1, 1]):
        for dtype in (torch.float32, torch.int64, torch.bfloat16):
            steps = random(4, 3, 2, dtype=torch.float32).mul(9).to(dtype)
            check("aten._pack_padded_sequence.default", steps, torch.tensor(lengths), False)
            turned = steps.transpose(0, 1)
            check("aten._pack_padded_sequence.default", turned, torch.tensor(lengths), True)
    for lengths in ([1, 2, 3], [2, 1, 0], [3, 2]):
        message = refused(
            "aten._pack_padded_sequence.default", random(4, 3, 2), torch.tensor(lengths), False
        )
        assert "lengths" in message


def test_products_of_int8() -> None:
    check("aten._int_mm.default", int8(24, 32), int8(32, 16, seed=1))
    assert "product" in refused("aten._int_mm.default", int8(24, 32), int8(16, 32))


def quantized(dtype: torch.dtype) -> list[tuple[str, dict[str, Any]]]:
    float8 = torch.float8_e4m3fn
    packed = {"self": random(5, 64, dtype=dtype), "mat2": int8(32, 64)}
    packed |= {"scales": random(32, seed=2).abs().to(dtype)}
    found = [("aten._weight_int8pack_mm.default", packed)]
    first, second = random(16, 32).to(float8), random(16, 32, seed=1).to(float8).t()
    one, rows = torch.tensor(0.3), random(16, 1, seed=3).abs()
    # the kernel takes a scale for each row from some version of torch on
    each = [(rows, rows.t() * 2)] if torch_is("2.13") else []
    for scales in ((one, one * 5), *each):
        for bias in (None, random(16, seed=4).to(dtype)):
            given = dict(zip(("scale_a", "scale_b"), scales, strict=True))
            given |= {"self": first, "mat2": second, "bias": bias, "out_dtype": dtype}
            given["scale_result"] = None
            found.append(("aten._scaled_mm.default", given))
    return found


@pytest.mark.parametrize("dtype", [FLOATS[0], *FLOATS[2:]], ids=str)
def test_quantized_products_agree(dtype: torch.dtype) -> None:
    for op_type, given in quantized(dtype):
        names = ("self", "mat2", "scales", "scale_a", "scale_b", "bias", "scale_result")
        ordered = {n: given[n] for n in (*names, "out_dtype") if n in given}
        report = verdict(op_type, ordered, against=BOTH)
        assert report.verdict == "agree", (op_type, str(report))
        report = verdict(op_type, ordered, lambda made: [made[0].flip(0)])
        assert report.verdict == "disagree"
        if dtype != torch.float32:
            meant, _, allowed = bounds_of(op_type, **ordered)
            assert seen(meant, allowed, dtype) >= 0.95


def test_a_scaled_product_without_a_type_has_the_operands() -> None:
    (_, given) = quantized(torch.bfloat16)[1]
    made = denoted("aten._scaled_mm.default", *[given[n] for n in ("self", "mat2")], *ONES)
    assert str(made.dtype) == "float8_e4m3fn"


ONES = (torch.ones(()), torch.ones(()))
WINDOWS: dict[str, list[tuple[Any, ...]]] = {
    "hamming_window.default": [(9,), (1,), (0,), (400,)],
    "hamming_window.periodic": [(9, False), (2, True)],
    "hamming_window.periodic_alpha": [(9, False, 0.5)],
    "hamming_window.periodic_alpha_beta": [(9, True, 0.5, -0.3)],
    "blackman_window.default": [(9,), (1,), (300,)],
    "blackman_window.periodic": [(9, False), (2, True)],
    "bartlett_window.default": [(9,), (1,), (8,), (301,)],
    "bartlett_window.periodic": [(9, False), (8, False), (2, True)],
    "kaiser_window.default": [(9,), (1,), (300,)],
    "kaiser_window.periodic": [(9, False), (2, True)],
    "kaiser_window.beta": [(9, False, 3.0), (200, True, 0.0), (64, True, 30.0)],
    "fft_fftfreq.default": [(1,), (8,), (9, 0.3), (250, 7.0)],
    "fft_rfftfreq.default": [(1,), (8,), (9, 0.3), (250, 7.0)],
    "range.default": [(1, 5), (0.5, 3.2), (2, 2)],
    "range.step": [(1, 9, 2), (0.0, 1.0, 0.25), (5, -3, -2)],
}


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_windows_and_frequencies(name: str, dtype: torch.dtype) -> None:
    for args in WINDOWS[name]:
        assert parts_of(f"aten.{name}", *args, dtype=dtype) <= 1
        check(f"aten.{name}", *args, ulp=1e9, atol=0.5)
    args = WINDOWS[name][-1] if "kaiser" not in name else WINDOWS[name][0]
    (meant,), _, (allowed,) = bounds_of(f"aten.{name}", *args, dtype=dtype)
    largest = abs(meant) >= abs(meant).max() / 2
    assert (0.5 * abs(meant)[largest] > allowed[largest]).all()


def test_a_window_or_range_that_is_none_is_refused() -> None:
    assert "window" in refused("aten.kaiser_window.default", -1)
    assert "lead" in refused("aten.range.step", 1, 5, -1)


KINDS = ("chebyshev_polynomial_t", "hermite_polynomial_h", "legendre_polynomial_p")


@pytest.mark.parametrize("kind", [*KINDS, "shifted_chebyshev_polynomial_w"])
def test_polynomials_of_numbers(kind: str) -> None:
    points, degrees = random(20).clamp(-1, 1), torch.arange(6).float()
    for n in (0, 1, 3, 7):
        assert parts_of(f"aten.special_{kind}.n_scalar", points, n) <= 1
    for x in (0.3, -0.7, 1):
        assert parts_of(f"aten.special_{kind}.x_scalar", x, degrees) <= 1
    report = verdict(f"aten.special_{kind}.n_scalar", {"x": points, "n": 3}, off_by(64))
    assert report.verdict == "disagree"


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_convolutions_time_first(dtype: torch.dtype) -> None:
    for pad, width in ((0, 3), (2, 3), (1, 1)):
        given = {"self": random(9, 2, 4, dtype=dtype), "pad": pad}
        given |= {"weight": random(width, 4, 5, dtype=dtype), "bias": random(5, dtype=dtype)}
        ordered = {name: given[name] for name in ("self", "weight", "bias", "pad")}
        report = verdict("aten.conv_tbc.default", ordered, against=BOTH)
        assert report.verdict == "agree", str(report)
        report = verdict("aten.conv_tbc.default", ordered, lambda made: [made[0].flip(0)])
        assert report.verdict == "disagree"


def test_hashes_and_truth() -> None:
    for dtype in (*FLOATS, torch.int64, torch.int8, torch.bool):
        values = random(3, 4).mul(9).to(dtype)
        check("aten.hash_tensor.default", values)
        check("aten.hash_tensor.default", values, [1], keepdim=True)
    for values in ([True, True], [True, False], []):
        mask = torch.tensor(values, dtype=torch.bool)
        check("aten._is_all_true.default", mask)
        check("aten._is_any_true.default", mask)
    assert "hash" in refused("aten.hash_tensor.default", torch.tensor([1j]))


def test_drawn_counts_have_their_mean_and_spread() -> None:
    rates = torch.tensor([0.0, 0.5, 3.0, 80.0]).repeat(4000, 1)
    drawn = denoted("aten.poisson.default", rates)
    assert drawn.dtype == "float32"
    assert abs(drawn.mean(0) - [0, 0.5, 3, 80]).max() < 0.5
    assert abs(drawn.var(0) / [1, 0.5, 3, 80] - [0, 1, 1, 1]).max() < 0.1
    trials = torch.tensor([0.0, 10.0, 100.0]).repeat(4000, 1)
    chances = torch.tensor([0.5, 0.3, 0.9])
    drawn = denoted("aten.binomial.default", trials, chances)
    assert abs(drawn.mean(0) - [0, 3, 90]).max() < 0.2
    assert abs(drawn.var(0) - [0, 2.1, 9]).max() < 0.6
    assert (drawn <= trials.numpy()).all()
    drawn = denoted("aten.random.from", torch.zeros(4000), 3, 7)
    assert sorted({*drawn.tolist()}) == [3, 4, 5, 6]
    assert denoted("aten.random.default", torch.zeros(4000, dtype=torch.int8)).min() == 0
    assert "rates" in refused("aten.poisson.default", torch.tensor([-1.0]))
