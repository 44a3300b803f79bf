"""Meanings, tolerances and counts that another package states, and states wrongly."""

from itertools import count

import numpy as np
import pytest

from torch_ir import ExecutionError, cost, denote, parse
from torch_ir.ops.flops import counts_operations
from torch_ir.semantics import denotes
from torch_ir.semantics.tolerance import bound

PROGRAM = """ir {
  operator "theirs::NAME(Tensor x) -> Tensor"
  input %x: f32[2]
  %y: f32[2] = theirs.NAME.default(x=%x)
  return %y
}"""
NUMBERS = count()
X = np.array([1.0, 2.0], "float32")


def called(function, tolerance="exact"):
    """A program that calls an operator of that meaning, and the name of the operator."""
    name = f"twice{next(NUMBERS)}"  # a meaning is stated for good
    denotes(f"theirs.{name}.default", tolerance=tolerance)(function)
    return parse(PROGRAM.replace("NAME", name)), f"theirs.{name}.default"


def written(x):
    x *= 2
    return x


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (written, ".* failed: output array is read-only"),
        (lambda x: (x + x, x), "it gives 2 results, and the operator has 1"),
    ],
    ids=["written", "two results"],
)
def test_a_meaning_that_writes_or_gives_too_much_is_refused(function, said):
    program, _ = called(function)
    given = X.copy()
    with pytest.raises(ExecutionError, match=f"^node 'y': {said}"):
        denote(program, {}, (given,))
    assert given.tolist() == X.tolist()


def test_what_a_meaning_gives_back_is_its_own():
    program, _ = called(lambda x: x)
    given = X.copy()
    (result,) = denote(program, {}, (given,))
    result[0] = 5
    assert given.tolist() == X.tolist()


@pytest.mark.parametrize(
    ("tolerance", "said"),
    [
        (lambda arguments, results: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda arguments, results: 0.5, "TypeError: 'float' object is not iterable"),
        (lambda arguments, results: [-1.0], "ValueError: it gave a bound below zero"),
        (lambda arguments, results: [np.zeros(7)], "ValueError: "),
    ],
    ids=["raises", "is no list", "negative", "of another shape"],
)
def test_a_tolerance_that_fails_is_told(tolerance, said):
    _, operator = called(lambda x: x + x, tolerance)
    with pytest.raises(ExecutionError, match=f"^the tolerance of {operator} failed: {said}"):
        bound(operator, {"x": X}, [X])


@pytest.mark.parametrize("number", [-5, float("nan"), float("inf"), "many"])
def test_an_operation_count_that_counts_nothing_is_told(number):
    program, operator = called(lambda x: x + x)
    counts_operations(operator)(lambda arguments, results: number)
    said = f"^the operation count of {operator} failed: TypeError: it gave {number!r}, "
    with pytest.raises(ExecutionError, match=said):
        cost(program)
