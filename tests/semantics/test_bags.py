"""Gradients of bags: right kernels agree, and what is off by few units does not."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch

from semantics.compare import denoted, refused
from semantics.judging import off_by, seen, verdict
from semantics.test_tolerance import bounds_of
from torch_ir.errors import InvalidIRError

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
NAMES = ("_embedding_bag_backward", "_embedding_bag_per_sample_weights_backward")
BOTH = ("denotation", "eager")


def bags(
    dtype: torch.dtype, mode: int, *, padding: int = -1, freq: bool = False, weighs: bool = False
) -> dict[str, Any]:
    draws = torch.Generator().manual_seed(mode)
    table = torch.rand(9, 5, generator=draws, dtype=torch.float64).to(dtype)
    indices = torch.randint(0, 9, (40,), generator=draws)
    if freq:  # of torch 2.13 counts are of other rows, where they differ
        indices = torch.arange(8).repeat(5)
    offsets = torch.tensor([0, 3, 3, 17, 30])
    samples = torch.rand(40, generator=draws, dtype=torch.float64).to(dtype) if weighs else None
    made = torch.ops.aten._embedding_bag(
        table, indices, offsets, freq, mode, False, samples, False, padding
    )
    grad = torch.rand(5, 5, generator=draws, dtype=torch.float64).to(dtype)
    names = ("offset2bag", "bag_size", "maximum_indices")
    given = {"grad": grad, "indices": indices, "offsets": offsets}
    given |= dict(zip(names, made[1:], strict=True))
    rest = {"num_weights": 9, "scale_grad_by_freq": freq, "mode": mode, "sparse": False}
    return given | rest | {"per_sample_weights": samples, "padding_idx": padding}


def of_samples(given: dict[str, Any]) -> dict[str, Any]:
    draws = torch.Generator().manual_seed(5)
    table = torch.rand(9, 5, generator=draws, dtype=torch.float64).to(given["grad"].dtype)
    taken = ("indices", "offsets", "offset2bag", "mode", "padding_idx")
    return {"grad": given["grad"], "weight": table} | {name: given[name] for name in taken}


def calls(dtype: torch.dtype) -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = []
    for mode in (0, 1, 2):
        for padding in (-1, 4):
            for freq in (False, True) if mode < 2 else (False,):
                for weighs in (False, True) if not mode else (False,):
                    given = bags(dtype, mode, padding=padding, freq=freq, weighs=weighs)
                    found.append((NAMES[0], given))
                    if not mode:
                        found.append((NAMES[1], of_samples(given)))
    return found


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_of_bags_agree(dtype: torch.dtype) -> None:
    for name, given in calls(dtype):
        report = verdict(f"aten.{name}.default", given, against=BOTH)
        assert report.verdict == "agree", (name, str(report))
    given = bags(dtype, 1)
    del given["offsets"], given["sparse"]
    report = verdict("aten._embedding_bag_dense_backward.default", given, against=BOTH)
    assert report.verdict == "agree", str(report)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != torch.float64])
def test_gradients_that_are_off_by_8_units_are_seen(dtype: torch.dtype) -> None:
    for name, given in calls(dtype):
        op_type = f"aten.{name}.default"
        meant, _, allowed = bounds_of(op_type, **given)
        assert seen(meant, allowed, dtype) >= 0.95, (name, given)
        share = 1 / 3
        assert verdict(op_type, given, off_by(16, share=share)).verdict == "disagree", name
        report = verdict(op_type, given, lambda made: [made[0].flip(0)])
        assert report.verdict == "disagree"


def test_a_row_is_divided_by_how_often_it_is_meant() -> None:
    given = bags(torch.float32, 0, freq=True) | {"indices": torch.tensor([1, 1, 3])}
    given |= {"offsets": torch.tensor([0, 2]), "grad": torch.ones(2, 1), "num_weights": 4}
    (given["offset2bag"], given["bag_size"]) = torch.tensor([0, 0, 1]), torch.zeros(2).long()
    made = denoted("aten._embedding_bag_backward.default", **given)
    assert made[:, 0].tolist() == [0, 1, 0, 1]  # torch 2.13 has 0.5 at the end


def test_what_is_no_gradient_of_bags_is_refused() -> None:
    given = bags(torch.float32, 0)
    weighed = given | {"mode": 1, "per_sample_weights": torch.ones(40)}
    assert "sums only" in refused("aten._embedding_bag_backward.default", **weighed)
    sampled = of_samples(given) | {"mode": 1}
    name = "aten._embedding_bag_per_sample_weights_backward.default"
    assert "sums only" in refused(name, **sampled)
    with pytest.raises(InvalidIRError, match="out of range"):  # torch's kernel dies of it
        denoted(
            "aten._embedding_bag_backward.default", **given | {"indices": torch.full((40,), 9)}
        )
    with pytest.raises(InvalidIRError, match="sparse"):
        denoted("aten._embedding_bag_backward.default", **given | {"sparse": True})


@pytest.mark.parametrize("dtype", DTYPES[:3])
def test_indices_behind_the_last_offset_are_open(dtype: torch.dtype) -> None:
    draws = torch.Generator().manual_seed(0)
    table = torch.rand(6, 5, generator=draws, dtype=torch.float64).to(dtype)
    for last, padding, mode, weighs in product((5, 6, 8), (-1, 5), (0, 1, 2), (False, True)):
        if weighs and mode:
            continue
        given: dict[str, Any] = {
            "weight": table,
            "indices": torch.tensor([0, 1, 2, 3, 4, 5, 0, 1]),
            "offsets": torch.tensor([0, 3, last]),
            "scale_grad_by_freq": False,
            "mode": mode,
            "sparse": False,
            "per_sample_weights": torch.ones(8, dtype=dtype) if weighs else None,
            "include_last_offset": True,
            "padding_idx": padding,
        }
        op_type = "aten._embedding_bag.default"
        report = verdict(op_type, given, against=BOTH)
        assert report.verdict == "agree", (last, padding, mode, str(report))
        first = verdict(op_type, given, lambda made: [of_row(made[0], 0), *made[1:]])
        assert first.verdict == "disagree"
        whole = verdict(op_type, given, lambda made: [of_row(made[0], 1), *made[1:]])
        assert whole.verdict == ("disagree" if last == 8 else "agree")


def of_row(result: torch.Tensor, row: int) -> torch.Tensor:
    """The result with one row that is off."""
    return result + torch.eye(len(result), dtype=result.dtype)[row, :, None]
