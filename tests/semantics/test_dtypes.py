"""Which element type operands have together, and rounding, against torch."""

from __future__ import annotations

from itertools import product

import ml_dtypes
import numpy as np
import pytest
import torch

from semantics.compare import as_numpy, is_held
from torch_ir.errors import InvalidIRError
from torch_ir.semantics.dtypes import numpy_dtype, promote, result_dtype, rounded

NAMES = [
    *("bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
    *("float8_e4m3fn", "float8_e5m2"),
]


@pytest.mark.parametrize(("first", "second"), list(product(NAMES, NAMES)))
def test_two_types_promote_as_in_torch(first: str, second: str) -> None:
    try:
        expected = torch.promote_types(getattr(torch, first), getattr(torch, second))
    except RuntimeError:
        with pytest.raises(InvalidIRError, match="have no common type"):
            promote(numpy_dtype(first), numpy_dtype(second))
    else:
        found = promote(numpy_dtype(first), numpy_dtype(second))
        assert found == numpy_dtype(str(expected).removeprefix("torch."))


ORDINARY = [
    name for name in NAMES if not name.startswith(("float8", "uint16", "uint32", "uint64"))
]


@pytest.mark.parametrize("name", ORDINARY)
@pytest.mark.parametrize("number", [True, 3, 2.5, 1j])
def test_a_number_matters_only_where_its_kind_is_higher(name: str, number: complex) -> None:
    tensor = torch.zeros(2, dtype=getattr(torch, name))
    for operand in (tensor, tensor[0]):
        expected = torch.result_type(operand, number)
        if expected == torch.complex32:
            with pytest.raises(InvalidIRError, match="NumPy has no element type for complex32"):
                result_dtype(as_numpy(operand), number)
        elif is_held(expected):
            found = result_dtype(as_numpy(operand), number)
            assert found == numpy_dtype(str(expected).removeprefix("torch."))


@pytest.mark.parametrize(("first", "second"), list(product(ORDINARY, ORDINARY)))
def test_a_tensor_without_dimensions_weighs_less(first: str, second: str) -> None:
    vector = torch.zeros(2, dtype=getattr(torch, first))
    scalar = torch.zeros((), dtype=getattr(torch, second))
    expected = torch.result_type(vector, scalar)
    if expected == torch.complex32:
        with pytest.raises(InvalidIRError, match="NumPy has no element type for complex32"):
            result_dtype(as_numpy(vector), as_numpy(scalar))
    elif is_held(expected):
        found = result_dtype(as_numpy(vector), as_numpy(scalar))
        assert found == numpy_dtype(str(expected).removeprefix("torch."))


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("side", [-1, 0, 1])
def test_rounding_happens_once(name: str, side: int) -> None:
    """A value beside a tie, nearer to it than float32 can tell, is no tie."""
    dtype = numpy_dtype(name)
    unit = 2.0 ** -ml_dtypes.finfo(dtype).nmant
    value = np.array([1 + unit / 2 + side * 2.0**-45, 1 + 3 * unit / 2 + side * 2.0**-45])
    expected = [1 + unit * (side > 0), 1 + unit * (1 + (side >= 0))]
    for sign in (1, -1):
        assert rounded(sign * value, dtype).tolist() == [sign * e for e in expected]


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"])
def test_values_at_the_ends_round_as_in_torch(name: str) -> None:
    largest = float(ml_dtypes.finfo(numpy_dtype(name)).max)
    smallest = float(ml_dtypes.finfo(numpy_dtype(name)).smallest_subnormal)
    values = [0.0, -0.0, np.nan, np.inf, -np.inf, 1e300, -1e300, 1e-300, -1e-300]
    values += [largest * (1 + k / 64) for k in range(8)] + [smallest * k / 4 for k in range(9)]
    tensor = torch.tensor(values, dtype=torch.float32)
    expected = as_numpy(tensor.to(getattr(torch, name)).double())
    got = rounded(tensor.double().numpy(), numpy_dtype(name)).astype(np.float64)
    np.testing.assert_array_equal(got, expected)
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(expected[numbers]))


def test_integers_wrap() -> None:
    assert rounded(np.array([256 + 3, -1, 2**40 + 5]), np.dtype("uint8")).tolist() == [3, 255, 5]
