"""Tensors put together, cut apart, repeated and framed: exactly as torch has it."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from semantics.compare import check, denoted, refused
from semantics.tensors import ALL, special, tensor

CALLS: list[tuple[str, tuple[int, ...], list[Any]]] = [
    ("aten.split_with_sizes.default", (2, 5), [[2, 0, 3], 1]),
    ("aten.split_with_sizes.default", (0,), [[]]),
    ("aten.split_with_sizes_copy.default", (5, 2), [[2, 3]]),
    ("aten.unsafe_split_with_sizes.default", (5, 2), [[2, 3]]),
    ("aten.split.sizes", (5, 2), [[2, 3]]),
    ("aten.split.Tensor", (5, 2), [2]),
    ("aten.split.Tensor", (5, 2), [9]),
    ("aten.split.Tensor", (0,), [0]),
    ("aten.split.Tensor", (0,), [2]),
    ("aten.unsafe_split.Tensor", (2, 5), [2, -1]),
    ("aten.split_copy.Tensor", (2, 5), [2, -1]),
    *[("aten.chunk.default", (5, 2), [chunks]) for chunks in (1, 2, 3, 4, 9)],
    ("aten.chunk.default", (0,), [3]),
    ("aten.unsafe_chunk.default", (5, 2), [2]),
    *[("aten.tensor_split.sections", (5, 2), [sections]) for sections in (1, 3, 7)],
    ("aten.tensor_split.indices", (5, 2), [[1, 4, 9]]),
    ("aten.tensor_split.indices", (5, 2), [[3, 1, -1]]),
    ("aten.unbind.int", (3, 2), []),
    ("aten.unbind.int", (3,), []),
    ("aten.unbind.int", (3, 0), [1]),
    ("aten.unbind_copy.int", (3, 2), [-1]),
    ("aten.repeat.default", (2, 3), [[2, 1, 3]]),
    ("aten.repeat.default", (2, 3), [[0, 1]]),
    ("aten.repeat.default", (), [[]]),
    ("aten.repeat.default", (), [[2, 2]]),
    ("aten.tile.default", (2, 3), [[2]]),
    ("aten.repeat_interleave.self_int", (2, 3), [2]),
    ("aten.repeat_interleave.self_int", (2, 3), [2, -1]),
    ("aten.repeat_interleave.self_Tensor", (2, 3), [torch.tensor([2, 0]), 0]),
    ("aten.repeat_interleave.self_Tensor", (2, 3), [torch.tensor([2]), 1]),
    ("aten.constant_pad_nd.default", (2, 3), [[1, -1]]),
    ("aten.constant_pad_nd.default", (2, 3), [[1, 2, 3, 0], 1]),
    ("aten.constant_pad_nd.default", (2, 3), [[-2, -1]]),
    ("aten.constant_pad_nd.default", (2, 3), [[-2, 3]]),
    ("aten.constant_pad_nd.default", (2, 3), [[]]),
    ("aten.constant_pad_nd.default", (0, 3), [[1, 1, 1, 0], 2]),
    *[("aten.tril.default", (2, 3, 4), [k]) for k in (-5, -1, 0, 2, 9)],
    *[("aten.triu.default", (2, 3, 4), [k]) for k in (-5, -1, 0, 2, 9)],
    ("aten.tril.default", (0, 3), []),
    *[("aten.diagonal.default", (3, 4), [k]) for k in (-5, -1, 0, 2, 9)],
    ("aten.diagonal.default", (2, 3, 4), [1, -1, 0]),
    ("aten.diagonal_copy.default", (3, 4), []),
    ("aten.diag_embed.default", (2, 3), []),
    ("aten.diag_embed.default", (2, 3), [1, 0, 2]),
    ("aten.diag_embed.default", (2, 3), [-2, -1, 0]),
]


@pytest.mark.parametrize(("op_type", "shape", "args"), CALLS)
def test_elements_stand_where_torch_has_them(
    op_type: str, shape: tuple[int, ...], args: list[Any]
) -> None:
    for dtype in ALL:
        check(op_type, tensor(shape, dtype), *args)


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_special_elements_move_as_others(dtype: torch.dtype) -> None:
    check("aten.cat.default", [special(dtype), special(dtype)], 1)
    check("aten.repeat.default", special(dtype), [2, 1])
    check("aten.constant_pad_nd.default", special(dtype), [1, 1])
    check("aten.tril.default", special(dtype))


# -- concatenation --------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", range(-3, 3))
@pytest.mark.parametrize("lengths", [[2], [1, 3], [0, 2, 1], [0, 0]])
def test_concatenation_adds_sizes_along_one_dimension(dim: int, lengths: list[int]) -> None:
    tensors = []
    for seed, length in enumerate(lengths):
        shape = [2, 3, 4]
        shape[dim] = length
        tensors.append(tensor((*shape,), torch.float32, seed))
    check("aten.cat.default", tensors, dim)
    joined = denoted("aten.cat.default", tensors, dim)
    expected = [2, 3, 4]
    expected[dim] = sum(lengths)
    assert list(joined.shape) == expected
    start = 0
    for part in tensors:  # each part is found again at its place
        piece = denoted(
            "aten.narrow.default", torch.from_numpy(joined), dim, start, part.shape[dim]
        )
        assert piece.tolist() == part.tolist()
        start += part.shape[dim]


@pytest.mark.parametrize("first", ALL, ids=str)
@pytest.mark.parametrize("second", ALL, ids=str)
def test_concatenation_promotes(first: torch.dtype, second: torch.dtype) -> None:
    if torch.promote_types(first, second) == torch.complex32:
        pytest.skip("NumPy has no complex32")
    check("aten.cat.default", [tensor((2, 3), first), tensor((1, 3), second)])


def test_a_tensor_of_shape_0_fits_any_shape() -> None:
    matrix, nothing = tensor((2, 3), torch.float32), torch.empty(0)
    check("aten.cat.default", [nothing, matrix], -1)
    check("aten.cat.default", [matrix.half(), nothing.double()], 1)
    check("aten.cat.default", [nothing, nothing], 0)


def test_other_ways_to_put_together() -> None:
    first, second = tensor((2, 3), torch.float32), tensor((2, 3), torch.int64, 1)
    for dim in range(-3, 3):
        check("aten.stack.default", [first, second], dim)
    check("aten.stack.default", [torch.tensor(1.0), torch.tensor(2.0)], -1)
    check("aten.concat.default", [first, second], 1)
    check("aten.concatenate.default", [first, second], 1)
    check("aten.hstack.default", [first, second])
    check("aten.hstack.default", [first[0], second[0]])
    check("aten.vstack.default", [first, second[0]])
    check("aten.column_stack.default", [first, second[:, 0], second])
    check("aten.dstack.default", [first, second])
    check("aten.dstack.default", [first[0], second[0]])
    check("aten.block_diag.default", [torch.tensor(1.0), first, second[0]])
    check("aten.meshgrid.default", [torch.arange(2), torch.arange(3)])
    check("aten.meshgrid.indexing", [torch.arange(2), torch.arange(3)], indexing="xy")
    check("aten.broadcast_tensors.default", [first, second[:1], torch.tensor(1)])


def test_parts_put_into_a_tensor() -> None:
    matrix = tensor((3, 4), torch.float32)
    check("aten.select_scatter.default", matrix, tensor((3,), torch.int64), 1, -1)
    check("aten.slice_scatter.default", matrix, tensor((3, 2), torch.float64), 1, 0, 4, 2)
    check("aten.diagonal_scatter.default", matrix, tensor((3,), torch.float32), 1)
    check(
        "aten.as_strided_scatter.default", matrix, tensor((2, 2), torch.float32), [2, 2], [1, 4], 3
    )


@pytest.mark.parametrize(
    ("dtype", "value"),
    [(torch.int32, 2.7), (torch.uint8, -1), (torch.bool, 2.5), (torch.float16, math.inf)],
)
def test_a_number_becomes_an_element_of_the_frame(dtype: torch.dtype, value: float) -> None:
    check("aten.constant_pad_nd.default", tensor((2, 3), dtype), [1, 0], value)


@pytest.mark.parametrize(
    "repeats", [torch.tensor([1, 0, 2]), torch.tensor([2], dtype=torch.int32)]
)
def test_each_place_repeats(repeats: torch.Tensor) -> None:
    check("aten.repeat_interleave.Tensor", repeats)


MATRIX = tensor((2, 3), torch.float32)
REFUSED: list[tuple[str, list[Any], str]] = [
    (
        "cat.default",
        [[torch.tensor(1.0)] * 2],
        "only tensors with dimensions are concatenated, and at least one",
    ),
    ("cat.default", [[]], "only tensors with dimensions are concatenated, and at least one"),
    (
        "cat.default",
        [[MATRIX, MATRIX[:, :2]]],
        "shapes [2, 3] and [2, 2] differ elsewhere than in dimension 0",
    ),
    ("cat.default", [[MATRIX, MATRIX], 2], "a tensor of 2 dimensions has no dimension 2"),
    (
        "stack.default",
        [[MATRIX, MATRIX[0]]],
        "only tensors of one shape are stacked, not [[2, 3], [3]]",
    ),
    (
        "split_with_sizes.default",
        [MATRIX, [1, 1], 1],
        "pieces of sizes [1, 1] do not make up size 3",
    ),
    (
        "split_with_sizes.default",
        [MATRIX, [-1, 4], 1],
        "pieces of sizes [-1, 4] do not make up size 3",
    ),
    ("split.Tensor", [MATRIX, 0], "a dimension of size 2 has no pieces of 0"),
    ("split.Tensor", [MATRIX, -1], "a dimension of size 2 has no pieces of -1"),
    ("chunk.default", [MATRIX, 0], "0 pieces are none"),
    ("unbind.int", [torch.tensor(1.0)], "a tensor without dimensions is in one piece"),
    ("repeat.default", [MATRIX, [2]], "shape [2, 3] does not repeat [2] times"),
    ("repeat.default", [MATRIX, [-1, 1]], "shape [2, 3] does not repeat [-1, 1] times"),
    ("constant_pad_nd.default", [MATRIX, [1]], "padding [1] is not for 2 dimensions"),
    (
        "constant_pad_nd.default",
        [MATRIX, [-2, -2]],
        "padding [-2, -2] leaves less than 0 of [2, 3]",
    ),
    ("constant_pad_nd.default", [MATRIX.int(), [1, 0], math.nan], "nan is no int32"),
    ("constant_pad_nd.default", [MATRIX.half(), [1, 0], 1e6], "1000000.0 is no float16"),
    ("tril.default", [torch.ones(3)], "a tensor of shape [3] has no triangle"),
    (
        "diagonal.default",
        [MATRIX, 0, 0, -2],
        "dimensions 0 and -2 are one, and have no diagonal",
    ),
    (
        "select_scatter.default",
        [MATRIX, torch.zeros(1), 1, 0],
        "[1] is not the part's [2]",
    ),
    (
        "slice_scatter.default",
        [MATRIX, torch.zeros(2, 1), 1, 1],
        "[2, 1] is not the part's [2, 2]",
    ),
]


@pytest.mark.parametrize(("name", "args", "message"), REFUSED)
def test_what_torch_refuses_is_refused(name: str, args: list[Any], message: str) -> None:
    assert refused(f"aten.{name}", *args) == message
