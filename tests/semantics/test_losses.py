"""Losses over alignments and gradients of margins: right kernels agree, and faults do not."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from semantics.compare import check, denoted, refused
from semantics.judging import off_by, seen, verdict
from semantics.test_tolerance import bounds_of

DTYPES = (torch.float32, torch.float64)
BOTH = ("denotation", "eager")


def ctc(
    dtype: torch.dtype,
    seed: int = 0,
    *,
    steps: int = 40,
    in_rows: bool = True,
    kind: str = "usual",
) -> dict[str, Any]:
    draws = torch.Generator().manual_seed(seed)
    logits = torch.randn(steps, 4, 7, generator=draws, dtype=torch.float64)
    if kind == "equal":
        logits = torch.zeros_like(logits)
    if kind == "sure":
        logits = logits * 40
    if kind == "impossible":
        logits[:, 0, 3] = -float("inf")
    counts = [3, 0, 12, 7]
    targets = torch.randint(1, 7, (4, 12), generator=draws)
    targets[0, :3] = torch.tensor([3, 3, 1])
    if not in_rows:
        targets = torch.cat([row[:count] for row, count in zip(targets, counts, strict=True)])
    return {
        "log_probs": logits.log_softmax(-1).to(dtype),
        "targets": targets,
        "input_lengths": [steps, steps - 3, steps, steps // 2],
        "target_lengths": counts,
        "blank": 0,
        "zero_infinity": False,
    }


def gradient(arguments: dict[str, Any]) -> dict[str, Any]:
    losses, alphas = torch.ops.aten._ctc_loss(**arguments)
    draws = torch.Generator().manual_seed(9)
    weights = torch.rand(losses.shape, generator=draws).to(losses.dtype)
    order = {"grad": weights, **arguments, "neg_log_likelihood": losses, "log_alpha": alphas}
    return {n: order[n] for n in (*[k for k in order if k not in LAST], *LAST)}


LAST = ("blank", "zero_infinity")
KINDS = ("usual", "equal", "sure", "impossible")


def as_tensors(arguments: dict[str, Any]) -> dict[str, Any]:
    return {n: torch.tensor(v) if "lengths" in n else v for n, v in arguments.items()}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_alignments_agree(kind: str, dtype: torch.dtype) -> None:
    for seed in range(3):
        for steps, in_rows in ((40, True), (25, False), (200, True)):
            given = ctc(dtype, seed, steps=steps, in_rows=in_rows, kind=kind)
            for name, arguments in (("_ctc_loss", given), ("_ctc_loss_backward", gradient(given))):
                report = verdict(f"aten.{name}.default", arguments, against=BOTH)
                assert report.verdict == "agree", str(report)
                report = verdict(f"aten.{name}.Tensor", as_tensors(arguments), against=BOTH)
                assert report.verdict == "agree", str(report)


def test_labels_that_do_not_fit_have_no_alignment() -> None:
    given = ctc(torch.float32, steps=10)
    assert verdict("aten._ctc_loss.default", given, against=BOTH).verdict == "agree"
    for zeroed in (False, True):
        back = gradient(given) | {"zero_infinity": zeroed}
        report = verdict("aten._ctc_loss_backward.default", back, against=BOTH)
        assert report.verdict == "agree", str(report)
    none = given | {"input_lengths": [10, 0, 0, 4]}
    assert verdict("aten._ctc_loss.default", none, against=BOTH).verdict == "agree"


def test_what_is_no_batch_of_labels_is_refused() -> None:
    given = ctc(torch.float32)
    assert "lengths" in refused("aten._ctc_loss.default", **given | {"input_lengths": [41] * 4})
    assert "lengths" in refused("aten._ctc_loss.default", **given | {"target_lengths": [13] * 4})
    half = given | {"log_probs": given["log_probs"].half()}
    assert "float16" in refused("aten._ctc_loss.default", **half)


@pytest.mark.parametrize(("steps", "units"), [(26, 8), (50, 8), (100, 16)])
def test_a_loss_that_is_off_by_few_units_is_seen(steps: int, units: int) -> None:
    for seed in range(3):
        given = ctc(torch.float32, seed, steps=steps)
        meant, _, allowed = bounds_of("aten._ctc_loss.default", **given)
        assert seen(meant, allowed, torch.float32, units) >= 0.95
        report = verdict("aten._ctc_loss.default", given, off_by(units))
        assert report.verdict == "disagree"
        back = gradient(given)
        assert verdict("aten._ctc_loss_backward.default", back, off_by(8192)).verdict == "disagree"


def test_the_values_of_steps_that_an_element_has_not_are_open() -> None:
    given = ctc(torch.float32)

    def elsewhere(results: list[torch.Tensor]) -> list[torch.Tensor]:
        losses, alphas = results[0].clone(), results[1].clone()
        alphas[3, 20:] = 5.0
        alphas[0, 1:, 7:] = float("nan")
        return [losses, alphas]

    assert verdict("aten._ctc_loss.default", given, elsewhere, BOTH).verdict == "agree"

    def first(results: list[torch.Tensor]) -> list[torch.Tensor]:
        alphas = results[1].clone()
        alphas[0, 0, 9] = 5.0
        return [results[0], alphas]

    for reader in BOTH:
        assert verdict("aten._ctc_loss.default", given, first, [reader]).verdict == "disagree"


def margins(dtype: torch.dtype, seed: int, **more: Any) -> dict[str, Any]:
    draws = torch.Generator().manual_seed(seed)
    values = torch.randn(6, 9, generator=draws, dtype=torch.float64).to(dtype)
    if seed % 2:
        values = (values * 4).round() / 4  # margins of exactly 0
    reduction = seed % 3
    grads = torch.rand([] if reduction else [6], generator=draws, dtype=torch.float64).to(dtype)
    target = torch.randint(0, 9, (6,), generator=draws)
    weight = torch.rand(9, generator=draws, dtype=torch.float64).to(dtype)
    given = {"grad_output": grads, "self": values, "target": target, "p": 1, "margin": 1.0}
    return given | {"weight": weight if seed % 4 else None, "reduction": reduction} | more


def label_margins(dtype: torch.dtype, seed: int) -> dict[str, Any]:
    given = margins(dtype, seed)
    draws = torch.Generator().manual_seed(seed)
    labels = torch.stack([torch.randperm(9, generator=draws) for _ in range(6)])
    for row, count in enumerate((0, 1, 4, 8, 2, 3)):
        labels[row, count] = -1
    values, reduction = given["self"], given["reduction"]
    is_target = torch.ops.aten.multilabel_margin_loss_forward(values, labels, reduction)[1]
    kept = {n: given[n] for n in ("grad_output", "self")}
    return kept | {"target": labels, "reduction": reduction, "is_target": is_target}


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_of_margins_agree(dtype: torch.dtype) -> None:
    for seed in range(12):
        for p, margin in ((1, 1.0), (2, 1.0), (1, 0.5), (2, 2)):
            given = margins(dtype, seed, p=p, margin=margin)
            report = verdict("aten.multi_margin_loss_backward.default", given, against=BOTH)
            assert report.verdict == "agree", str(report)
        given = label_margins(dtype, seed)
        report = verdict("aten.multilabel_margin_loss_backward.default", given, against=BOTH)
        assert report.verdict == "agree", str(report)
    one = {"self": torch.randn(9, dtype=dtype), "target": torch.tensor(4), "reduction": 1}
    given = margins(dtype, 1) | one
    assert verdict("aten.multi_margin_loss_backward.default", given).verdict == "agree"


@pytest.mark.parametrize("dtype", DTYPES[:1])
def test_gradients_of_margins_that_are_off_are_seen(dtype: torch.dtype) -> None:
    for seed in range(0, 12, 2):
        for name, given in (
            ("multi_margin", margins(dtype, seed)),
            ("multilabel_margin", label_margins(dtype, seed)),
        ):
            op_type = f"aten.{name}_loss_backward.default"
            meant, _, allowed = bounds_of(op_type, **given)
            assert seen(meant, allowed, dtype) >= 0.95
            assert verdict(op_type, given, off_by(8, share=0.5)).verdict == "disagree"
            report = verdict(op_type, given, lambda made: [made[0].flip(-1)])
            assert report.verdict == "disagree"


ALL = (*DTYPES, torch.float16, torch.bfloat16)


def entropies(dtype: torch.dtype, kind: str) -> list[dict[str, Any]]:
    draws, info = torch.Generator().manual_seed(3), torch.finfo(dtype)
    values = torch.rand(56, generator=draws, dtype=torch.float64)
    if kind == "less than normal":
        values = torch.linspace(0, 2, 56, dtype=torch.float64) * info.tiny
    if kind == "at the ends":
        ends = [0, 1, 1 - info.eps / 2, info.tiny, info.tiny / 4, 1e-12, 1e-6]
        values = torch.tensor(ends * 8, dtype=torch.float64)
    values = values.to(dtype)
    others = torch.rand(56, generator=draws, dtype=torch.float64).to(dtype)
    grads = torch.randn(56, generator=draws, dtype=torch.float64).to(dtype)
    found: list[dict[str, Any]] = []
    for target in (others, (others > 0.5).to(dtype), values):
        for weight in (None, others.flip(0)):
            for reduction, grad in ((0, grads), (1, grads[0]), (2, grads[0])):
                given = {"grad_output": grad, "self": values, "target": target}
                found.append(given | {"weight": weight, "reduction": reduction})
    return found


@pytest.mark.parametrize("kind", ["usual", "less than normal", "at the ends"])
@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_gradients_of_entropies_agree(dtype: torch.dtype, kind: str) -> None:
    name = "aten.binary_cross_entropy_backward.default"
    for given in entropies(dtype, kind):
        report = verdict(name, given, against=BOTH)
        assert report.verdict == "agree", str(report)


@pytest.mark.parametrize("dtype", ALL[:1] + ALL[2:], ids=str)
def test_gradients_of_entropies_that_are_off_by_8_units_are_seen(dtype: torch.dtype) -> None:
    name = "aten.binary_cross_entropy_backward.default"
    for given in entropies(dtype, "usual")[:12]:
        meant, _, allowed = bounds_of(name, **given)
        assert seen(meant, allowed, dtype) >= 0.95
        assert verdict(name, given, off_by(8)).verdict == "disagree"


# -- logarithms of probabilities ------------------------------------------------------------------

HALVES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
LOSSES = ("equal", "of two sizes", "behind a large one", "usual")


def classified(
    dtype: torch.dtype, how: str, shape: tuple[int, ...], *, weighs: bool, reduction: int
) -> dict[str, Any]:
    draws = torch.Generator().manual_seed(len(how))
    values = -torch.rand(shape, generator=draws, dtype=torch.float64)
    place = min(len(shape) - 1, 1)
    kept = shape[:place] + shape[place + 1 :]
    at = torch.arange(math.prod(kept)).reshape(kept).unsqueeze(place)
    if how == "equal":
        values = torch.full_like(values, -1.386)
    if how == "of two sizes":
        values = torch.where(at % 2 == 0, -0.3, -0.1).expand(shape)
    if how == "behind a large one":
        values = torch.where(at == 3, values - 1, values * 2.0**-11)
    target = torch.randint(0, shape[place], kept, generator=draws)
    if kept:
        target.view(-1)[::5] = -100
    weight = torch.arange(shape[place]) + 0.5
    return {
        "self": values.to(dtype),
        "target": target,
        "weight": weight.to(dtype) if weighs else None,
        "reduction": reduction,
        "ignore_index": -100,
    }


def classified_calls(dtype: torch.dtype) -> Iterator[tuple[str, dict[str, Any]]]:
    for how, weighs, reduction in product(LOSSES, (False, True), (0, 1, 2)):
        for shape in ((7,), (1, 3), (10_000, 3), (90, 4, 6, 5), (300, 4, 9)):
            given = classified(dtype, how, shape, weighs=weighs, reduction=reduction)
            if len(shape) < 3:
                yield "aten.nll_loss_forward.default", given
            if len(shape) == 4:
                yield "aten.nll_loss2d_forward.default", given
            yield "aten.nll_loss_nd.default", given


@pytest.mark.parametrize("dtype", HALVES)
def test_losses_by_class_agree(dtype: torch.dtype) -> None:
    for op_type, given in classified_calls(dtype):
        report = verdict(op_type, given, against=BOTH)
        assert report.verdict == "agree", (given["self"].shape, given["reduction"], str(report))


@pytest.mark.parametrize("dtype", HALVES)
def test_losses_by_class_with_a_fault_are_seen(dtype: torch.dtype) -> None:
    loss = torch.nn.functional.nll_loss
    for shape, reduction in product(((50, 3), (20, 3, 6, 5)), ("none", "mean", "sum")):
        number = ("none", "mean", "sum").index(reduction)
        given = classified(dtype, "usual", shape, weighs=True, reduction=number)
        scales = torch.tensor([1, 30, 3], dtype=dtype).reshape(1, 3, *[1] * (len(shape) - 2))
        given["self"] = given["self"] * scales
        places = torch.arange(given["target"].numel()).reshape(given["target"].shape)
        given["target"] = given["target"].where(given["target"] < 0, places % 4 // 3 * 2)
        values, target, weight = (given[name] for name in ("self", "target", "weight"))
        how = {"reduction": reduction}
        faults = {
            "weights dropped": loss(values, target, **how),
            "the next class": loss(values.roll(1, 1), target, weight, **how),
            "counted what is ignored": loss(values, target.where(target >= 0, 1), weight, **how),
            "the other reduction": loss(values, target, weight, reduction="sum") / target.numel(),
        }
        for name, wrong in faults.items():
            if wrong.shape == (target.shape if reduction == "none" else ()):
                made = verdict("aten.nll_loss_nd.default", given, lambda _, w=wrong: [w])
                assert made.verdict == "disagree", (name, shape, reduction)


def test_losses_by_class_by_hand() -> None:
    values = torch.tensor([[-1.0, -2.0], [-3.0, -4.0], [-5.0, -6.0]])
    target, weight = torch.tensor([1, 0, -100]), torch.tensor([0.5, 2.0])
    total, weighed = denoted("aten.nll_loss_forward.default", values, target, weight, 2)
    assert (total, weighed) == (5.5, 2.5)
    mean, _ = denoted("aten.nll_loss_forward.default", values, target, weight)
    assert mean == np.float32(2.2)
    losses, none = denoted("aten.nll_loss_forward.default", values, target, None, 0)
    assert (losses.tolist(), none) == ([2, 3, 0], 0)
    ignored = torch.full((3,), -100)
    assert np.isnan(denoted("aten.nll_loss.default", values, ignored))
    assert denoted("aten.nll_loss.default", values, ignored, None, 2) == 0
    bytes_of = target[:2].to(torch.uint8)
    assert denoted("aten.nll_loss.default", values[:2], bytes_of) == 2.5
    assert "out of range" in refused("aten.nll_loss.default", self=values, target=ignored + 102)
    text = refused("aten.nll_loss.default", self=values, target=target[:2])
    assert "no loss of float32 [3, 2] at [2]" in text


@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_of_no_targets_there_may_be_no_classes(reduction: int) -> None:
    none = torch.zeros(0, dtype=torch.int64)
    check("aten.nll_loss_forward.default", torch.zeros(0, 0), none, None, reduction, -100)
    one = none.new_zeros(1)
    told = refused("aten.nll_loss_forward.default", torch.zeros(1, 0), one, None, reduction, -100)
    assert "no loss of float32 [1, 0] at [1]" in told
