"""Order: values exactly torch's, NaN and ties where the definition puts them, indices in order."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import torch_ir
from semantics.compare import check, denoted, operator, refused
from semantics.tensors import ALL, FLOATING, special, tensor
from semantics.test_tolerance import bounds_of, parts_of
from torch_ir.debug.judging.trial import judge_of

ORDERED = [dtype for dtype in ALL if not dtype.is_complex]
NUMBERS = [dtype for dtype in ORDERED if dtype != torch.bool]


def check_chosen(op_type: str, values: torch.Tensor, *args: Any, dim: int) -> None:
    """The values are torch's; the indices, that torch leaves open among ties, lead to them."""
    expected = operator(op_type)(values, *args)[0]
    found, places = denoted(op_type, values, *args)
    there = torch.gather(values, dim, torch.from_numpy(places))
    for got in (there, torch.from_numpy(np.asarray(found, "float64"))):
        torch.testing.assert_close(got.double(), expected.double(), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", ORDERED, ids=str)
@pytest.mark.parametrize("descending", [False, True])
def test_sorting_is_stable(dtype: torch.dtype, descending: bool) -> None:
    for values in (special(dtype), tensor((40, 3), dtype), tensor((0, 3), dtype)):
        for dim in (0, -1):
            options = {"stable": True, "dim": dim, "descending": descending}
            check("aten.sort.stable", values, **options)
            check("aten.argsort.stable", values, **options)
            if values.shape[dim] < 16:  # torch sorts short lines stably in any case
                check("aten.sort.default", values, dim, descending)
                check("aten.argsort.default", values, dim, descending)
    check("aten.sort.default", tensor((), dtype), -1, descending)
    check("aten.msort.default", tensor((7, 3), dtype))


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
@pytest.mark.parametrize("largest", [False, True])
def test_the_first_few_in_order(dtype: torch.dtype, largest: bool) -> None:
    for values in (special(dtype), tensor((9, 4), dtype)):
        for k, dim in ((0, 0), (1, 1), (3, 0), (9, 0), (4, -1)):
            check_chosen("aten.topk.default", values, k, dim, largest, dim=dim)
    check("aten.topk.default", torch.randperm(50).to(dtype), 7, -1, largest)
    check("aten.topk.default", tensor((), dtype), 1, 0, largest)


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("dim", [0, -1])
@pytest.mark.parametrize("kinds", [70, 5])
def test_any_order_is_right_where_none_is_asked_for(dim: int, largest: bool, kinds: int) -> None:
    class Chosen(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return torch.topk(x, 3, dim, largest, sorted=False)

    x = torch.randperm(70, generator=torch.Generator().manual_seed(0)) % kinds
    x = x.float().reshape(7, 10)
    body = torch_ir.extract_ir(Chosen(), (x,))
    assert torch_ir.validate(body, {}, (x,)).verdict == "agree"
    known = dict(zip(body.output_names, Chosen()(x), strict=True))
    values, places = (made.index_select(dim, torch.tensor([2, 0, 1])) for made in known.values())

    def reason(*results: torch.Tensor) -> str:
        return judge_of(body)({"x": x}, results, known, {}).reason

    assert not reason(values, places)
    assert reason(values.roll(1, dim), places)
    assert reason(values, places.clamp(max=0))
    assert reason(values + 1, places)


def test_of_equal_elements_the_first_is_chosen() -> None:
    _, places = denoted("aten.topk.default", torch.tensor([1, 3, 3, 1, 3]), 4)
    assert places.tolist() == [1, 2, 4, 0]


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_medians_and_other_ranks(dtype: torch.dtype) -> None:
    for values in (special(dtype), tensor((8, 3), dtype), tensor((1, 1), dtype)):
        for name in ("median", "nanmedian"):
            check(f"aten.{name}.default", values, atol=1e-300)  # a zero of either sign
            check_chosen(f"aten.{name}.dim", values, 0, True, dim=0)
        check_chosen("aten.kthvalue.default", values, 1, 0, True, dim=0)
    check_chosen("aten.kthvalue.default", special(dtype), 9, 0, True, dim=0)
    check("aten.median.default", tensor((0,), dtype))
    check_chosen("aten.mode.default", tensor((8, 3), dtype), 0, True, dim=0)


def test_medians_among_nan() -> None:
    for line in ([3.0, math.nan, 2.0, math.nan], [math.nan, math.nan], [1.0, 2.0]):
        check("aten.median.dim", torch.tensor(line), 0)
        check("aten.nanmedian.default", torch.tensor(line))
    check("aten.median.dim", torch.tensor(3.0), 0)


def test_the_most_frequent_element() -> None:
    check("aten.mode.default", torch.tensor([3, 1, 1, 3, 2]))
    check("aten.mode.default", torch.tensor([math.inf, 0.0, 0.0, math.inf, -math.inf]))
    check("aten.mode.default", torch.tensor(1.0))
    # torch finds -inf here, once among three zeros: it sorts NaN as though they were ordered
    line = torch.tensor([0.0, math.inf, math.nan, 0.0, math.nan, 0.0, -math.inf])
    value, place = denoted("aten.mode.default", line)
    assert (value, place) == (0.0, 5)


def test_the_most_frequent_element_of_a_long_line_takes_no_square_of_memory() -> None:
    for line in (torch.arange(200_000) % 50_000, torch.zeros(200_000), torch.arange(200_000.0)):
        check_chosen("aten.mode.default", line, 0, dim=0)


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
@pytest.mark.parametrize("right", [False, True])
def test_places_in_a_sorted_line(dtype: torch.dtype, right: bool) -> None:
    line = torch.sort(tensor((9,), dtype)).values
    sought = torch.cat([line, special(dtype).flatten()]).reshape(-1, 3)
    options = {"right": right}
    check("aten.searchsorted.Tensor", line, sought, out_int32=True, **options)
    check("aten.bucketize.Tensor", sought, line, **options)
    check("aten.bucketize.Scalar", 2, line, **options)
    check("aten.searchsorted.Scalar", line, 2, **options)
    lines = torch.sort(tensor((2, 9), dtype)).values
    check("aten.searchsorted.Tensor", lines, tensor((2, 5), dtype, 1), **options)
    mixed = tensor((9,), dtype)
    sorter = torch.argsort(mixed)
    check("aten.searchsorted.Tensor", mixed, tensor((4,), dtype, 1), sorter=sorter, **options)
    check("aten.searchsorted.Tensor", line, tensor((), dtype), side="right" if right else "left")
    check("aten.searchsorted.Tensor", line[:0], tensor((3,), dtype), **options)


@pytest.mark.parametrize("dtype", [*FLOATING, torch.int64, torch.uint8, torch.bool], ids=str)
def test_distinct_elements(dtype: torch.dtype) -> None:
    few = tensor((6, 2), torch.int64).remainder(2).to(dtype)
    for asked in ((False, False), (True, True)):
        for values in (few, few[0, 0], few[:0], few[:1]):
            check("aten._unique2.default", values, True, *asked)
            check("aten._unique.default", values, True, asked[0])
            check("aten.unique_consecutive.default", values, *asked)
        check("aten.unique_consecutive.default", few, *asked, 0)
        check("aten.unique_dim.default", few, 0, True, *asked)
        check("aten.unique_dim.default", few, 1, True, *asked)


def test_distinct_elements_among_nan() -> None:
    check("aten._unique2.default", torch.tensor([3.0, math.nan, 1.0, math.nan]), True, True, True)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8], ids=str)
