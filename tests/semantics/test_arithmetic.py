"""Arithmetic of two operands against torch's kernels."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch

from semantics.compare import agree, check, denoted, is_held, refused
from semantics.samples import ALL, COMPLEX, FLOATS, INTEGERS, REAL, ordinary, special
from torch_ir.errors import InvalidIRError

NAN, INF = math.nan, math.inf


def pairs(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """All special values with all."""
    values = special(dtype)[:33]
    return values[:, None], values[None]


@pytest.mark.parametrize("dtype", ALL)
def test_sums_and_products(dtype: torch.dtype) -> None:
    first, second = pairs(dtype)
    ulp = 4 if dtype.is_complex else 1 if dtype in (torch.bfloat16, torch.float16) else 0
    check("aten.add.Tensor", first, second, ulp=ulp)
    check("aten.mul.Tensor", first, second, ulp=ulp)
    if dtype == torch.bool:
        assert refused("aten.sub.Tensor", first, second) == "sub does not exist on bool"
        assert refused("aten.rsub.Tensor", first, second) == "sub does not exist on bool"
    else:
        check("aten.sub.Tensor", first, second, ulp=ulp)
        check("aten.rsub.Tensor", first, second, ulp=ulp)


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("number", [3, 2.5, -0.1, True])
def test_numbers(dtype: torch.dtype, number: float) -> None:
    values = ordinary(dtype, 3, 4)
    for name in ("add.Scalar", "mul.Scalar", "div.Scalar"):
        check(f"aten.{name}", values, number, ulp=2)
    if dtype != torch.bool:
        check("aten.sub.Scalar", values, number, ulp=1) if number is not True else None
        check("aten.pow.Tensor_Scalar", values, abs(number), ulp=8)
        check("aten.pow.Scalar", abs(number), ordinary(dtype, 3, 4).abs(), ulp=8)


@pytest.mark.parametrize(("first", "second"), list(product(ALL, ALL)))
def test_types_promote(first: torch.dtype, second: torch.dtype) -> None:
    left, right = ordinary(first, 3, 1), ordinary(second, 4, seed=1)
    check("aten.add.Tensor", left, right, ulp=1)
    check("aten.div.Tensor", left, right.abs() + 1 if second != torch.bool else ~right, ulp=2)
    expected = torch.result_type(left, right[0])
    if expected != torch.complex32 and is_held(expected):
        check("aten.mul.Tensor", left, right[0], ulp=1)


@pytest.mark.parametrize("dtype", [*REAL, *COMPLEX])
def test_alpha(dtype: torch.dtype) -> None:
    left, right = ordinary(dtype, 4), ordinary(dtype, 3, 4, seed=1)
    alpha = 2.5 if dtype.is_floating_point or dtype.is_complex else 3
    eps = 8 * torch.finfo(dtype).eps if isinstance(alpha, float) else 0
    check("aten.add.Tensor", left, right, alpha=alpha, ulp=1, atol=eps)
    check("aten.sub.Tensor", left, right, alpha=alpha, ulp=1, atol=eps)
    check("aten.add.Scalar", left, 3, alpha, ulp=1, atol=eps)
    if isinstance(alpha, int):
        message = refused("aten.add.Tensor", left, right, alpha=1.5)
        assert message.startswith("alpha cannot be 1.5 where the result is ")
    assert "alpha cannot be True" in refused("aten.add.Tensor", left, right, alpha=True)


@pytest.mark.parametrize("mode", [None, "floor", "trunc"])
@pytest.mark.parametrize("dtype", [*FLOATS])
def test_quotients_of_floats(dtype: torch.dtype, mode: str | None) -> None:
    first, second = pairs(dtype)
    apart = first.abs() < 1e4  # a kernel's quotient of 2**24 and more is inexact
    first, second = torch.broadcast_tensors(torch.where(apart, first, 3.5).to(dtype), second)
    near = second.abs() > 1e-3
    second = torch.where(near | (second == 0) | second.isnan(), second, 0.25).to(dtype)
    check("aten.div.Tensor_mode", first, second, rounding_mode=mode, ulp=2)


@pytest.mark.parametrize("mode", [None, "floor", "trunc"])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_quotients_of_integers(dtype: torch.dtype, mode: str | None) -> None:
    first, second = pairs(dtype)
    second = torch.where(second == 0, 1, second)
    check("aten.div.Tensor_mode", first, second, rounding_mode=mode)
    check("aten.div.Scalar_mode", first, 3, rounding_mode=mode)


@pytest.mark.parametrize("name", ["remainder", "fmod"])
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_remainders(name: str, dtype: torch.dtype) -> None:
    first, second = pairs(dtype)
    if dtype in INTEGERS:
        second = torch.where(second == 0, 1, second)
    else:  # torch's vectorized kernel gives NaN where the quotient overflows
        small = (second.abs() < torch.finfo(dtype).smallest_normal * 32) & (second != 0)
        second = torch.where(small, 0.75, second).to(dtype)
        first = torch.where(first.abs() == torch.finfo(dtype).max, 1.25, first).to(dtype)
    check(f"aten.{name}.Tensor", first, second)
    check(f"aten.{name}.Scalar", ordinary(dtype, 20), 2.5 if dtype in FLOATS else 3)
    check(f"aten.{name}.Scalar", ordinary(dtype, 20), -0.3 if dtype in FLOATS else -3)


def test_what_is_not_divided() -> None:
    whole, boolean = torch.tensor([5, 0]), torch.tensor([True])
    for mode in ("floor", "trunc"):
        message = refused("aten.div.Tensor_mode", whole, whole, rounding_mode=mode)
        assert message == "an integer is divided by zero"
        message = refused("aten.div.Tensor_mode", boolean, boolean, rounding_mode=mode)
        assert message == f"div rounded by {mode} does not exist on bool"
    assert refused("aten.remainder.Scalar", whole, 0) == "an integer is divided by zero"
    assert refused("aten.fmod.Tensor", boolean, boolean) == "fmod does not exist on bool"
    message = refused("aten.div.Tensor_mode", whole, whole + 1, rounding_mode="up")
    assert message == 'there is no rounding mode \'up\'\n"floor" or "trunc".'
    shapes = torch.ones(2, 3), torch.ones(2)
    message = refused("aten.add.Tensor", *shapes)
    assert message == "shapes [2, 3] and [2] do not broadcast together"


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, -1, -2, 0.5, -0.5, 1 / 3, 2.0, NAN, INF])
@pytest.mark.parametrize("dtype", FLOATS)
def test_powers_by_a_number(dtype: torch.dtype, exponent: float) -> None:
    check("aten.pow.Tensor_Scalar", special(dtype), exponent, ulp=2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_powers_of_floats(dtype: torch.dtype) -> None:
    first, second = pairs(dtype)
    check("aten.pow.Tensor_Tensor", first, second, ulp=2)
    for base in (0.0, 1.0, -2.0, 0.5, NAN, INF):
        check("aten.pow.Scalar", base, special(dtype), ulp=2)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_powers_of_integers(dtype: torch.dtype) -> None:
    first = special(dtype)[:, None]
    exponents = torch.tensor([0, 1, 2, 3, 7, 13], dtype=dtype)
    check("aten.pow.Tensor_Tensor", first, exponents)
    if dtype != torch.uint8:
        check("aten.pow.Tensor_Tensor", first, -exponents)
        message = refused("aten.pow.Tensor_Scalar", first, -1)
        assert message == "an integer is raised to a negative power"
    check("aten.pow.Tensor_Scalar", ordinary(dtype, 9), 0.5, ulp=1)
    check("aten.pow.Scalar", 3, exponents)


@pytest.mark.parametrize("dtype", [*REAL, torch.bool])
def test_extrema(dtype: torch.dtype) -> None:
    first, second = pairs(dtype)
    for name in ("maximum", "minimum", "fmax", "fmin"):
        check(f"aten.{name}.default", first, second, atol=1e-300)  # either zero
    mixed = torch.tensor([0.5, NAN])
    check("aten.maximum.default", mixed[:, None], first.reshape(-1)[:5])
    message = refused("aten.maximum.default", torch.tensor([1j]), torch.tensor([1j]))
    assert message == "maximum does not exist on complex64"


@pytest.mark.parametrize("dtype", [*REAL, torch.bool])
@pytest.mark.parametrize("bounds", [(1, None), (None, 2), (1, 2), (2, 1), (0.5, 1.5), (NAN, None)])
def test_clamp(dtype: torch.dtype, bounds: tuple[float | None, float | None]) -> None:
    check("aten.clamp.default", special(dtype), *bounds, ulp=1)
    tensors = [bound if bound is None else torch.tensor([bound, 1.0]) for bound in bounds]
    check("aten.clamp.Tensor", special(dtype)[:, None], *tensors)


BEYOND = [
    *[(None, 300), (300, None), (-300, None), (None, -300), (-1, None), (-1, 1), (None, -1)],
    *[(-300, 300), (300, -300), (2, 300), (300, 2), (-(2**40), 2**40), (2**40, None)],
    *[(True, 300), (-(2**62), 2**62), (None, 2**64 - 1), (2**63, None)],
]


@pytest.mark.parametrize("bounds", BEYOND, ids=str)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_bounds_that_a_type_does_not_hold(
    dtype: torch.dtype, bounds: tuple[int | None, int | None]
) -> None:
    values, (low, high) = special(dtype), bounds
    agree("aten.clamp.default", values, *bounds)
    if low is not None:
        agree("aten.clamp_min.default", values, low)
    if high is not None:
        agree("aten.clamp_max.default", values, high)
    if low is not None and high is not None:
        agree("aten.hardtanh.default", values, low, high)
        agree("aten.hardtanh.default", values, float(low) - 0.5, float(high) + 0.5)


def test_what_is_not_clamped() -> None:
    assert refused("aten.clamp.default", torch.ones(1)) == "clamp needs min or max"
    message = refused("aten.clamp.default", torch.tensor([1], dtype=torch.uint8), 300)
    assert message == "uint8 does not hold the number 300"
    message = refused("aten.clamp.default", torch.tensor([1j]), 1)
    assert message == "clamp does not exist on complex64"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_functions_of_two_floats(dtype: torch.dtype) -> None:
    first, second = pairs(dtype)
    check("aten.atan2.default", first, second, ulp=2)
    check("aten.copysign.Tensor", first[:-1], second[:, :-1])
    check("aten.xlogy.Tensor", first, second, ulp=2)
    ordinary_pair = ordinary(dtype, 5, 1), ordinary(dtype, 4)
    check("aten.hypot.default", *ordinary_pair, ulp=2)
    check("aten.logaddexp.default", *ordinary_pair, ulp=8)
    check("aten.heaviside.default", *pairs(dtype))
    near = {"ulp": 2, "atol": 8 * torch.finfo(dtype).eps}
    check("aten.lerp.Scalar", *ordinary_pair, 0.3, **near)
    check("aten.lerp.Tensor", *ordinary_pair, ordinary(dtype, 4, seed=3), **near)
    vectors = ordinary(dtype, 5, 3), ordinary(dtype, 5, 3, seed=3)
    check("aten.linalg_cross.default", *vectors, atol=16 * torch.finfo(dtype).eps)
    check("aten.linalg_cross.default", vectors[0].T, vectors[1].T[:, :1], dim=0, **near)
    check("aten.cross.default", vectors[0].T, vectors[1].T, atol=16 * torch.finfo(dtype).eps)
    check("aten.cross.default", *vectors, dim=1, atol=16 * torch.finfo(dtype).eps)
    third = ordinary(dtype, 5, 1, seed=4)
    check("aten.addcmul.default", *ordinary_pair, third, value=0.7, **near)
    check("aten.addcdiv.default", *ordinary_pair, third, value=0.7, ulp=4, atol=near["atol"] * 8)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("exponent", [torch.int8, torch.int32, torch.int64])
def test_scaling_by_a_power_of_two_does_not_round_the_power(
    dtype: torch.dtype, exponent: torch.dtype
) -> None:
    exponents = torch.tensor([0, 1, -1, 20, -25, 120, -128], dtype=exponent)
    check("aten.ldexp.Tensor", special(dtype)[:, None], exponents)
    check("aten.ldexp.Tensor", special(dtype)[0], exponents)
    if exponent != torch.int8:
        far = torch.tensor([200, -300, 1100, -2200], dtype=exponent)
        check("aten.ldexp.Tensor", special(dtype)[:, None], far)


def test_angles_and_signs_of_integers_are_float32() -> None:
    whole = special(torch.int32)
    check("aten.atan2.default", whole[:, None], whole, ulp=2)
    check("aten.copysign.Scalar", whole, -0.0)
    check("aten.gcd.default", whole[1:, None], whole[1:])
    message = refused("aten.addcdiv.default", torch.ones(1), whole, whole)
    assert message == "addcdiv does not divide integers by integers"


@pytest.mark.parametrize(
    ("first", "second"),
    [pair for pair in product(ALL[:6], ALL[6:]) if torch.promote_types(*pair) in ALL],
)
def test_where_chooses(first: torch.dtype, second: torch.dtype) -> None:
    condition = torch.tensor([[True], [False]])
    check("aten.where.self", condition, ordinary(first, 3), ordinary(second, 4, 1, 1))
    light = torch.ones((), dtype=second)
    if torch.result_type(special(first), light) in ALL:  # NumPy has no complex32
        check("aten.where.self", condition, special(first), light)
    check("aten.where.ScalarOther", condition, ordinary(first, 3), 2)
    check("aten.where.ScalarSelf", condition, 1.5, ordinary(first, 3))


def test_a_condition_is_boolean() -> None:
    message = refused("aten.where.self", torch.tensor([1, 0]), torch.ones(2), torch.ones(2))
    assert message == "a condition is bool, not int64"
    message = refused(
        "aten.where.ScalarOther", torch.tensor(True), torch.tensor([1], dtype=torch.uint8), 300
    )
    assert message == "uint8 does not hold the number 300"


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_the_least_integer_has_no_quotient_by_minus_one(dtype: torch.dtype) -> None:
    least = torch.tensor([torch.iinfo(dtype).min, 7], dtype=dtype)
    for other in (torch.tensor([-1], dtype=dtype), -1):
        op_type = f"aten.div.{'Scalar' if isinstance(other, int) else 'Tensor'}_mode"
        with pytest.raises(InvalidIRError, match="is outside of int"):
            denoted(op_type, least, other, rounding_mode="trunc")
    check("aten.div.Tensor_mode", least, torch.tensor([1, -1], dtype=dtype), rounding_mode="trunc")
    check("aten.div.Tensor_mode", least, torch.tensor([-1, 2], dtype=dtype), rounding_mode="floor")
    bytes_ = torch.tensor([-128], dtype=torch.int8)
    check("aten.div.Tensor_mode", bytes_, -torch.ones_like(bytes_), rounding_mode="trunc")
