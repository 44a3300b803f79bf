"""Moved elements: exactly torch's, in every dtype and shape; and the refusals."""

from __future__ import annotations

from itertools import combinations, permutations
from typing import Any

import numpy as np
import pytest
import torch

from semantics.compare import check, denoted, refused
from semantics.tensors import ALL, special, tensor
from torch_ir.semantics import denotation

CALLS: list[tuple[str, tuple[int, ...], list[Any]]] = [
    *[("aten.view.default", (2, 3, 4), [size]) for size in ([24], [4, -1], [1, 2, 12], [-1, 1])],
    ("aten.view.default", (), [[1, -1]]),
    ("aten.view.default", (0, 3), [[-1, 3]]),
    ("aten.view_copy.default", (2, 3), [[3, 2]]),
    ("aten.reshape.default", (2, 3), [[-1]]),
    ("aten._unsafe_view.default", (2, 3), [[6]]),
    ("aten._reshape_copy.default", (2, 3), [[6]]),
    ("aten._reshape_alias.default", (2, 3), [[3, 2], [2, 1]]),
    ("aten.flatten.using_ints", (2, 3, 4), [1]),
    ("aten.flatten.using_ints", (2, 3, 4), [0, 1]),
    ("aten.flatten.using_ints", (), []),
    ("aten.ravel.default", (2, 3), []),
    ("aten.unflatten.int", (2, 6), [-1, [2, -1]]),
    ("aten.squeeze.default", (1, 2, 1), []),
    ("aten.squeeze.default", (), []),
    ("aten.squeeze.dim", (1, 2, 1), [-1]),
    ("aten.squeeze.dim", (1, 2, 1), [1]),
    ("aten.squeeze.dim", (), [-1]),
    ("aten.squeeze.dims", (1, 2, 1), [[0, -1]]),
    ("aten.squeeze.dims", (1, 2, 1), [[]]),
    ("aten.squeeze_copy.dims", (1, 2, 1), [[0, 1]]),
    ("aten.unsqueeze.default", (2, 3), [-1]),
    ("aten.unsqueeze.default", (), [0]),
    ("aten.expand.default", (2, 1, 3), [[4, 2, 5, -1]]),
    ("aten.expand.default", (1,), [[0]]),
    ("aten.expand.default", (), [[2, 0]]),
    ("aten.expand_copy.default", (1, 3), [[2, 3]]),
    ("aten.squeeze_copy.default", (1, 3), []),
    ("aten.squeeze_copy.dim", (1, 3), [0]),
    ("aten.unsqueeze_copy.default", (3,), [0]),
    ("aten.permute_copy.default", (2, 3), [[1, 0]]),
    ("aten.transpose_copy.int", (2, 3), [0, 1]),
    ("aten.as_strided_copy.default", (2, 3), [[2, 2], [1, 2]]),
    ("aten.unfold_copy.default", (2, 7), [1, 3, 2]),
    ("aten.narrow_copy.default", (3, 5), [1, 2, 3]),
    ("aten.native_channel_shuffle.default", (2, 6, 3), [3]),
    ("aten.broadcast_to.default", (1, 3), [[2, 3]]),
    ("aten.permute.default", (2, 3, 4), [[2, 0, 1]]),
    ("aten.permute.default", (2, 3, 4), [[-1, 1, 0]]),
    ("aten.permute.default", (), [[]]),
    ("aten.transpose.int", (2, 3, 4), [0, -1]),
    ("aten.transpose.int", (), [0, -1]),
    ("aten.swapaxes.default", (2, 3), [0, 1]),
    ("aten.swapdims.default", (2, 3), [0, 1]),
    ("aten.t.default", (2, 3), []),
    ("aten.t.default", (3,), []),
    ("aten.t_copy.default", (2, 3), []),
    ("aten.movedim.intlist", (2, 3, 4, 5), [[0, -1], [2, 0]]),
    ("aten.movedim.int", (2, 3, 4), [0, -1]),
    ("aten.moveaxis.int", (2, 3, 4), [-1, 1]),
    ("aten.moveaxis.intlist", (2, 3, 4), [[2, 1], [0, 1]]),
    ("aten.flip.default", (2, 3, 4), [[0, -1]]),
    ("aten.flip.default", (2, 3), [[]]),
    ("aten.flip.default", (), [[0]]),
    ("aten.fliplr.default", (2, 3), []),
    ("aten.flipud.default", (2, 3), []),
    ("aten.roll.default", (2, 3), [[4]]),
    ("aten.roll.default", (2, 3), [[1, -2], [0, -1]]),
    ("aten.roll.default", (2, 3), [[1, 1], [1, 1]]),
    ("aten.roll.default", (0, 3), [[1], [1]]),
    *[("aten.rot90.default", (2, 3), [k]) for k in (-1, 0, 1, 2, 7)],
    ("aten.rot90.default", (2, 3, 4), [1, [2, 0]]),
    ("aten.pixel_shuffle.default", (2, 8, 3, 4), [2]),
    ("aten.pixel_unshuffle.default", (2, 2, 4, 6), [2]),
    ("aten.channel_shuffle.default", (2, 6, 3), [3]),
    ("aten.as_strided.default", (2, 3), [[2, 2], [1, 2], 1]),
    ("aten.as_strided.default", (2, 3), [[3, 3], [1, 1]]),
    ("aten.as_strided.default", (2, 3), [[0], [7], 3]),
    ("aten.as_strided.default", (2, 3), [[], [], 5]),
    ("aten.unfold.default", (2, 7), [1, 3, 2]),
    ("aten.unfold.default", (4, 2, 3), [0, 2, 1]),
    ("aten.unfold.default", (2, 3), [1, 0, 1]),
    ("aten.unfold.default", (), [0, 1, 1]),
    ("aten.resize_.default", (2, 3), [[2, 2]]),
    ("aten.slice.Tensor", (3, 5), [1, 1, 4]),
    ("aten.slice.Tensor", (3, 5), [1, -100, 100, 2]),
    ("aten.slice.Tensor", (3, 5), [-1, -2]),
    ("aten.slice.Tensor", (3, 5), [0, 2, 1]),
    ("aten.slice.Tensor", (3, 5), [0, 7, 9]),
    ("aten.slice_copy.Tensor", (3, 5), []),
    ("aten.select.int", (3, 5), [1, -5]),
    ("aten.select.int", (3,), [0, 2]),
    ("aten.select_copy.int", (3, 5), [0, 1]),
    ("aten.narrow.default", (3, 5), [1, 2, 3]),
    ("aten.narrow.default", (3, 5), [1, -2, 1]),
    ("aten.narrow.default", (3, 5), [1, 5, 0]),
]


