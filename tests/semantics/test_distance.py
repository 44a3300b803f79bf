"""Distances of every order, batches, empty vectors, NaN and infinity, refusals."""

from __future__ import annotations

import math

import pytest
import torch

from semantics.compare import check, refused
from semantics.judging import verdict

CDIST = "aten._cdist_forward.default"
PDIST = "aten._pdist_forward.default"
ORDERS = [0.0, 0.5, 1.0, 2.0, 3.0, math.inf]
SHAPES = [((4, 3), (5, 3)), ((2, 4, 3), (1, 5, 3)), ((4, 0), (5, 0)), ((0, 3), (5, 3))]


def tensor(shape: tuple[int, ...], seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("first", "second"), SHAPES)
def test_all_pairs(first: tuple[int, ...], second: tuple[int, ...], order: float) -> None:
    for dtype in (torch.float32, torch.float64):
        operands = tensor(first).to(dtype), tensor(second, 1).to(dtype)
        check(CDIST, *operands, order, 2, ulp=8)
        check("aten.cdist.default", *operands, order, 2, ulp=8)


@pytest.mark.parametrize("order", ORDERS)
def test_pairs_of_one_list(order: float) -> None:
    for shape in ((5, 3), (1, 3), (0, 3), (3, 0)):
        check(PDIST, tensor(shape), order, ulp=8)
        check(PDIST, tensor(shape).double(), order, ulp=8)


def test_products_of_matrices_lose_digits() -> None:
    first = tensor((30, 3))
    check(CDIST, first, first + 1e-3, 2.0, 1, atol=1e-3)


def test_nan_and_infinity() -> None:
    first, second = tensor((3, 3)), tensor((2, 3), 1)
    first[0, 0], first[1, 1] = math.nan, -math.inf
    for order in (0.0, 1.0, 2.0, 3.0):
        check(CDIST, first, second, order, 2, ulp=8)


def test_equal_vectors_are_not_apart() -> None:
    first = tensor((3, 4))
    for order in ORDERS:
        check(CDIST, first, first, order, 2, ulp=8)


def test_what_torch_refuses() -> None:
    assert refused(CDIST, tensor((3, 3)), tensor((3, 3)), -1.0, None) == (
        "there is no norm of order -1.0"
    )
    assert refused(CDIST, tensor((3, 3)), tensor((3, 2)), 2.0, None) == (
        "float32[3, 3] and float32[3, 2] do not hold vectors of one length and dtype"
    )
    assert refused(CDIST, tensor((3, 3)).long(), tensor((3, 3)).long(), 2.0, None) == (
        "distances are of floating-point numbers, not int64"
    )
    assert refused("aten.pdist.default", tensor((2, 3, 3)), 2.0) == (
        "a tensor of shape [2, 3, 3] is no list of vectors"
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_right_kernels_agree_where_squares_overflow(dtype: torch.dtype) -> None:
    most = torch.finfo(dtype).max
    for number in (math.inf, -math.inf, most / 3, most**0.5 * 2):
        for count, mode in ((7, None), (40, None), (7, 1)):
            generator = torch.Generator().manual_seed(count)
            first, second = (torch.randn(n, 5, generator=generator) for n in (count, 40))
            first, second = first.to(dtype), second.to(dtype)
            first[1, 2] = second[2, 3] = second[5, 2] = number
            given = {"x1": first, "x2": second, "p": 2.0, "compute_mode": mode}
            report = verdict("aten.cdist.default", given, against=("denotation", "eager"))
            assert report.verdict == "agree", (number, count, mode, str(report))
            wrong = torch.eye(count, 40, dtype=dtype)[0]  # a distance without a large number
            made = verdict("aten.cdist.default", given, lambda parts, w=wrong: [parts[0] + w])
            assert made.verdict == "disagree"