def test_counts(dtype: torch.dtype) -> None:
    numbers = tensor((20,), dtype)
    check("aten.bincount.default", numbers)
    check("aten.bincount.default", numbers[:0], None, 3)
    for weights in (torch.float32, torch.float64, torch.int64):
        check("aten.bincount.default", numbers, tensor((20,), weights, 1), 30, ulp=8)


LINE = torch.tensor([1.0, 2.0, 3.0])
REFUSED: list[tuple[str, list[Any], str]] = [
    ("sort.default", [LINE.to(torch.complex64)], "complex64 has no order"),
    ("sort.default", [LINE, 1], "a tensor of 1 dimension has no dimension 1"),
    ("topk.default", [LINE, 4], "a dimension of size 3 has no 4 elements to choose"),
    ("topk.default", [LINE, -1], "a dimension of size 3 has no -1 elements to choose"),
    ("kthvalue.default", [LINE, 0], "a dimension of size 3 has no element 0 in order"),
    ("kthvalue.default", [LINE, 4], "a dimension of size 3 has no element 4 in order"),
    ("median.dim", [torch.zeros(2, 0), 1], "a dimension of size 0 has no median"),
    ("mode.default", [torch.zeros(0)], "a dimension of size 0 has no most frequent element"),
    ("bincount.default", [torch.tensor([-1])], "int64 [1] is not counted"),
    ("bincount.default", [LINE], "float32 [3] is not counted"),
    (
        "searchsorted.Tensor",
        [torch.ones(2, 3), torch.tensor(3.0)],
        "[2, 3] has no line for each of []",
    ),
]


@pytest.mark.parametrize(("name", "args", "message"), REFUSED)
def test_what_torch_refuses_is_refused(name: str, args: list[Any], message: str) -> None:
    assert refused(f"aten.{name}", *args) == message


def test_sides_that_contradict_are_refused() -> None:
    args = ("aten.searchsorted.Tensor", LINE, LINE)
    message = refused(*args, right=True, side="left")
    assert message == "side 'left' and right True do not say on which side"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_histograms_count_within_their_ends(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(300, generator=generator).to(dtype)
    for bins, least, most in ((4, 0, 0), (7, -1, 1), (100, -2.5, 0.3), (3, 5, 9), (300, 0, 0)):
        assert parts_of("aten.histc.default", values, bins, least, most) <= 1
    same = torch.full((5,), 2.0, dtype=dtype)
    (meant,), (got,), (allowed,) = bounds_of("aten.histc.default", same, 5, 0, 0)
    assert meant.tolist() == got.tolist() == [0, 0, 5, 0, 0]
    assert allowed.max() < 0.1
    inside = torch.tensor([0.5, 1.5, 2.0, math.nan, 7.0], dtype=dtype)
    (meant,), _, (allowed,) = bounds_of("aten.histc.default", inside, 4, 0, 4)
    assert meant.tolist() == [1, 1, 1, 0]
    assert allowed.round().tolist() == [0, 1, 1, 0]  # 2 is the end of two bins
    size = {torch.float16: 3000.0, torch.bfloat16: 776.0}.get(dtype, 1e18)
    great = torch.full((3,), size, dtype=dtype)
    (meant,), (got,), (allowed,) = bounds_of("aten.histc.default", great, 3, 0, 0)
    assert sum(meant) == sum(got) == 3  # of a range without width in the type, any bin
    assert np.isinf(allowed).all()
