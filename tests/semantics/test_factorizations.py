"""Factors of matrices: right ones agree, whatever their signs, and wrong ones do not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from semantics.judging import verdict
from torch_ir import extract_ir, validate

DTYPES = (torch.float32, torch.float64, torch.complex64)
SHAPES = ([3, 3], [5, 3], [3, 5], [2, 4, 4], [1, 1], [0, 3], [40, 20], [64, 64])
SQUARE = ([3, 3], [2, 4, 4], [1, 1], [0, 0], [40, 40])


def drawn(shape: Sequence[int], dtype: torch.dtype, kind: str, seed: int) -> torch.Tensor:
    draws = torch.Generator().manual_seed(seed)
    matrix = torch.randn(*shape, dtype=dtype, generator=draws)
    if kind == "large":
        return matrix * 1e6
    if kind == "ill" and matrix.numel():
        return matrix * torch.logspace(0, -6, shape[-1], dtype=torch.float64).to(dtype)
    if kind == "deficient" and matrix.numel():
        matrix[..., -1] = matrix[..., 0]
    if kind == "equal" and shape[-1] == shape[-2]:
        return torch.eye(shape[-1], dtype=dtype).expand(*shape).contiguous() * 3
    if kind == "triangle":
        return matrix.triu()
    return matrix


def calls(shape: Sequence[int]) -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = [
        *[("linalg_qr.default", {"mode": mode}) for mode in ("reduced", "complete", "r")],
        *[("_linalg_svd.default", {"full_matrices": full}) for full in (True, False)],
        ("_linalg_svd.default", {"compute_uv": False}),
    ]
    if [*shape] in SQUARE:
        found += [("_linalg_eigh.default", {"UPLO": half}) for half in "LU"]
        found += [("_linalg_eigh.default", {"compute_v": False})]
        found += [("linalg_eig.default", {}), ("linalg_eigvals.default", {})]
    return found


KINDS = ("usual", "large", "ill", "deficient", "equal", "triangle")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [*SHAPES, *SQUARE], ids=str)
def test_right_factors_agree(shape: list[int], kind: str, dtype: torch.dtype) -> None:
    for name, more in calls(shape):
        matrix = drawn(shape, dtype, kind, seed=len(shape))
        first = "self" if "eig" in name and "eigh" not in name else "A"
        report = verdict(f"aten.{name}", {first: matrix, **more})
        assert report.verdict == "agree", (name, more, report)


def _signs(results: list[torch.Tensor]) -> list[torch.Tensor]:
    first, *rest = results
    sign = torch.ones(first.shape[-1], dtype=first.dtype)
    sign[0] = -1
    return [first * sign, *[part * sign[:, None] for part in rest]]


def test_factors_of_other_signs_agree() -> None:
    matrix = drawn([5, 3], torch.float32, "usual", 0)
    report = verdict("aten.linalg_qr.default", {"A": matrix}, _signs)
    assert report.verdict == "agree", report


def _scaled(index: int, factor: float) -> Callable[[list[torch.Tensor]], list[torch.Tensor]]:
    def kernel(results: list[torch.Tensor]) -> list[torch.Tensor]:
        parts = [part.clone() for part in results]
        parts[index][..., 0] *= factor
        return parts

    return kernel


def _of_another(results: list[torch.Tensor]) -> list[torch.Tensor]:
    return [part.flip(-1) for part in results]


FAULTS = {
    "linalg_qr.default": [_scaled(0, -1), _scaled(1, 1.0001), _scaled(0, 1.0001), _of_another],
    "_linalg_svd.default": [*[_scaled(i, 1.0001) for i in range(3)], _scaled(0, -1), _of_another],
    "_linalg_eigh.default": [_scaled(0, 1.0001), _scaled(1, 1.001), _of_another],
    "linalg_eig.default": [_scaled(0, 1.0001), _scaled(1, 1.001), _scaled(0, 0)],
    "linalg_eigvals.default": [_scaled(0, 1.001), _scaled(0, -1)],
}


@pytest.mark.parametrize("name", FAULTS)
def test_wrong_factors_disagree(name: str) -> None:
    matrix = drawn([4, 4], torch.float32, "usual", 1)
    first = "self" if "eig" in name and "eigh" not in name else "A"
    for fault in FAULTS[name]:
        report = verdict(f"aten.{name}", {first: matrix}, fault)
        assert report.verdict == "disagree", (name, fault)


@pytest.mark.parametrize("dtype", DTYPES)
def test_pseudoinverses_agree_and_faults_do_not(dtype: torch.dtype) -> None:
    for shape in SHAPES:
        for kind in ("usual", "large", "deficient"):
            matrix = drawn(shape, dtype, kind, 2)
            arguments = {"self": matrix, "rtol": torch.tensor(1e-5)}
            report = verdict("aten.linalg_pinv.atol_rtol_tensor", arguments)
            # of large matrices rounding decides which singular values count as 0
            decided = kind != "deficient" or shape[-1] < 64
            assert report.verdict in ("agree", "not compared"), (shape, kind, report)
            assert report.verdict == "agree" or not decided, (shape, kind, report)
    matrix = drawn([5, 3], dtype, "usual", 2)
    report = verdict(
        "aten.linalg_pinv.atol_rtol_tensor", {"self": matrix}, lambda results: [results[0] * 1.001]
    )
    assert report.verdict == "disagree"


def test_what_follows_from_vectors_of_any_sign_is_compared_where_it_is_unique() -> None:
    class Inverse(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return torch.linalg.pinv(x), torch.linalg.svdvals(x), torch.linalg.matrix_norm(x, 2)

    x = drawn([5, 3], torch.float32, "usual", 3)
    report = validate(extract_ir(Inverse(), (x,)), {}, (x,))
    assert report.verdict == "agree", report


@pytest.mark.parametrize("name", ["_linalg_svd.default", "linalg_qr.default"])
def test_of_a_matrix_that_is_not_finite_all_is_open(name: str) -> None:
    matrix = drawn([2, 3], torch.float32, "usual", 4)
    matrix[1, 2] = -float("inf")
    assert verdict(f"aten.{name}", {"A": matrix}).verdict == "agree"


LARGEST = {d: torch.finfo(d).max for d in (torch.float32, torch.float64)}
FACTORED = {
    "_linalg_svd.default": "A",
    "_linalg_eigh.default": "A",
    "linalg_eig.default": "self",
    "linalg_qr.default": "A",
}


@pytest.mark.parametrize("dtype", LARGEST)
@pytest.mark.parametrize("name", FACTORED)
def test_factors_the_norm_of_which_overflows_are_open(name: str, dtype: torch.dtype) -> None:
    for seed in range(4):
        signs = drawn([4, 4], dtype, "usual", seed).sign()
        matrix = drawn([4, 4], dtype, "usual", seed + 10).clamp(-1, 1) / 4 + signs * 0.75
        argument = {FACTORED[name]: matrix * LARGEST[dtype]}
        assert verdict(f"aten.{name}", argument).verdict == "agree"
        report = verdict(f"aten.{name}", argument, lambda made: [part * 3 for part in made])
        assert report.verdict == "agree"


@pytest.mark.parametrize("dtype", LARGEST)
@pytest.mark.parametrize("name", FACTORED)
def test_a_matrix_of_others_is_open_alone(name: str, dtype: torch.dtype) -> None:
    matrix = drawn([2, 3, 3], dtype, "usual", 5).clamp(-1, 1)
    matrix[1] *= LARGEST[dtype]

    def doubled(made: list[torch.Tensor]) -> list[torch.Tensor]:
        return [part * torch.tensor([2.0, 1.0]).view(-1, *[1] * (part.ndim - 1)) for part in made]

    argument = {FACTORED[name]: matrix}
    assert verdict(f"aten.{name}", argument).verdict == "agree"
    assert verdict(f"aten.{name}", argument, doubled).verdict == "disagree"


@pytest.mark.parametrize("dtype", LARGEST)
@pytest.mark.parametrize("name", ["_linalg_svd.default", "_linalg_eigh.default"])
def test_values_less_than_normal_numbers_are_off_by_these(name: str, dtype: torch.dtype) -> None:
    matrix = drawn([4, 4], dtype, "usual", 6) * torch.finfo(dtype).tiny / 8
    assert verdict(f"aten.{name}", {"A": matrix}).verdict == "agree"


@pytest.mark.parametrize("dtype", LARGEST)
def test_a_pseudoinverse_that_overflows_is_not_compared(dtype: torch.dtype) -> None:
    matrix = drawn([2, 3], dtype, "usual", 7) * torch.finfo(dtype).tiny / 4
    arguments = {"self": matrix, "atol": None, "rtol": None, "hermitian": False}
    assert verdict("aten.linalg_pinv.atol_rtol_tensor", arguments).verdict == "not compared"


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.uint8])
def test_a_matrix_without_elements_of_any_type_has_factors(dtype: torch.dtype) -> None:
    matrix = torch.zeros(2, 0, 0, dtype=dtype)
    assert verdict("aten._linalg_eigh.default", {"A": matrix}).verdict == "agree"
