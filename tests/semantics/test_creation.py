"""Tensors from nothing, copies and conversions against torch's kernels."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch

from semantics.compare import check, denoted, operator, refused
from semantics.samples import ALL, COMPLEX, FLOATS, REAL, SHAPES, ordinary, special
from torch_ir.torch_versions import torch_is

NUMBERS = [3, -2.5, True, math.inf, math.nan, 1 + 2j]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("number", NUMBERS)
def test_filled(shape: tuple[int, ...], number: complex) -> None:
    check("aten.full.default", list(shape), number)
    for dtype in ALL:
        like = torch.zeros(shape, dtype=dtype)
        calls = [
            ("aten.full.default", (list(shape), number), {"dtype": dtype}),
            ("aten.full_like.default", (like, number), {}),
            ("aten.new_full.default", (torch.zeros(1, dtype=dtype), list(shape), number), {}),
            ("aten.fill.Scalar", (like, number), {}),
            ("aten.scalar_tensor.default", (number,), {"dtype": dtype}),
        ]
        for op_type, args, kwargs in calls:
            try:
                operator(op_type)(*args, **kwargs)
            except RuntimeError:
                assert "does not hold the number" in refused(op_type, *args, **kwargs)
            else:
                check(op_type, *args, **kwargs)


def test_numbers_that_do_not_fit() -> None:
    for dtype, number in ((torch.uint8, 256), (torch.int8, 128), (torch.int32, 2**31)):
        message = refused("aten.full.default", [1], number, dtype=dtype)
        assert message == f"{str(dtype)[6:]} does not hold the number {number}"
    message = refused("aten.full.default", [1], 1e39)
    assert message == "float32 does not hold the number 1e+39"
    check("aten.full.default", [1], 70000.0, dtype=torch.float16)
    check("aten.full.default", [1], -255, dtype=torch.uint8)
    assert refused("aten.full.default", [-1], 1) == "no tensor has the shape [-1]"


@pytest.mark.parametrize("dtype", ALL)
def test_zeros_and_ones(dtype: torch.dtype) -> None:
    like = ordinary(dtype, 2, 3)
    for name in ("zeros", "ones"):
        check(f"aten.{name}.default", [2, 0], dtype=dtype)
        check(f"aten.{name}.default", [2])
        check(f"aten.{name}_like.default", like)
        check(f"aten.{name}_like.default", like, dtype=torch.int32)
        check(f"aten.new_{name}.default", like, [4])
    check("aten.fill.Tensor", like, torch.tensor(2.5))
    check("aten.eye.default", 3, dtype=dtype)
    check("aten.eye.m", 2, 4, dtype=dtype)


def test_values_that_are_not_said_have_shape_and_type() -> None:
    like = torch.ones(2, 3, dtype=torch.float16)
    for op_type, args in (
        ("aten.empty.memory_format", ([2, 3],)),
        ("aten.empty_strided.default", ([2, 3], [1, 2])),
        ("aten.empty_permuted.default", ([2, 3], [1, 0])),
        ("aten.empty_like.default", (like,)),
        ("aten.new_empty.default", (like, [4])),
        ("aten.new_empty_strided.default", (like, [2, 3], [1, 2])),
    ):
        for kwargs in ({}, {"dtype": torch.int32}):
            expected = operator(op_type)(*args, **kwargs)
            got = denoted(op_type, *args, **kwargs)
            assert got.shape == tuple(expected.shape)
            assert str(got.dtype) == str(expected.dtype).removeprefix("torch.")


RANGES = [
    *[(0, 5, 1), (5, 0, -2), (0.5, 3, 1), (0, 1, 0.1), (-3, 3, 0.75), (2, 2, 1), (0, 3, True)],
    *[(0, 5.5, 1), (0, 5, 1.5), (0.9, 3.9, 1.9), (-0.5, 2, 1), (1.5, 4.5, 1.5), (1, 1.5, 1)],
]


@pytest.mark.parametrize("dtype", [None, *REAL])
@pytest.mark.parametrize("span", RANGES)
def test_ranges(span: tuple[float, float, float], dtype: torch.dtype | None) -> None:
    start, end, step = span
    eps = 4 * torch.finfo(dtype or torch.float32).eps if dtype in (None, *FLOATS) else 0
    whole = dtype in REAL and dtype not in FLOATS
    if dtype == torch.int64 and int(step) == 0 and not torch_is("2.14"):
        if not torch_is("2.13"):
            return  # it ends the process
        message = refused("aten.arange.start_step", *span, dtype=dtype)
        assert message == f"a step of 0 does not lead from {int(start)} to {int(end)}"
    elif not (whole and (int(step) == 0 or start < 0 or step < 0) and dtype == torch.uint8):
        check("aten.arange.start_step", *span, dtype=dtype, ulp=1, atol=eps)


@pytest.mark.parametrize("dtype", [None, torch.float64, torch.int8, torch.int32, torch.int64])
def test_ranges_that_reach_their_ends(dtype: torch.dtype | None) -> None:
    more = [(3.0, 2, -1.5), (3.9, 2, -1), (2.3, 5, 3.2), (4.3, -4, -4.3), (-3.5, 3.9, 2.6)]
    for start, end, step in [*RANGES, *more]:
        if abs(step) >= 1 or dtype in (None, torch.float64):  # a step of 0 ends the process
            check("aten.range.step", start, end, step, dtype=dtype, ulp=1)


def test_other_ranges_and_what_is_none() -> None:
    check("aten.arange.default", 3)
    check("aten.arange.default", 3.5)
    check("aten.arange.start", 1, 4)
    check("aten.arange.default", 3, dtype=torch.bfloat16)
    message = refused("aten.arange.start_step", 1, 0)
    assert message == "a step of 1 does not lead from 1 to 0"
    message = refused("aten.arange.start_step", 0, math.inf)
    assert message == "arange does not count from 0 to inf by 1"
    message = refused("aten.arange.default", 3, dtype=torch.bool)
    assert message == "arange does not exist on bool"


@pytest.mark.parametrize("steps", [0, 1, 2, 5, 50])
@pytest.mark.parametrize("dtype", [None, *FLOATS, torch.int64, torch.int32])
def test_linear_spaces(dtype: torch.dtype | None, steps: int) -> None:
    eps = 16 * torch.finfo(dtype or torch.float32).eps if dtype in (None, *FLOATS) else 0
    for start, end in ((0, 10), (0, -10), (-2, 7)):
        check("aten.linspace.default", start, end, steps, dtype=dtype, ulp=1, atol=eps)
    check("aten.linspace.default", 0, 1j, steps, ulp=2, atol=1e-6)


# -- conversions ----------------------------------------------------------------------------------


def positive(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Values that every type can hold, but for fractions."""
    values = ordinary(dtype, *shape)
    return values if dtype == torch.bool else values.abs().to(dtype)


