"""Gradients of batch normalization: right kernels agree in every layout, and faults do not."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from semantics.compare import denoted, refused
from semantics.judging import off_by, seen, verdict
from semantics.test_tolerance import bounds_of
from torch_ir.errors import InvalidIRError

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
BOTH = ("denotation", "eager")
EPS = 1e-5


def images(shape: tuple[int, ...], kind: str, seed: int) -> torch.Tensor:
    draws = torch.Generator().manual_seed(seed)
    values = torch.randn(*shape, generator=draws, dtype=torch.float64)
    if kind == "far from zero":
        return values + 100
    if kind == "mostly equal":
        places = torch.arange(values.numel()).reshape(shape)
        return torch.where(places % 16 == 5, values, 0.7)
    return values


def backward(
    dtype: torch.dtype,
    shape: tuple[int, ...],
    kind: str = "usual",
    *,
    train: bool = True,
    weighs: bool = True,
    parameters: torch.dtype | None = None,
    last: bool = False,
) -> dict[str, Any]:
    kept = parameters or dtype
    values, grad = (images(shape, kind, seed).to(dtype) for seed in (0, 1))
    if last and len(shape) == 4:
        values, grad = (t.contiguous(memory_format=torch.channels_last) for t in (values, grad))
    axes = (0, *range(2, len(shape)))
    mean, spread = values.double().mean(axes), values.double().var(axes, correction=0)
    draws = torch.Generator().manual_seed(2)
    weight = torch.rand(shape[1], generator=draws, dtype=torch.float64).to(kept)
    return {
        "grad_out": grad,
        "input": values,
        "weight": weight if weighs else None,
        "running_mean": (mean + 0.1).to(kept),
        "running_var": (spread + 0.5).to(kept),
        "save_mean": mean.to(kept),
        "save_invstd": (1 / (spread + EPS).sqrt()).to(kept),
        "train": train,
        "eps": EPS,
        "output_mask": [True] * 3,
    }


SHAPES = ((4, 3), (2, 3, 5), (3, 4, 9, 8), (8, 3, 33, 32))
NAME = "aten.native_batch_norm_backward.default"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ["usual", "far from zero", "mostly equal"])
def test_gradients_of_batches_agree(kind: str, dtype: torch.dtype) -> None:
    for shape in SHAPES:
        for train in (True, False):
            for last, weighs in ((False, True), (True, True), (False, False)):
                given = backward(dtype, shape, kind, train=train, last=last, weighs=weighs)
                report = verdict(NAME, given, against=BOTH)
                assert report.verdict == "agree", (shape, train, last, weighs, str(report))
    if dtype.itemsize == 2:
        given = backward(dtype, SHAPES[2], kind, parameters=torch.float32)
        report = verdict(NAME, given, against=BOTH)
        assert report.verdict == "agree", str(report)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("train", [True, False])
def test_gradients_in_another_layout_than_the_operand_agree(
    train: bool, dtype: torch.dtype
) -> None:
    for shape in SHAPES[1:]:
        for kept in {dtype, torch.float32 if dtype.itemsize == 2 else dtype}:
            given = backward(dtype, shape, train=train, parameters=kept)
            grad = given["grad_out"]
            turned = grad.transpose(0, 1).contiguous().transpose(0, 1)
            for other in (turned, grad[:1, :1].expand(shape)):
                report = verdict(NAME, given | {"grad_out": other}, against=BOTH)
                assert report.verdict == "agree", (shape, kept, str(report))
                wrong = verdict(NAME, given | {"grad_out": other}, _off)
                assert wrong.verdict == "disagree"


def _off(results: list[torch.Tensor]) -> list[torch.Tensor]:
    return [results[0] + results[0].abs().max() / 4, *results[1:]]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_only_what_is_asked_for_is_compared(dtype: torch.dtype) -> None:
    for mask in ([True, False, False], [False, True, True], [False, False, True]):
        given = backward(dtype, SHAPES[2]) | {"output_mask": mask}
        report = verdict(NAME, given, against=BOTH)
        assert report.verdict == "agree", (mask, str(report))


@pytest.mark.parametrize("dtype", DTYPES[2:], ids=str)
@pytest.mark.parametrize("train", [True, False])
def test_gradients_of_half_types_that_are_off_by_8_units_are_seen(
    dtype: torch.dtype, train: bool
) -> None:
    for shape in SHAPES[1:]:
        given = backward(dtype, shape, train=train)
        meant, _, allowed = bounds_of(NAME, **given)
        assert seen(meant, allowed, dtype) >= 0.95
        for index in range(3):
            assert verdict(NAME, given, off_by(8, index)).verdict == "disagree"


def test_faults_of_gradients_in_float32_are_seen() -> None:
    given = backward(torch.float32, SHAPES[2])

    def as_evaluated(results: list[torch.Tensor]) -> list[torch.Tensor]:
        return list(torch.ops.aten.native_batch_norm_backward(**{**given, "train": False}))

    def biased(results: list[torch.Tensor]) -> list[torch.Tensor]:
        return [results[0] + 1e-4, *results[1:]]

    for fault in (as_evaluated, biased, off_by(256, 0), off_by(256, 1, 1), off_by(256, 2, 1)):
        assert verdict(NAME, given, fault).verdict == "disagree"


def test_the_operator_with_a_reserve_means_the_same() -> None:
    given = backward(torch.float32, SHAPES[2])
    own = {name: value for name, value in given.items() if name not in ("save_invstd", "train")}
    own |= {"save_var": given["save_invstd"], "update": True, "reserve": torch.zeros(0)}
    report = verdict("aten.batch_norm_backward.default", own, against=BOTH)
    assert report.verdict == "agree", str(report)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_batch_norm_that_updates_gives_its_statistics(dtype: torch.dtype) -> None:
    for kept in {dtype, torch.float32 if dtype.itemsize == 2 else dtype}:
        given = backward(dtype, SHAPES[2], parameters=kept)
        names = ("input", "weight", "bias", "running_mean", "running_var")
        taken = {n: given.get(n, given["running_mean"]).clone() for n in names}
        name = "aten._batch_norm_with_update.default"  # in functional form
        report = verdict(name, taken | {"momentum": 0.1, "eps": EPS}, against=BOTH)
        assert report.verdict == "agree", str(report)


def test_statistics_that_are_absent_are_refused() -> None:
    given = backward(torch.float32, SHAPES[1]) | {"save_mean": None}
    with pytest.raises(InvalidIRError, match="absent"):
        denoted(NAME, **given)
    mixed = backward(torch.float32, SHAPES[1], parameters=torch.float64)
    assert "not normalized" in refused(NAME, **mixed)
