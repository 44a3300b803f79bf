"""Products in their own type: torch's are within bounds, and what is off by 8 units is not."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from semantics.judging import off_by, seen, verdict
from semantics.test_tolerance import bounds_of

TYPES = (torch.float32, torch.float16, torch.bfloat16)
NAME = "aten.prod.dim_int"


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_products_that_are_off_by_8_units_are_seen(dtype: torch.dtype) -> None:
    told: list[float] = []
    for seed in range(5):
        for count in (4, 16, 48):
            draws = torch.Generator().manual_seed(seed)
            rows = torch.randn(8, count, generator=draws).to(dtype)
            meant, _, allowed = bounds_of(NAME, rows, 1)
            told.append(seen(meant, allowed, dtype))
            if count < 48:
                report = verdict(NAME, {"self": rows, "dim": 1}, off_by(8, share=1))
                assert report.verdict == "disagree"
    assert np.mean(told) >= 0.95


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("count", [8, 48, 200])
def test_the_greatest_error_of_many_products_is_within_bounds(
    count: int, dtype: torch.dtype
) -> None:
    draws = torch.Generator().manual_seed(count)
    rows = torch.exp(torch.randn(50000, count, generator=draws) / 8).to(dtype)
    for given, dim, keepdim in ((rows, 1, False), (rows.T.contiguous(), 0, True)):
        report = verdict(NAME, {"self": given, "dim": dim, "keepdim": keepdim})
        assert report.verdict == "agree", str(report)


def test_a_product_that_overflows_on_the_way_is_open_and_others_are_not() -> None:
    row = torch.tensor([1000.0, 1000.0, 1e-3, 1e-3], dtype=torch.float16)
    report = verdict(NAME, {"self": row[None], "dim": 1})
    assert torch.prod(row).isinf()
    assert report.verdict in ("agree", "not compared")
    turned = row[[0, 2, 1, 3]]  # 1000, 1, 1000, 1
    assert verdict(NAME, {"self": turned[None], "dim": 1}).verdict == "agree"
    assert verdict(NAME, {"self": turned[None], "dim": 1}, off_by(8)).verdict == "disagree"


def test_what_a_subnormal_product_loses_on_the_way_is_allowed() -> None:
    row = torch.tensor([1.1e-3, 1.3e-3, 997.0, 703.0], dtype=torch.float16)
    assert verdict(NAME, {"self": row[None], "dim": 1}).verdict == "agree"
    turned = row[[0, 2, 1, 3]]
    assert verdict(NAME, {"self": turned[None], "dim": 1}).verdict == "agree"
    assert verdict(NAME, {"self": turned[None], "dim": 1}, off_by(8)).verdict == "disagree"
    report = verdict(NAME, {"self": row[None], "dim": 1}, off_by(8, share=1))
    assert report.verdict == "agree"  # the first two are 1.4e-6, a few units of the least number


@pytest.mark.parametrize("dtype", TYPES[1:], ids=str)
def test_lanes_that_overflow_or_underflow_are_allowed(dtype: torch.dtype) -> None:
    for seed in range(4):
        draws = torch.Generator().manual_seed(seed)
        rows = torch.exp(torch.randn(300, 150 + seed, generator=draws)).to(dtype)
        assert verdict(NAME, {"self": rows, "dim": 1}).verdict in ("agree", "not compared")
        assert verdict("aten.prod.default", {"self": rows[:2]}).verdict in (
            "agree",
            "not compared",
        )