@pytest.mark.parametrize(("source", "target"), list(product(ALL, ALL)))
def test_types_convert(source: torch.dtype, target: torch.dtype) -> None:
    values = special(source)
    if source in FLOATS and target not in (*FLOATS, *COMPLEX, torch.bool):
        values = values[values.abs() < 100]  # what does not fit is not said
        values = values.abs() if target == torch.uint8 else values
    if source.is_complex and target == torch.uint8:
        values = values.real.abs().to(source)
    check("aten._to_copy.default", values, dtype=target)
    check("prims.convert_element_type.default", values, target)
    check("aten.to.dtype", positive(source, 2, 3), target)
    check("aten.copy.default", torch.zeros(2, 3, dtype=target), positive(source, 3))


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_float8(name: str) -> None:
    dtype = getattr(torch, name)
    values = special(torch.float32)
    check("aten._to_copy.default", values[~values.isnan()], dtype=dtype)
    check("aten._to_copy.default", ordinary(torch.float32, 40).to(dtype), dtype=torch.float32)


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("shape", SHAPES)
def test_copies_are_the_same(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    values = ordinary(dtype, *shape)
    names = ("clone", "alias", "detach", "lift_fresh_copy", "contiguous", "_to_copy", "detach_")
    for name in names:
        check(f"aten.{name}.default", values)
    check("aten.sym_numel.default", values)
    for dim in range(-len(shape), len(shape)):
        check("aten.sym_size.int", values, dim)
        check("aten.sym_stride.int", values, dim)
    check("aten.sym_storage_offset.default", values)
    check("aten.sym_is_contiguous.default", values)


@pytest.mark.parametrize("dtype", ALL)
def test_one_element_is_a_number(dtype: torch.dtype) -> None:
    check("aten._local_scalar_dense.default", ordinary(dtype, 1, 1))
    check("aten._local_scalar_dense.default", ordinary(dtype))


def test_what_is_refused() -> None:
    message = refused("aten.copy.default", torch.ones(2), torch.ones(1, 2))
    assert message == "a tensor of shape [1, 2] does not broadcast to [2]"
    message = refused("aten.sym_size.int", torch.ones(2), 1)
    assert message == "a tensor of 1 dimension has no dimension 1"
    message = refused("aten.item.default", torch.ones(2))
    assert message == "a tensor of shape [2] is not one number"


def test_assertions() -> None:
    assert denoted("aten._assert_scalar.default", True, "why") == ()
    assert denoted("aten._assert_async.default", torch.tensor(2.0)) == ()
    metadata = ("aten._assert_tensor_metadata.default", torch.ones(2), [2], None, torch.float32)
    assert denoted(*metadata) == ()
    message = refused("aten._assert_scalar.default", False, "why")
    assert message == "what the program asserts does not hold: why"
    message = refused("aten._assert_async.msg", torch.tensor(False), "why")
    assert message == "what the program asserts does not hold: why"
    message = refused("aten._assert_tensor_metadata.default", torch.ones(2), [3])
    assert message == "the program asserts the shape [3], and it is [2]"
    message = refused(
        "aten._assert_tensor_metadata.default", torch.ones(2), None, None, torch.int64
    )
    assert message == "the program asserts the type int64, and it is float32"
    message = refused("aten.sym_constrain_range.default", 3, min=4)
    assert message == "the program asserts 3 to be from 4 to None"


@pytest.mark.parametrize("number", [2, 0.5, True])
def test_a_number_in_the_place_of_a_tensor_is_one_without_dimensions(number: float) -> None:
    """So torch takes it, and so it traces ``torch.vmap`` over numbers."""
    x = torch.tensor([1.5, 2.5])
    for name, arguments in (
        ("aten._to_copy.default", (number,)),
        ("aten.copy.default", (x, number)),
        ("aten.to.other", (number, x)),
        ("aten.to.other", (x, number)),
    ):
        expected = operator(name)(*arguments)
        got = denoted(name, *arguments)
        assert (got.tolist(), got.dtype) == (expected.tolist(), expected.numpy().dtype)
