"""Reflectors and symmetric factors: right ones agree, whatever they are, and wrong ones do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from semantics.compare import denoted, refused
from semantics.judging import verdict
from semantics.test_factorizations import drawn
from torch_ir.errors import InvalidIRError

DTYPES = (torch.float32, torch.float64, torch.complex64)
KINDS = ("usual", "large", "ill", "deficient", "equal", "triangle")
SHAPES = ([3, 3], [5, 3], [3, 5], [2, 4, 4], [1, 1], [0, 3], [40, 20], [150, 150])
BOTH = ("denotation", "eager")
ATEN = torch.ops.aten


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_right_reflectors_agree(kind: str, dtype: torch.dtype) -> None:
    for shape in SHAPES:
        matrix = drawn(shape, dtype, kind, seed=1)
        report = verdict("aten.geqrf.default", {"self": matrix}, against=BOTH)
        assert report.verdict == "agree", (shape, str(report))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_reflectors_make_agrees(dtype: torch.dtype) -> None:
    for shape in ([5, 3], [3, 3], [2, 4, 4], [1, 1], [40, 20], [150, 130]):
        packed, scales = ATEN.geqrf(drawn(shape, dtype, "usual", 2))
        for tau in (scales, scales * 0.7, scales[..., : max(shape[-1] // 2, 1)]):
            given = {"input": packed, "tau": tau}
            report = verdict("aten.linalg_householder_product.default", given, against=BOTH)
            assert report.verdict == "agree", (shape, str(report))
            for left, transpose in ((True, False), (True, True), (False, False), (False, True)):
                rows = shape[-2]
                size = [*shape[:-2], rows, 4] if left else [*shape[:-2], 4, rows]
                other = drawn(size, dtype, "usual", 3)
                few = packed[..., : tau.shape[-1]]  # as many columns as reflectors
                given = {"self": few, "input2": tau, "input3": other}
                given |= {"left": left, "transpose": transpose}
                report = verdict("aten.ormqr.default", given, against=BOTH)
                assert report.verdict == "agree", (shape, left, transpose, str(report))


def _scaled(index: int, factor: float) -> Callable[[list[torch.Tensor]], list[torch.Tensor]]:
    def kernel(results: list[torch.Tensor]) -> list[torch.Tensor]:
        parts = [part.clone() for part in results]
        parts[index][..., 0] *= factor
        return parts

    return kernel


def test_wrong_reflectors_disagree() -> None:
    matrix = drawn([5, 4], torch.float32, "usual", 1)
    for fault in (_scaled(0, 1.0001), _scaled(1, 1.001), _scaled(1, 0), _scaled(0, -1)):
        assert verdict("aten.geqrf.default", {"self": matrix}, fault).verdict == "disagree"
    packed, scales = ATEN.geqrf(matrix)
    fault = _scaled(0, 1.0001)
    given: dict[str, Any] = {"input": packed, "tau": scales}
    report = verdict("aten.linalg_householder_product.default", given, fault)
    assert report.verdict == "disagree"
    given = {"self": packed, "input2": scales, "input3": drawn([5, 3], torch.float32, "usual", 2)}
    given |= {"left": True, "transpose": False}
    assert verdict("aten.ormqr.default", given, fault).verdict == "disagree"


SQUARE = ([3, 3], [2, 4, 4], [1, 1], [0, 0], [40, 40], [100, 100])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", [*KINDS, "zero diagonal", "zero"])
@pytest.mark.parametrize("hermitian", [True, False])
def test_right_symmetric_factors_agree(kind: str, hermitian: bool, dtype: torch.dtype) -> None:
    for shape in SQUARE:
        matrix = drawn(shape, dtype, kind, seed=4)
        matrix = matrix - torch.diag_embed(matrix.diagonal(dim1=-2, dim2=-1)) * ("zero d" in kind)
        matrix = matrix * (kind != "zero")
        report = verdict(
            "aten.linalg_ldl_factor_ex.default",
            {"self": matrix, "hermitian": hermitian},
            against=BOTH,
        )
        assert report.verdict == "agree", (shape, str(report))
        packed, rows, info = ATEN.linalg_ldl_factor_ex(matrix, hermitian=hermitian)
        if info.any() or not matrix.numel():
            continue
        for other in ([*shape[:-1], 2], shape[-2:] if len(shape) > 2 else [3, *shape]):
            given = {"LD": packed, "pivots": rows, "B": drawn(other, dtype, "usual", 5)}
            given |= {"hermitian": hermitian}
            report = verdict("aten.linalg_ldl_solve.default", given, against=BOTH)
            assert report.verdict == "agree", (shape, str(report))


def _moved_pivots(results: list[torch.Tensor]) -> list[torch.Tensor]:
    return [results[0], results[1].flip(-1), results[2]]


def _negated(results: list[torch.Tensor]) -> list[torch.Tensor]:
    return [-results[0], *results[1:]]


def _counted(results: list[torch.Tensor]) -> list[torch.Tensor]:
    return [*results[:2], results[2] + 1]


def test_wrong_symmetric_factors_disagree() -> None:
    matrix = drawn([5, 5], torch.float32, "usual", 1)
    matrix[0, 0] = 0
    for fault in (_scaled(0, 1.0001), _moved_pivots, _counted, _negated):
        report = verdict("aten.linalg_ldl_factor_ex.default", {"self": matrix}, fault)
        assert report.verdict == "disagree"
    packed, rows, _ = ATEN.linalg_ldl_factor_ex(matrix)
    given = {"LD": packed, "pivots": rows, "B": drawn([5, 3], torch.float32, "usual", 2)}
    report = verdict("aten.linalg_ldl_solve.default", given, _scaled(0, 1.0001))
    assert report.verdict == "disagree"


def test_other_pivots_that_are_right_agree() -> None:
    matrix = torch.tensor([[4.0, 1.0], [1.0, 3.0]])

    def without_exchange(results: list[torch.Tensor]) -> list[torch.Tensor]:
        packed = torch.tensor([[3.0, 0.0], [1 / 3, 4 - 1 / 3]])
        return [packed, torch.tensor([2, 2], dtype=torch.int32), results[2]]

    name = "aten.linalg_ldl_factor_ex.default"
    assert verdict(name, {"self": matrix}, without_exchange).verdict == "agree"


def test_the_factors_of_small_matrices() -> None:
    name = "aten.linalg_ldl_factor_ex.default"
    packed, rows, info = denoted(name, torch.tensor([[0.0, 1], [1, 0]]))
    assert (packed.tolist(), rows.tolist(), int(info)) == ([[0, 0], [1, 0]], [-2, -2], 0)
    _, _, info = denoted(name, torch.tensor([[1.0, 1], [1, 1]]))
    assert int(info) == 2


def test_what_is_no_reflector_or_factor_is_refused() -> None:
    packed, scales = torch.eye(4, 3), torch.ones(3)
    name = "aten.linalg_householder_product.default"
    assert "orthogonal columns" in refused(name, packed.T.contiguous(), scales)
    assert "reflectors" in refused(name, packed, torch.ones(4))
    with pytest.raises(InvalidIRError, match="no pivots"):
        denoted("aten.linalg_ldl_solve.default", torch.eye(2), torch.tensor([1, 3]), torch.eye(2))
