"""Integer operators at the ends of their types, where results wrap, against torch's kernels."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

from torch_ir.semantics import denotation

WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
PAIRS = list(product(WHOLE, WHOLE))

BINARY = """
    add.Tensor sub.Tensor rsub.Tensor mul.Tensor gcd.default lcm.default maximum.default
    minimum.default fmax.default fmin.default bitwise_and.Tensor bitwise_or.Tensor
    bitwise_xor.Tensor bitwise_left_shift.Tensor bitwise_right_shift.Tensor eq.Tensor ne.Tensor
    lt.Tensor le.Tensor gt.Tensor ge.Tensor logical_and.default logical_or.default
    logical_xor.default pow.Tensor_Tensor clamp_min.Tensor clamp_max.Tensor
"""
DIVISIONS = "remainder.Tensor fmod.Tensor floor_divide.default div.Tensor_mode"
UNARY = """
    abs.default neg.default sign.default sgn.default bitwise_not.default logical_not.default
    square.default relu.default floor.default ceil.default trunc.default round.default
    signbit.default sum.default prod.default
"""


def ends(dtype: torch.dtype) -> torch.Tensor:
    """The numbers beside the ends of a type and beside those of narrower ones, and small ones."""
    info = torch.iinfo(dtype)
    near = [bound + step for bound in (info.min, info.min // 2, 0, info.max // 2, info.max)
            for step in (-4, -3, -1, 0, 1, 3, 4)]  # fmt: skip
    counts = [bits + step for bits in (8, 16, 32, 64) for step in (-1, 0, 1)]
    held = {value for value in (*near, *counts) if info.min <= value <= info.max}
    return torch.tensor(sorted(held), dtype=dtype)


def operator(name: str) -> torch._ops.OpOverload:
    base, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), overload)


def require_equal(name: str, *given: torch.Tensor | float, **options: object) -> None:
    """Raise unless the denotation has torch's numbers and type."""
    theirs = operator(name)(*given, **options).numpy()
    arrays = [x.numpy() if isinstance(x, torch.Tensor) else x for x in given]
    mine = denotation(f"aten.{name}").function(*arrays, **options)
    assert mine.dtype == theirs.dtype
    np.testing.assert_array_equal(mine, theirs)


def crossed(first: torch.dtype, second: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Every number of one with every number of the other."""
    left, right = ends(first)[:, None], ends(second)
    shape = torch.broadcast_shapes(left.shape, right.shape)
    return left.expand(shape).reshape(-1), right.expand(shape).reshape(-1)


def stops(name: str, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Where processors stop: the least integer of the type divided by -1."""
    dtype = torch.result_type(left, right)
    divisor = torch.gcd(left, right) if name == "lcm.default" else right.to(dtype)
    return (left.to(dtype) == torch.iinfo(dtype).min) & (divisor == -1)


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=str)
def test_integers_wrap_as_those_of_torch(first: torch.dtype, second: torch.dtype) -> None:
    left, right = crossed(first, second)
    for name in BINARY.split():
        runs = ~stops(name, left, right) if name == "lcm.default" else torch.tensor(True)
        require_equal(name, *(x[runs.expand(x.shape)] for x in (left, right)))


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=str)
def test_quotients_and_remainders_wrap_as_those_of_torch(
    first: torch.dtype, second: torch.dtype
) -> None:
    left, right = crossed(first, second)
    runs = (right != 0) & ~stops("div", left, right)
    for name in DIVISIONS.split():
        for mode in ("floor", "trunc") if name == "div.Tensor_mode" else (None,):
            options = {"rounding_mode": mode} if mode else {}
            require_equal(name, left[runs], right[runs], **options)


@pytest.mark.parametrize("dtype", WHOLE, ids=str)
def test_integers_alone_wrap_as_those_of_torch(dtype: torch.dtype) -> None:
    for name in UNARY.split():
        require_equal(name, ends(dtype))
    for name in ("cumsum.default", "cumprod.default"):
        require_equal(name, ends(dtype), dim=0)


@pytest.mark.parametrize("number", [False, True])
def test_powers_of_booleans_are_those_of_torch(number: bool) -> None:
    require_equal("pow.Tensor_Scalar", torch.tensor([False, True]), number)


@pytest.mark.parametrize("first", [*WHOLE, torch.float16, torch.float32, torch.float64], ids=str)
def test_places_in_lines_are_looked_for_in_the_common_type(first: torch.dtype) -> None:
    whole = not first.is_floating_point
    line = ends(first) if whole else torch.tensor([-2.5, 0.1, 0.3, 300.0], dtype=first)
    for right in (False, True):
        for number in (-1, 300, 0.1, 0.3, True, 2**40):
            require_equal("searchsorted.Scalar", line, number, right=right)
            require_equal("bucketize.Tensor", torch.tensor(number), line, right=right)
        for second in WHOLE:
            require_equal("searchsorted.Tensor", line, ends(second), right=right)


@pytest.mark.parametrize("first", WHOLE[1:], ids=str)
def test_sums_above_zero_end_where_the_first_operands_type_does(first: torch.dtype) -> None:
    for second in WHOLE:
        require_equal("_add_relu.Tensor", *crossed(first, second))
