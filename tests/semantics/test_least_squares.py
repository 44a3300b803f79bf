"""Least squares: right solutions agree, by whatever driver, and wrong ones do not."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from infer.trusting_calls import program_of
from semantics.compare import denoted, refused
from semantics.test_factorizations import drawn
from torch_ir.debug.reference.denotation import Meanings, errors_of

DTYPES = (torch.float32, torch.float64, torch.complex64)
DRIVERS = ("gels", "gelsy", "gelsd", "gelss", None)
NAME = "aten.linalg_lstsq.default"


def reasons(given: dict[str, Any], results: list[torch.Tensor]) -> list[str]:
    """What is wrong with the results of a call: sizes follow from data, so that none compiles."""
    ir, tensors = program_of(NAME, given, results)
    (node,) = ir.nodes
    meaning = Meanings(ir).of(node)
    assert not isinstance(meaning, str), meaning
    made = errors_of(meaning, node, tensors, {}, results, {}, drew=False)
    return [error.reason for _, error in made if error.reason]


def solved(given: dict[str, Any]) -> list[torch.Tensor]:
    return list(torch.ops.aten.linalg_lstsq(**given))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("driver", DRIVERS)
def test_right_solutions_agree(driver: str | None, dtype: torch.dtype) -> None:
    for shape in ([5, 3], [3, 5], [4, 4], [2, 6, 3], [60, 20]):
        for kind in ("usual", "large", "deficient"):
            if kind == "deficient" and driver in ("gels", "gelsy", None):
                continue  # gels asks for full rank; gelsy reads columns that nothing has written
            matrix = drawn(shape, dtype, kind, 1)
            for size in ([*shape[:-1], 2], shape[:-1]):
                given: dict[str, Any] = {"self": matrix, "b": drawn(size, dtype, "usual", 2)}
                given |= {"rcond": None, "driver": driver}
                results = solved(given)
                assert reasons(given, results) == [], (shape, kind, size)
                meant = denoted(NAME, given["self"], given["b"], None, driver=driver)
                assert [r.shape for r in meant] == [tuple(r.shape) for r in results]


@pytest.mark.parametrize("shape", [[6, 3], [3, 6]])
def test_wrong_solutions_disagree(shape: list[int]) -> None:
    matrix = drawn(shape, torch.float32, "usual", 1)
    given = {"self": matrix, "b": drawn([shape[0], 2], torch.float32, "usual", 2)}
    given |= {"rcond": None, "driver": "gelsd"}
    right = solved(given)
    for index in range(4):
        if right[index].numel():
            wrong = [part.clone() for part in right]
            wrong[index] = wrong[index] * 2 if index == 2 else wrong[index] * 1.001
            assert reasons(given, wrong), index
    longer = right[0] + torch.linalg.svd(matrix)[2][-1][:, None] * (shape[0] < shape[1])
    assert bool(reasons(given, [longer, *right[1:]])) == (shape[0] < shape[1])


def test_what_has_no_least_squares_is_refused() -> None:
    assert "right sides" in refused(NAME, torch.ones(3, 2), torch.ones(4, 1))
    assert "by other" in refused(NAME, torch.ones(3, 2), torch.ones(3, 1), driver="other")