@pytest.mark.parametrize(("op_type", "shape", "args"), CALLS)
def test_elements_stand_where_torch_has_them(
    op_type: str, shape: tuple[int, ...], args: list[Any]
) -> None:
    for dtype in ALL:
        check(op_type, tensor(shape, dtype), *args)


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_special_elements_move_as_others(dtype: torch.dtype) -> None:
    check("aten.permute.default", special(dtype), [1, 0])
    check("aten.view.default", special(dtype), [4, 9])
    check("aten.flip.default", special(dtype), [0])
    check("aten.slice.Tensor", special(dtype), 0, 1, 9, 3)


@pytest.mark.parametrize("op_type", ["aten.expand_as.default", "aten.view_as.default"])
def test_the_shape_of_another_tensor(op_type: str) -> None:
    check(op_type, tensor((2, 1), torch.float32), tensor((2, 1), torch.int64))
    check("aten.reshape_as.default", tensor((2, 3), torch.float32), tensor((6,), torch.int64))


def test_the_bytes_of_another_type() -> None:
    check("aten.view.dtype", tensor((2, 4), torch.float32), torch.int16)
    check("aten.view.dtype", tensor((2, 4), torch.int16), torch.int64)
    check("aten.view_copy.dtype", tensor((2, 4), torch.float64), torch.uint8)
    check("aten.view.dtype", tensor((), torch.float32), torch.int32)
    refused("aten.view.dtype", tensor((2, 3), torch.float32), torch.float64)
    refused("aten.view.dtype", tensor((), torch.float32), torch.int16)


