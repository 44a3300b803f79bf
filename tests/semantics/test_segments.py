"""Segments, histograms and shortened rows: torch's within bounds that planted errors exceed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from semantics.compare import denoted, refused
from semantics.judging import off_by, verdict
from semantics.test_tolerance import bounds_of
from torch_ir.debug.reference.tolerance_check import within

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def agree(op_type: str, *args: Any, **kwargs: Any) -> None:
    """Assert that torch's result is within its bounds, and one that is off by a tenth is not."""
    meant, got, allowed = bounds_of(op_type, *args, **kwargs)
    for mine, theirs, error in zip(meant, got, allowed, strict=True):
        assert not within(mine, theirs, error).reason, op_type
    mine, error = meant[0], allowed[0]
    if np.isfinite(mine).any() and (mine != 0).any():
        assert within(mine, mine * 1.25, error).reason, op_type


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
def test_segments_are_reduced_one_by_one(reduce: str, dtype: torch.dtype) -> None:
    draws = torch.Generator().manual_seed(0)
    for shape, axis in (([12], 0), ([12, 3], 0), ([2, 12], 1), ([2, 12, 3], 1)):
        data = torch.randn(*shape, generator=draws).to(dtype)
        lengths = torch.tensor([3, 0, 7, 2]).expand(*shape[:axis], 4).contiguous()
        for initial in (None, 2.0):
            given = {"axis": axis, "initial": initial, "unsafe": False}
            agree("aten.segment_reduce.default", data, reduce, lengths=lengths, **given)
        offsets = torch.cat([torch.zeros_like(lengths[..., :1]), lengths.cumsum(-1)], -1)
        agree("aten.segment_reduce.default", data, reduce, offsets=offsets, axis=axis)


@pytest.mark.parametrize("dtype", DTYPES[:2])
def test_histograms_count_by_edges(dtype: torch.dtype) -> None:
    values = torch.randn(500, generator=torch.Generator().manual_seed(0)).to(dtype)
    weight = torch.rand(500, generator=torch.Generator().manual_seed(1)).to(dtype)
    edges = torch.tensor([-2.0, -0.5, 0.0, 0.25, 3.0], dtype=dtype)
    for given in ({}, {"weight": weight}, {"density": True}, {"weight": weight, "density": True}):
        agree("aten.histogram.bin_ct", values, 7, **given)
        agree("aten.histogram.bin_ct", values, 7, range=[-1.0, 1.0], **given)
        agree("aten.histogram.bins_tensor", values, edges, **given)
    agree("aten.histogram.bin_ct", torch.zeros(0, dtype=dtype), 3)
    agree("aten.histogram.bin_ct", torch.full((3,), 2.0, dtype=dtype), 3)
    assert "bins" in refused("aten.histogram.bin_ct", torch.tensor([1.0, float("nan")]), 3)


@pytest.mark.parametrize("norm", [1.0, 2.0, 3.0, float("inf")])
@pytest.mark.parametrize("dtype", DTYPES[:2])
def test_rows_longer_than_the_most_are_shortened(norm: float, dtype: torch.dtype) -> None:
    table = torch.randn(6, 5, generator=torch.Generator().manual_seed(0)).to(dtype)
    table[3] = 0
    agree("aten.embedding_renorm.default", table, torch.tensor([0, 2, 2, 3, 5]), 1.0, norm)


BOTH = ("denotation", "eager")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
def test_gradients_of_segments(reduce: str, dtype: torch.dtype) -> None:
    draws = torch.Generator().manual_seed(0)
    for shape, axis in (([12], 0), ([12, 3], 0), ([2, 12], 1)):
        for initial in (None, 2.0):
            data = torch.randn(*shape, generator=draws, dtype=torch.float64)
            data.view(-1)[::5] = 0.5
            data.view(-1)[3::7] = 0
            data = data.to(dtype)
            lengths = torch.tensor([3, 0, 7, 2]).expand(*shape[:axis], 4).contiguous()
            given = {"lengths": lengths, "axis": axis, "initial": initial}
            made = torch.ops.aten.segment_reduce(data, reduce, unsafe=False, **given)
            grad = torch.rand(made.shape, generator=draws).to(dtype)
            # not a negative one: torch gives it to equal extremes in full
            full = {"grad": grad, "output": made, "data": data, "reduce": reduce, **given}
            report = verdict("aten._segment_reduce_backward.default", full, against=BOTH)
            assert report.verdict == "agree", str(report)
            fault = off_by(16, share=1)
            report = verdict("aten._segment_reduce_backward.default", full, fault)
            is_initial = reduce in ("max", "min") and initial is not None  # most have 0
            assert report.verdict == "disagree" or reduce == "prod" or is_initial


def test_equal_extremes_share_a_gradient() -> None:
    grad, data = torch.tensor([1.0, -1.0]), torch.tensor([2.0, 2.0, 1.0, 3.0, 3.0])
    made = denoted(
        "aten._segment_reduce_backward.default",
        *(grad, torch.tensor([2.0, 3.0]), data, "max"),
        lengths=torch.tensor([3, 2]),
    )
    assert made.tolist() == [0.5, 0.5, 0, -0.5, -0.5]


@pytest.mark.parametrize("dtype", DTYPES[:2])
def test_histograms_of_columns(dtype: torch.dtype) -> None:
    draws = torch.Generator().manual_seed(0)
    rows = torch.randn(400, 2, generator=draws, dtype=torch.float64).to(dtype)
    weight = torch.rand(400, generator=draws, dtype=torch.float64).to(dtype)
    edges = [torch.tensor([-2.0, -0.5, 0.1, 3.0]).to(dtype), torch.tensor([-1.0, 0.5]).to(dtype)]
    name = "aten._histogramdd_from_bin"
    for more in ({}, {"weight": weight}, {"density": True}, {"weight": weight, "density": True}):
        for ends in (None, [-1.0, 1.0, 0.0, 2.0]):
            given = {"self": rows, "bins": [3, 4], "range": ends, **more}
            report = verdict(f"{name}_cts.default", given, against=BOTH)
            assert report.verdict == "agree", str(report)
            report = verdict(f"{name}_cts.default", given, lambda made: [made[0].flip(0)])
            assert report.verdict == "disagree"
        given = {"self": rows, "bins": edges, **more}
        report = verdict(f"{name}_tensors.default", given, against=BOTH)
        assert report.verdict == "agree", str(report)
        report = verdict(f"{name}_tensors.default", given, lambda made: [made[0] * 1.001])
        assert report.verdict == "disagree"
    for given in ({"self": rows, "bins": [3, 4]}, {"self": rows[:0], "bins": [1, 2]}):
        report = verdict("aten._histogramdd_bin_edges.default", given, against=BOTH)
        assert report.verdict == "agree", str(report)
    assert "columns" in refused("aten._histogramdd_from_bin_cts.default", rows, [2, 2, 2])
