"""Branches, loops and calls as functions of functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from torch_ir.errors import InvalidIRError
from torch_ir.semantics import denotation

ROWS = np.arange(6.0).reshape(3, 2)


def meaning(name: str) -> Any:
    return denotation(f"higher_order.{name}").function


def test_a_scan_carries_and_stacks() -> None:
    steps: list[str] = []

    def combine(values: Sequence[Any], step: str = "") -> list[Any]:
        steps.append(step)
        carry, row, factor = values
        return [carry + row, carry * factor]

    total, given = meaning("scan")(combine, [np.zeros(2)], [ROWS], [10.0])
    assert total.tolist() == ROWS.sum(0).tolist()
    assert given.tolist() == [[0, 0], [0, 10], [20, 40]]
    assert steps == ["0", "1", "2"], "each iteration draws its own random numbers"


def test_an_associative_scan_combines_from_the_left() -> None:
    (sums,) = meaning("associative_scan")(lambda values, step="": [values[0] + values[1]], [ROWS])
    assert sums.tolist() == np.cumsum(ROWS, 0).tolist()


def test_a_map_goes_over_rows() -> None:
    (mapped,) = meaning("map_impl")(lambda values, step="": [values[0] * values[1]], [ROWS], [3])
    assert mapped.tolist() == (ROWS * 3).tolist()


def test_a_loop_ends_when_the_condition_does() -> None:
    below = lambda values, step="": [np.asarray(values[0] < values[1])]  # noqa: E731  # as a body
    double = lambda values, step="": [values[0] * 2]  # noqa: E731  # as a body
    assert meaning("while_loop")(below, double, [np.asarray(1)], [100]) == [128]
    assert meaning("while_loop")(below, double, [np.asarray(200)], [100]) == [200]


def test_calls_give_the_results_of_their_function() -> None:
    body = lambda values, step="": [values[0] + 1]  # noqa: E731  # as a body
    assert meaning("invoke_subgraph")(body, "name", [1]) == [2]
    assert meaning("wrap_with_set_grad_enabled")(False, body, [1]) == [2]
    assert meaning("tag_activation_checkpoint")(body, [1], use_reentrant=False) == [2]
    assert meaning("strict_mode")(body, [1]) == [2]
    assert meaning("wrap_with_autocast")("cpu", None, False, True, body, [1]) == [2]
    with pytest.raises(InvalidIRError, match="autocast changes the types of calls"):
        meaning("wrap_with_autocast")("cpu", None, True, True, body, [1])


def test_a_wider_type_is_taken_before_the_operator() -> None:
    wide = np.full((1, 3), 100, "int8")
    product = meaning("out_dtype")("aten.mm.default", np.dtype("int32"), [wide, wide.T])
    assert (product.dtype, product.tolist()) == (np.int32, [[30000]])


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("cond", (np.ones(2), None, None), "a tensor of shape [2] is not one truth value"),
        ("scan", (None, [], [ROWS[:0]], []), "a loop goes over one length, not [0]"),
        ("map_impl", (None, [ROWS, ROWS[:2]]), "a loop goes over one length, not [2, 3]"),
    ],
)
def test_what_is_refused(name: str, arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InvalidIRError) as caught:
        meaning(name)(*arguments)
    assert str(caught.value) == message
