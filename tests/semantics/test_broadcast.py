"""Broadcasting, against NumPy over all small shapes."""

from __future__ import annotations

from itertools import combinations_with_replacement, product

import numpy as np
import pytest

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.broadcast import broadcast_all, broadcast_shape, broadcast_to

SHAPES = [shape for rank in range(5) for shape in product(range(4), repeat=rank)]


def in_numpy(*shapes: tuple[int, ...]) -> tuple[int, ...] | None:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        return None


def ours(*shapes: tuple[int, ...]) -> tuple[int, ...] | None:
    try:
        return broadcast_shape(*shapes)
    except InvalidIRError:
        return None


def test_all_pairs_of_shapes_to_size_3_and_rank_4() -> None:
    pairs = list(combinations_with_replacement(SHAPES, 2))
    assert len(pairs) == 58311
    differing = [pair for pair in pairs if ours(*pair) != in_numpy(*pair)]
    assert differing == []


def test_order_does_not_matter() -> None:
    pairs = product(SHAPES[::5], SHAPES[::7])
    assert all(ours(first, second) == ours(second, first) for first, second in pairs)


def test_elements_repeat_where_the_size_was_1() -> None:
    small = [shape for shape in SHAPES if len(shape) <= 3]
    for source, target in product(small, small):
        values = np.arange(np.prod(source, dtype=int)).reshape(source)
        if len(source) <= len(target) and in_numpy(source, target) == target:
            got = broadcast_to(values, target)
            np.testing.assert_array_equal(got, np.broadcast_to(values, target))
        else:
            with pytest.raises(InvalidIRError):
                broadcast_to(values, target)


def test_shapes_that_do_not_fit_are_named() -> None:
    with pytest.raises(InvalidIRError) as caught:
        broadcast_shape([2, 3], [2])
    assert str(caught.value) == "shapes [2, 3] and [2] do not broadcast together"
    with pytest.raises(InvalidIRError) as caught:
        broadcast_to(np.ones([2, 3]), [3, 3])
    assert str(caught.value) == "a tensor of shape [2, 3] does not broadcast to [3, 3]"


def test_a_smaller_tensor_lines_up_at_the_last_dimension() -> None:
    rows, columns = broadcast_all(np.array([[1], [2]]), np.array([10, 20, 30]))
    assert rows.tolist() == [[1, 1, 1], [2, 2, 2]]
    assert columns.tolist() == [[10, 20, 30], [10, 20, 30]]
    assert not rows.flags.writeable
