"""Indexing, scattering and embedding: exactly torch's elements, sums within a bound, refusals."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from semantics.compare import check, denoted, refused
from semantics.tensors import ALL, FLOATING, special, tensor

INDEX = torch.tensor([2, 0, 2, 1])
MASK = torch.tensor([True, False, True])
ROWS = torch.tensor([[0], [2]])
CALLS: list[tuple[tuple[int, ...], list[Any]]] = [
    ((3, 4), [INDEX]),
    ((3, 4), [torch.tensor([-1, -3])]),
    ((3, 4), [torch.tensor(1)]),
    ((3, 4), [None, INDEX]),
    ((3, 4), [INDEX, INDEX.int()]),
    ((3, 4), [ROWS, INDEX]),
    ((3, 4), [MASK]),
    ((3, 4), [torch.tensor([], dtype=torch.int64)]),
    ((4, 3), [None, MASK]),
    ((3, 3), [MASK, torch.tensor([1, 2])]),
    ((3, 3), [torch.eye(3).bool()]),
    ((2, 3, 3), [None, torch.eye(3).bool()]),
    ((3, 3, 2), [torch.eye(3).bool(), torch.tensor([0, 1, 1])]),
    ((3, 4, 5), [INDEX, None, INDEX]),
    ((3, 4, 5), [ROWS, None, INDEX]),
    ((3, 4, 5), [None, ROWS, INDEX]),
    ((2, 3, 4, 5), [None, ROWS, ROWS.T]),
    ((2, 3, 4, 5), [torch.tensor(1), None, torch.tensor([1, 2])]),
    ((3, 0), [torch.tensor([5])]),
    ((3, 0, 4), [INDEX, None, INDEX]),
]


@pytest.mark.parametrize(("shape", "indices"), CALLS)
def test_index_tensors_choose_elements(shape: tuple[int, ...], indices: list[Any]) -> None:
    for dtype in ALL:
        check("aten.index.Tensor", tensor(shape, dtype), indices)
    values = tensor(shape, torch.float32)
    there = denoted("aten.index.Tensor", values, indices)
    distinct = torch.arange(there.size).reshape(there.shape).float()
    for put in (torch.tensor(9.0), distinct):
        check("aten.index_put.default", values, indices, put, True, ulp=2)
    check("aten.index_put.default", values, indices, torch.tensor(9.0))


def test_a_mask_of_bytes_is_one_of_booleans() -> None:
    check("aten.index.Tensor", tensor((3, 4), torch.float32), [MASK.byte()])


@pytest.mark.parametrize("value", [torch.tensor(2.5), torch.tensor([3]), torch.tensor(True)])
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.uint8, torch.complex64])
def test_a_single_value_is_put_as_a_number_where_a_mask_is_true(dtype, value) -> None:
    columns, all_of_it, none_of_it = map(torch.tensor, ([True, False, False, True], True, False))
    for indices in ([MASK], [None, columns], [all_of_it], [none_of_it]):
        check("aten.index_put.default", tensor((3, 4), dtype), indices, value)
    check("aten.index_put.default", tensor((3, 4), dtype), [none_of_it, INDEX], value.to(dtype))
    whole = tensor((3, 4), torch.int64)
    message = refused("aten.index_put.default", whole, [torch.tensor([1])], torch.tensor(2.5))
    assert message == "float32 is not put into int64"


def test_indices_that_need_no_check() -> None:
    values = tensor((3, 4), torch.float32)
    check("aten._unsafe_index.Tensor", values, [None, INDEX])
    message = refused("aten._unsafe_index.Tensor", values, [MASK])
    assert message == "indices are int32 or int64, not bool"


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_what_is_put_at_an_index(dtype: torch.dtype) -> None:
    values, indices = special(dtype), [torch.tensor([3, -1, 3])]
    check("aten.index_put.default", values, [torch.tensor([3, -1])], tensor((2, 4), dtype))
    check("aten.index_put.default", values, indices, tensor((), dtype))
    check("aten.index_put.default", values, indices, tensor((3, 4), dtype), True, ulp=2)
    check("aten._unsafe_index_put.default", values, indices, tensor((4,), dtype))


def test_repeated_sums_round_once() -> None:
    """torch rounds to bfloat16 after each addition, and stops at 256."""
    ones, here = torch.ones(400).bfloat16(), torch.zeros(400, dtype=torch.int64)
    nothing = torch.zeros(1).bfloat16()
    assert denoted("aten.index_put.default", nothing, [here], ones, True) == 400
    assert denoted("aten.scatter_add.default", nothing, 0, here, ones) == 400


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_parts_along_one_dimension(dtype: torch.dtype) -> None:
    values, index = tensor((3, 4), dtype), torch.tensor([2, 0, 2])
    for dim in (0, 1, -1):
        check("aten.index_select.default", values, dim, index.int())
        source = tensor((3, 4) if dim == 0 else (3, 3), dtype, 1)
        check("aten.index_add.default", values, dim, index, source, ulp=16)
        check("aten.index_copy.default", values, dim, torch.tensor([2, 0, 1]), source)
        check("aten.index_fill.int_Scalar", values, dim, torch.tensor([-1, 0]), 1)
        check("aten.index_fill.int_Tensor", values, dim, index, torch.tensor(1))
    if dtype != torch.bool:
        source = tensor((3, 4), dtype, 1)
        error = 8 * torch.finfo(dtype).eps if dtype in FLOATING else 0
        check("aten.index_add.default", values, 0, index, source, alpha=-2, ulp=2, atol=error)
    check("aten.index_select.default", values, 1, torch.tensor(2))
    check("aten.index_select.default", tensor((), dtype), 0, torch.tensor([0]))
    check("aten.take.default", values, torch.tensor([[-1, 0], [11, 5]]))
    check("aten.put.default", values, torch.tensor([-1, 0]), tensor((1, 2), dtype))
    check("aten.take_along_dim.default", values, torch.tensor([[-1], [0], [2]]), 1)
    check("aten.take_along_dim.default", values, torch.tensor([[-9], [4], [7]]), 1)
    check("aten.take_along_dim.default", values, torch.tensor([[5, 1]]))


# -- element by element ---------------------------------------------------------------------------

PLACES = torch.tensor([[0, 2, 0], [1, 1, 2]])


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_gathered_and_scattered_elements(dtype: torch.dtype) -> None:
    values, source = tensor((3, 4), dtype), tensor((4, 5), dtype, 1)
    for dim in (0, 1, -2):
        check("aten.gather.default", values, dim, PLACES)
        check("aten.gather.default", values, dim, PLACES.int())
        check("aten.scatter.value", values, dim, PLACES, 1)
        check("aten.scatter_add.default", values, dim, PLACES, source, ulp=16)
    check("aten.scatter.src", values, 1, torch.tensor([[3, 0, 1], [2, 1, 0]]), source)
    check("aten.gather.default", special(dtype), 0, PLACES)
    for nothing in (torch.zeros(0, dtype=torch.int64), torch.zeros((0, 4), dtype=torch.int64)):
        check("aten.gather.default", values, 1, nothing)
        check("aten.scatter.src", values, 1, nothing, source)
    check("aten.gather.default", tensor((), dtype), 0, torch.tensor([0, 0]))
    check("aten.scatter.value", tensor((), dtype), 0, torch.tensor(0), 1)


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("dtype", [*FLOATING, torch.int64, torch.int32], ids=str)
def test_scattered_elements_reduced(reduce: str, include_self: bool, dtype: torch.dtype) -> None:
    values, source = tensor((3, 4), dtype), tensor((4, 5), dtype, 1)
    options: dict[str, Any] = {"include_self": include_self}
    if dtype in FLOATING:
        options |= {"ulp": 4, "atol": 4 * torch.finfo(dtype).eps}
    for dim in (0, 1):
        check("aten.scatter_reduce.two", values, dim, PLACES, source, reduce, **options)
        if reduce != "sum":
            parts = tensor((5, 4) if dim == 0 else (3, 5), dtype, 2)
            index = torch.tensor([2, 0, 2, 2, 1])
            check("aten.index_reduce.default", values, dim, index, parts, reduce, **options)


def test_reductions_of_special_elements() -> None:
    values, index = torch.tensor([7, 1]), torch.tensor([0, 0])
    source = torch.tensor([-3, -6])
    check("aten.scatter_reduce.two", values, 0, index, source, "mean")
    check("aten.scatter_reduce.two", values, 0, index, source, "mean", include_self=False)
    real, nan = torch.tensor([1.0, 2.0]), torch.tensor([math.nan, math.inf])
    for reduce in ("sum", "prod", "mean", "amax", "amin"):
        check("aten.scatter_reduce.two", real, 0, index, nan, reduce)
    check("aten.scatter.reduce", real, 0, index, nan, reduce="add")
    check("aten.scatter.value_reduce", real, 0, index, 3, reduce="multiply")


# -- masks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_masks(dtype: torch.dtype) -> None:
    values, mask = special(dtype), torch.tensor([True, False, False, True])
    wide = tensor((2, 9, 1), torch.bool)
    for chosen in (mask, wide, torch.tensor(True), torch.tensor(False)):
        check("aten.masked_fill.Scalar", values, chosen, 1)
        check("aten.masked_fill.Tensor", values, chosen, torch.tensor(1.0))
        check("aten.masked_select.default", values, chosen)
        check("aten.masked_scatter.default", values, chosen, tensor((9, 9), dtype, 3))
    check("aten.masked_fill.Scalar", tensor((), dtype), mask, 1)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (torch.int32, 1.5),
        (torch.int32, -1.5),
        (torch.uint8, -1),
        (torch.bool, 0.5),
        (torch.float32, -math.inf),
        (torch.float16, math.nan),
        (torch.float32, -3.4028234663852886e38),
        (torch.complex64, 1 + 2j),
        (torch.float32, True),
    ],
)
def test_a_number_becomes_an_element(dtype: torch.dtype, value: complex) -> None:
    check("aten.masked_fill.Scalar", tensor((2, 3), dtype), tensor((3,), torch.bool), value)


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_places_that_are_not_zero(dtype: torch.dtype) -> None:
    for values in (special(dtype), tensor((0, 3), dtype), torch.tensor(1).to(dtype)):
        check("aten.nonzero.default", values)
        check("aten.argwhere.default", values)
        check("aten.nonzero_static.default", values, size=5, fill_value=7)
    check("aten.nonzero.default", torch.tensor(0).to(dtype))


# -- tables ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_rows_of_a_table(dtype: torch.dtype) -> None:
    table = special(dtype)
    for indices in (INDEX, INDEX.int(), ROWS, torch.tensor(8), INDEX[:0]):
        check("aten.embedding.default", table, indices, 2)


@pytest.mark.parametrize("padding", [-1, 2])
@pytest.mark.parametrize("by_frequency", [False, True])
def test_gradients_of_a_table(padding: int, by_frequency: bool) -> None:
    for dtype in (torch.float32, torch.float64):
        gradient = tensor((2, 4, 3), dtype)
        indices = torch.stack([INDEX, INDEX.flip(0)])
        name = "aten.embedding_dense_backward.default"
        check(name, gradient, indices, 5, padding, by_frequency, ulp=8)


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("padding", [-1, 1])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=str)
def test_bags_of_rows(mode: int, padding: int, last: bool, dtype: torch.dtype) -> None:
    table, indices = tensor((4, 3), dtype), torch.tensor([0, 1, 2, 1, 3, 3])
    for offsets in (torch.tensor([0, 2, 2, 6]), torch.tensor([0, 1, 6])):
        for name in ("_embedding_bag", "_embedding_bag_forward_only"):
            args = (table, indices, offsets, False, mode, False, None, last, padding)
            check(f"aten.{name}.default", *args, ulp=4)
    given = (False, mode, False, None, False, padding)
    check("aten._embedding_bag.default", table, indices.int(), offsets.int(), *given, ulp=4)


def test_weighted_bags() -> None:
    table, weights = tensor((4, 3), torch.float32), tensor((5,), torch.float32, 1)
    indices, offsets = torch.tensor([0, 1, 2, 1, 3]), torch.tensor([0, 3])
    given = (table, indices, offsets, False, 0, False, weights)
    check("aten._embedding_bag.default", *given, ulp=4, atol=1e-6)


def test_classes_as_places() -> None:
    check("aten.one_hot.default", torch.tensor([[0, 2], [1, 1]]))
    check("aten.one_hot.default", torch.tensor([0, 2]), 5)
    check("aten.one_hot.default", torch.zeros(2, 0, dtype=torch.int64), 3)


MATRIX = tensor((2, 3), torch.float32)
HERE = torch.tensor([0])
REFUSED: list[tuple[str, list[Any], str]] = [
    ("index.Tensor", [MATRIX, [torch.tensor([2])]], "index 2 is out of range for size 2"),
    ("index.Tensor", [MATRIX, [torch.tensor([-3])]], "index -3 is out of range for size 2"),
    ("index.Tensor", [MATRIX, [torch.ones(1)]], "indices are int32 or int64, not float32"),
    ("index.Tensor", [MATRIX, [HERE] * 3], "3 indices do not fit [2, 3]"),
    ("index.Tensor", [MATRIX, [torch.tensor([True])]], "a mask [1] does not fit [2]"),
    (
        "index.Tensor",
        [MATRIX, [torch.tensor([0, 1]), torch.tensor([0, 1, 2])]],
        "shapes [2] and [3] do not broadcast together",
    ),
    ("index.Tensor", [torch.zeros(0, 3), [HERE]], "index 0 is out of range for size 0"),
    ("index_put.default", [MATRIX, [HERE], torch.tensor(1)], "int64 is not put into float32"),
    (
        "index_put.default",
        [MATRIX, [MATRIX > 9], torch.ones(2)],
        "a tensor of shape [2] does not broadcast to [0]",
    ),
    (
        "index_put.default",
        [MATRIX, [torch.tensor([0, 1])], torch.ones(1, 2, 3)],
        "a tensor of shape [1, 2, 3] does not broadcast to [2, 3]",
    ),
    (
        "index_select.default",
        [MATRIX, 1, torch.tensor([-1])],
        "index -1 is out of range for size 3",
    ),
    (
        "index_select.default",
        [MATRIX, 1, torch.tensor([[1]])],
        "indices of shape [1, 1] are no vector",
    ),
    ("gather.default", [MATRIX, 1, torch.tensor([[3]])], "index 3 is out of range for size 3"),
    ("gather.default", [MATRIX, 1, torch.tensor([[-1]])], "index -1 is out of range for size 3"),
    (
        "gather.default",
        [MATRIX, 1, HERE],
        "indices of shape [1] do not fit [2, 3] along 1",
    ),
    (
        "gather.default",
        [MATRIX, 1, torch.zeros(3, 1).long()],
        "indices of shape [3, 1] do not fit [2, 3] along 1",
    ),
    (
        "scatter.src",
        [MATRIX, 1, torch.tensor([[0] * 4]), MATRIX],
        "[2, 3] has no element for each of [1, 4]",
    ),
    (
        "scatter.src",
        [MATRIX, 1, torch.tensor([[0]]), MATRIX.int()],
        "int32 is not scattered into float32",
    ),
    (
        "scatter_reduce.two",
        [MATRIX, 1, torch.tensor([[0]]), MATRIX, "median"],
        "the reduction is one of sum, mean, prod, amax, amin, not median",
    ),
    ("take_along_dim.default", [MATRIX, HERE - 1], "index -1 is out of range for size 6"),
    (
        "take_along_dim.default",
        [torch.zeros(1, 0), torch.zeros(1, 1).long(), 1],
        "there is no element along dimension 1",
    ),
    (
        "take_along_dim.default",
        [torch.ones(()), torch.tensor(0), 0],
        "a tensor without dimensions has no dimension 0",
    ),
    ("masked_fill.Scalar", [MATRIX, MATRIX.int(), 1], "a mask is bool, not int32"),
    ("masked_fill.Scalar", [MATRIX.half(), MATRIX > 0, 1e6], "1000000.0 is no float16"),
    ("masked_fill.Scalar", [MATRIX, MATRIX > 0, 1j], "1j is no float32"),
    ("masked_fill.Scalar", [MATRIX.byte(), MATRIX > 9, 300], "300 is no uint8"),
    (
        "masked_fill.Tensor",
        [MATRIX, MATRIX > 0, torch.tensor([1.0])],
        "the value has dimensions: [1]",
    ),
    (
        "masked_scatter.default",
        [MATRIX, MATRIX < 9, torch.ones(2)],
        "float32 [2] does not fill 6 of float32",
    ),
    ("embedding.default", [MATRIX, torch.tensor([2])], "index 2 is out of range for size 2"),
    ("embedding.default", [MATRIX, torch.tensor([-1])], "index -1 is out of range for size 2"),
    ("embedding.default", [torch.ones(3), HERE], "a table of shape [3] is no matrix"),
    ("one_hot.default", [torch.tensor([0, 2]), 2], "index 2 is out of range for size 2"),
    (
        "_embedding_bag.default",
        [MATRIX, torch.tensor([0, 1]), torch.tensor([1])],
        "offsets [1] are not for 2 indices",
    ),
    (
        "_embedding_bag.default",
        [MATRIX, torch.tensor([0]), HERE, False, 1, False, torch.ones(1)],
        "weights for each index are for sums only",
    ),
]


@pytest.mark.parametrize(("name", "args", "message"), REFUSED)
def test_what_torch_refuses_is_refused(name: str, args: list[Any], message: str) -> None:
    assert refused(f"aten.{name}", *args) == message