REFUSED: list[tuple[str, tuple[int, ...], list[Any], str]] = [
    ("view.default", (2, 3), [[4, -1]], "a tensor of shape [2, 3] is none of shape [4, -1]"),
    ("view.default", (0, 2), [[-1, 0]], "a tensor of shape [0, 2] is none of shape [-1, 0]"),
    ("view.default", (2, 3), [[-1, -1]], "a tensor of shape [2, 3] is none of shape [-1, -1]"),
    ("view.default", (2, 3), [[-2, 3]], "a tensor of shape [2, 3] is none of shape [-2, 3]"),
    ("flatten.using_ints", (2, 3), [1, 0], "dimension 1 does not come before 0"),
    ("squeeze.dim", (2, 3), [5], "a tensor of 2 dimensions has no dimension 5"),
    ("squeeze.dims", (1, 1), [[0, -2]], "dimensions [0, -2] name one twice"),
    ("unsqueeze.default", (2, 3), [3], "a tensor of 3 dimensions has no dimension 3"),
    ("expand.default", (2, 3), [[-1, 2, 3]], "shape [2, 3] does not expand to [-1, 2, 3]"),
    ("expand.default", (2, 3), [[3]], "shape [2, 3] does not expand to [3]"),
    (
        "expand.default",
        (2, 3),
        [[2, 0]],
        "a tensor of shape [2, 3] does not broadcast to [2, 0]",
    ),
    ("permute.default", (2, 3), [[0]], "[0] is no order of 2 dimensions"),
    ("permute.default", (2, 3), [[0, 0]], "dimensions [0, 0] name one twice"),
    ("roll.default", (2, 3), [[1, 2], [0]], "shifts [1, 2] are not for dimensions [0]"),
    ("roll.default", (2, 3), [[]], "shifts [] are not for dimensions []"),
    ("roll.default", (), [[1], [0]], "a tensor without dimensions does not roll along one"),
    ("t.default", (2, 3, 4), [], "a tensor of shape [2, 3, 4] is no matrix"),
    (
        "as_strided.default",
        (2, 3),
        [[5], [2]],
        "size [5], strides [2] and offset 0 do not fit 6 elements",
    ),
    (
        "as_strided.default",
        (2, 3),
        [[2], [-1], 3],
        "size [2], strides [-1] and offset 3 are no layout",
    ),
    ("unfold.default", (2, 3), [1, 4, 1], "windows of 4 by steps of 1 do not fit size 3"),
    ("unfold.default", (2, 3), [1, 2, 0], "windows of 2 by steps of 0 do not fit size 3"),
    ("slice.Tensor", (2, 3), [0, 0, 2, 0], "the step of a slice is positive, not 0"),
    ("slice.Tensor", (), [0], "a tensor without dimensions has no part along one"),
    ("select.int", (2, 3), [1, 3], "index 3 is out of range for size 3"),
    ("narrow.default", (2, 3), [1, 2, 2], "2 elements from 2 do not lie within size 3"),
]


@pytest.mark.parametrize(("name", "shape", "args", "message"), REFUSED)
def test_what_torch_refuses_is_refused(
    name: str, shape: tuple[int, ...], args: list[Any], message: str
) -> None:
    assert refused(f"aten.{name}", tensor(shape, torch.float32), *args) == message


def test_room_that_a_resized_tensor_gains_is_zero() -> None:
    grown = denoted("aten.resize.default", tensor((2,), torch.int64), [2, 2])
    assert grown[1].tolist() == [0, 0]
    assert grown[0].tolist() == tensor((2,), torch.int64).tolist()


def test_a_layout_in_memory_does_not_matter() -> None:
    strided = np.arange(6.0).reshape(2, 3).T
    gathered = denotation("aten.as_strided.default").function(strided, [6], [1])
    assert gathered.tolist() == [0, 3, 1, 4, 2, 5]


# -- transposition, checked another way -----------------------------------------------------------


def in_swaps(order: tuple[int, ...]) -> list[int]:
    """Places k whose dimensions k and k + 1 are swapped one after another to reach an order."""
    wanted, swaps = list(order), []
    for end in range(len(wanted), 1, -1):  # bubble sort of the order, read backwards
        for k in range(end - 1):
            if wanted[k] > wanted[k + 1]:
                wanted[k : k + 2] = wanted[k + 1], wanted[k]
                swaps.append(k)
    return swaps[::-1]


def swapped(values: np.ndarray[Any, Any], k: int) -> np.ndarray[Any, Any]:
    """Dimensions k and k + 1 in each other's place, element by element."""
    shape = list(values.shape)
    shape[k : k + 2] = shape[k + 1], shape[k]
    result = np.empty(shape, values.dtype)
    for place in np.ndindex(*shape):
        source = (*place[:k], place[k + 1], place[k], *place[k + 2 :])
        result[place] = values[source]
    return result


@pytest.mark.parametrize("order", [order for n in range(5) for order in permutations(range(n))])
def test_a_permutation_is_a_product_of_adjacent_swaps(order: tuple[int, ...]) -> None:
    shape = (2, 3, 1, 4)[: len(order)]
    values = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    expected = values
    for k in in_swaps(order):
        expected = swapped(expected, k)
    got = denotation("aten.permute.default").function(values, list(order))
    np.testing.assert_array_equal(got, expected)
    assert got.shape == tuple(shape[dim] for dim in order)


@pytest.mark.parametrize(("first", "second"), list(combinations(range(4), 2)))
def test_a_transposition_is_a_product_of_adjacent_swaps(first: int, second: int) -> None:
    values = np.arange(24).reshape(2, 3, 1, 4)
    expected = values
    there = list(range(first, second))
    for k in [*there, *there[-2::-1]]:
        expected = swapped(expected, k)
    got = denotation("aten.transpose.int").function(values, first, second)
    np.testing.assert_array_equal(got, expected)
