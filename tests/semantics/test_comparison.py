"""Comparisons, and operations on bits and truth values, against torch's kernels."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch

from semantics.compare import check, refused
from semantics.samples import ALL, COMPLEX, FLOATS, INTEGERS, REAL, ordinary, special
from torch_ir.torch_versions import torch_is

ORDERS = ("lt", "le", "gt", "ge")
BITWISE = ("bitwise_and", "bitwise_or", "bitwise_xor")
LOGICAL = ("logical_and", "logical_or", "logical_xor")
LIGHT = [2, 2.5, -1, True, math.nan, math.inf, 300]


@pytest.mark.parametrize("dtype", ALL)
def test_values_compare_with_all(dtype: torch.dtype) -> None:
    values = special(dtype)
    for name in ("eq", "ne", *ORDERS):
        if dtype.is_complex and name in ORDERS:
            message = refused(f"aten.{name}.Tensor", values, values)
            assert message == f"{name} does not exist on complex numbers"
        else:
            check(f"aten.{name}.Tensor", values[:, None], values)


@pytest.mark.parametrize("number", LIGHT)
@pytest.mark.parametrize("dtype", [*REAL, torch.bool])
def test_a_number_takes_the_tensors_type(dtype: torch.dtype, number: float) -> None:
    for name in ("eq", "ne", *ORDERS):
        check(f"aten.{name}.Scalar", special(dtype), number)


@pytest.mark.parametrize(("first", "second"), list(product(ALL, ALL)))
def test_types_promote_before_they_compare(first: torch.dtype, second: torch.dtype) -> None:
    left, right = ordinary(first, 2, 3), ordinary(second, 3, seed=1)
    check("aten.eq.Tensor", left, right)
    check("aten.logical_and.default", left, right)
    if not first.is_complex and not second.is_complex:
        check("aten.lt.Tensor", left, right)
        check("aten.ge.Tensor", left, right[0])


def test_a_large_integer_loses_digits_beside_a_fraction() -> None:
    check("aten.eq.Scalar", torch.tensor([2**24 + 1]), 16777216.0)
    check("aten.eq.Scalar", torch.tensor([255], dtype=torch.uint8), -1)
    check("aten.ge.Scalar", torch.tensor([0.1], dtype=torch.float16), 0.1)


@pytest.mark.parametrize("dtype", ALL)
def test_kinds_of_numbers(dtype: torch.dtype) -> None:
    values = special(dtype)
    if dtype.is_complex:
        values = torch.cat([values, torch.tensor([complex(math.inf, 0), complex(0, math.nan)])])
        values = values.to(dtype)
    for name in ("isnan", "isinf", "isfinite", "logical_not"):
        check(f"aten.{name}.default", values)
    if not dtype.is_complex:
        check("aten.isposinf.default", values)
        check("aten.isneginf.default", values)


def test_whole_tensors_compare() -> None:
    one = torch.ones(2, 3)
    check("aten.equal.default", one, one)
    check("aten.equal.default", one, one.T.contiguous())
    check("aten.equal.default", torch.tensor([math.nan]), torch.tensor([math.nan]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, *COMPLEX])
def test_values_are_close(dtype: torch.dtype) -> None:
    values = special(dtype)
    if dtype == torch.int64:
        values = values[1:-1] // 2**40
    check("aten.isclose.default", values[:, None], values)
    wide = values if torch_is("2.13") else values[:, None]  # which broadcasts no equal NaNs
    check("aten.isclose.default", values[:, None], wide, 0.5, 0.25, True)


@pytest.mark.parametrize("dtype", [*INTEGERS, torch.bool])
def test_bits(dtype: torch.dtype) -> None:
    values = special(dtype)
    for name in BITWISE:
        check(f"aten.{name}.Tensor", values[:, None], values)
        check(f"aten.{name}.Tensor", values, torch.tensor([[-7], [12]]))
        check(f"aten.{name}.Scalar", values, 5)
        check(f"aten.{name}.Scalar", values, True)
    check("aten.bitwise_not.default", values)
    for name in LOGICAL:
        check(f"aten.{name}.default", values[:, None], values)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.uint8])
def test_shifts(dtype: torch.dtype) -> None:
    values = special(dtype)
    bits = torch.iinfo(dtype).bits
    by = torch.tensor([0, 1, 3, bits - 1, bits, bits + 1], dtype=dtype)
    if dtype != torch.uint8:
        by = torch.cat([by, torch.tensor([-1], dtype=dtype)])
    for name in ("bitwise_left_shift", "bitwise_right_shift"):
        check(f"aten.{name}.Tensor", values[:, None], by)
        check(f"aten.{name}.Tensor_Scalar", values, 2)
        check(f"aten.{name}.Scalar_Tensor", 5, by)


@pytest.mark.parametrize("dtype", [*FLOATS, *COMPLEX])
def test_truth_of_numbers(dtype: torch.dtype) -> None:
    values = special(dtype)
    for name in LOGICAL:
        check(f"aten.{name}.default", values[:, None], values)


def test_what_has_no_bits() -> None:
    message = refused("aten.bitwise_and.Tensor", torch.ones(1), torch.ones(1))
    assert message == "there are no operations on the bits of float32"
    message = refused("aten.bitwise_or.Scalar", torch.tensor([1]), 1.5)
    assert message == "there are no operations on the bits of float32"
    message = refused("aten.bitwise_not.default", torch.ones(1))
    assert message == "there are no operations on the bits of float32"
