"""Tolerances: equal where nothing is rounded, and as wide as the sums that a kernel makes."""

from __future__ import annotations

import numpy as np
import pytest

from torch_ir.errors import InvalidIRError
from torch_ir.semantics import denotation, denoted_operators
from torch_ir.semantics.tolerance import (
    Tolerance,
    allowed_error,
    classified,
    reduction_length,
    spacing,
    tolerance,
)

FLOAT, HALF = np.dtype("float32"), np.dtype("float16")
UNIT = 2.0**-23


def test_every_denotation_is_classified() -> None:
    kinds = {classified(op_type)[0] for op_type in denoted_operators()}
    assert kinds == {"exact", "rounded", "function", "sum", "steps"}


def test_what_is_not_denoted_has_no_tolerance() -> None:
    with pytest.raises(InvalidIRError) as caught:
        tolerance("aten.vieww.default", FLOAT)
    assert str(caught.value).startswith("aten.vieww.default has no denotation")


@pytest.mark.parametrize("op_type", ["aten.cat.default", "aten.neg.default", "aten.amax.default"])
def test_moved_and_chosen_elements_are_equal(op_type: str) -> None:
    assert tolerance(op_type, FLOAT) == Tolerance(0, 0)


def test_integers_and_booleans_are_equal() -> None:
    assert tolerance("aten.mm.default", np.dtype("int64"), 100) == Tolerance(0, 0)
    assert tolerance("aten.logical_and.default", np.dtype("bool")) == Tolerance(0, 0)


def test_sums_grow_with_their_length() -> None:
    assert tolerance("aten.mm.default", FLOAT, 100) == Tolerance(1, 12 * UNIT)
    assert tolerance("aten.mm.default", HALF, 100) == Tolerance(1, 12 * UNIT)
    assert tolerance("aten.convolution.default", FLOAT, 100) == Tolerance(1, 16 * UNIT)
    assert tolerance("aten.convolution.default", HALF, 100) == Tolerance(1, 12 * UNIT + 2**-8)


def test_complex_numbers_take_more() -> None:
    complex64 = np.dtype("complex64")
    assert tolerance("aten.mul.Tensor", complex64) == Tolerance(3, 0)
    assert tolerance("aten.exp.default", complex64) == Tolerance(64, 0)


def test_cancelled_terms_still_count() -> None:
    """1000 - 1000 is 0, but a kernel may be off by what it rounded on the way."""
    arguments = {"self": np.array([[1e3, 1e3]], "f4"), "mat2": np.array([[1], [-1]], "f4")}
    result = denotation("aten.mm.default").function(**arguments)
    (bound,) = allowed_error("aten.mm.default", arguments, [result])
    assert result.item() == 0
    assert bound.item() == pytest.approx(3 * UNIT * 2000)


def test_alpha_is_rounded_by_itself() -> None:
    arguments = {"self": np.ones(1, "f4"), "other": np.ones(1, "f4")}
    (plain,) = allowed_error("aten.add.Tensor", arguments, [np.zeros(1, "f4")])
    (scaled,) = allowed_error("aten.add.Tensor", arguments | {"alpha": 3}, [np.zeros(1, "f4")])
    assert plain.item() < 1e-37
    assert scaled.item() == pytest.approx(3 * UNIT)


@pytest.mark.parametrize(
    ("op_type", "shapes", "result", "length"),
    [
        ("aten.mm.default", {"self": (3, 7), "mat2": (7, 2)}, (3, 2), 7),
        ("aten.addmm.default", {"self": (2,), "mat1": (3, 7), "mat2": (7, 2)}, (3, 2), 7),
        ("aten.linear.default", {"input": (3, 7), "weight": (2, 7), "bias": (2,)}, (3, 2), 7),
        ("aten.sum.dim_IntList", {"self": (3, 7)}, (3,), 7),
        ("aten._softmax.default", {"self": (3, 7)}, (3, 7), 7),
        ("aten.view.default", {"self": (3, 7)}, (21,), 1),
    ],
)
def test_lengths(
    op_type: str, shapes: dict[str, tuple[int, ...]], result: tuple[int, ...], length: int
) -> None:
    arguments = {name: np.zeros(shape, "f4") for name, shape in shapes.items()}
    assert reduction_length(op_type, arguments, [np.zeros(result, "f4")]) == length


def test_a_unit_in_the_last_place() -> None:
    values = np.array([1, -1.5, 2, 1e-30], "f4")
    assert spacing(values).tolist() == [UNIT, UNIT, 2 * UNIT, 2.0**-123]
    assert spacing(np.array([3 + 4j], "complex64")).tolist() == [4 * UNIT]


def test_a_unit_near_zero_is_what_kernels_flush() -> None:
    assert spacing(np.array([0, 1e-38, 1e-45], "f4")).tolist() == [2.0**-125] * 3
    assert spacing(np.array([0, 1e-7], "f2")).tolist() == [2.0**-24] * 2
