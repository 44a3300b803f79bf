"""Products: torch's values in every dtype, NaN and inf where it has them, wrapping integers."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
import torch

from semantics.compare import check, refused
from torch_ir import parse, register_executor, validate
from torch_ir.errors import InvalidIRError
from torch_ir.executor import unregister_executor
from torch_ir.semantics import denotation, tolerance

DTYPES = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.complex64,
    torch.complex128,
    torch.int64,
    torch.int32,
    torch.uint8,
)
SHAPES = [
    ("aten.mm.default", (3, 4), (4, 5)),
    ("aten.mm.default", (3, 0), (0, 5)),
    ("aten.mm.default", (0, 4), (4, 5)),
    ("aten.mm.default", (1, 1), (1, 1)),
    ("aten.bmm.default", (2, 3, 4), (2, 4, 5)),
    ("aten.mv.default", (3, 4), (4,)),
    ("aten.dot.default", (4,), (4,)),
    ("aten.vdot.default", (4,), (4,)),
    ("aten.outer.default", (3,), (4,)),
    ("aten.inner.default", (2, 3, 4), (5, 4)),
    ("aten.matmul.default", (4,), (4,)),
    ("aten.matmul.default", (4,), (2, 4, 3)),
    ("aten.matmul.default", (2, 3, 4), (4,)),
    ("aten.matmul.default", (2, 1, 3, 4), (5, 4, 2)),
    ("aten.linear.default", (2, 3, 4), (5, 4)),
    ("aten.linear.default", (4,), (4,)),
]


def tensor(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, generator=generator, dtype=torch.complex128).to(dtype)
    return torch.randint(0, 200, shape, generator=generator).to(dtype)


def bound(dtype: torch.dtype) -> float:
    """Sums of a few products of normal numbers, each rounded."""
    floating = dtype.is_floating_point or dtype.is_complex
    return 16 * torch.finfo(dtype).eps if floating else 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_grouped_products(dtype: torch.dtype) -> None:
    ends = torch.tensor([2, 2, 5], dtype=torch.int32)
    rows, groups = tensor((5, 8), dtype), tensor((3, 8, 16), dtype, 1)
    atol = bound(dtype)
    check("aten._grouped_mm.default", rows, groups, ends, atol=atol)
    check("aten._grouped_mm.default", groups.mT, rows.mT, ends, atol=atol)
    check("aten._grouped_mm.default", groups, groups.mT, atol=atol)
    wide = tensor((8, 8), dtype, 2)
    sums = denotation("aten._grouped_mm.default").function
    first, second, offs = wide.float().numpy(), wide.T.float().numpy(), np.array([3, 8])
    parts = [first[:, :3] @ second[:3], first[:, 3:] @ second[3:]]
    np.testing.assert_allclose(sums(first, second, offs), np.stack(parts), rtol=1e-5)


def test_rows_behind_the_last_group_have_any_values() -> None:
    ends = torch.tensor([1, 3], dtype=torch.int32)
    ir = parse(
        """ir {
          input %x: bf16[3, 8]
          input %w: bf16[2, 8, 8]
          input %e: i32[2]
          %y: bf16[3, 8] = aten._grouped_mm.default(%x, %w, offs=%e)
          return %y
        }"""
    )
    given = [tensor((3, 8), torch.bfloat16), tensor((2, 8, 8), torch.bfloat16, 1), ends]
    assert validate(ir, {}, given).verdict == "agree"

    def dirty(inputs: list[torch.Tensor], attributes: object) -> list[torch.Tensor]:
        made = torch._grouped_mm(*inputs[:2], offs=inputs[2])
        made[int(inputs[2][-1]) :] = 7
        return [made]

    given[2] = torch.tensor([1, 2], dtype=torch.int32)
    register_executor("aten._grouped_mm.default")(dirty)
    try:
        assert validate(ir, {}, given).verdict == "agree"
    finally:
        unregister_executor("aten._grouped_mm.default")
    function = denotation("aten._grouped_mm.default").function
    values = [given[0].float().numpy(), given[1].float().numpy(), np.array([1, 2], "int32")]
    made = function(*values)
    assert made[:2].all()
    assert not made[2:].any()
    arguments = dict(zip(("self", "mat2", "offs"), values, strict=True))
    (error,) = tolerance.bound("aten._grouped_mm.default", arguments, [made])
    assert np.isinf(error).all(1).tolist() == [False, False, True]
    arguments = {"self": values[1].swapaxes(1, 2), "mat2": values[0].T, "offs": values[2]}
    (error,) = tolerance.bound("aten._grouped_mm.default", arguments, [made.T])
    assert np.isinf(error).all(0).tolist() == [False, False, True]
    for wrong, message in (
        ((values[0], values[1]), "offsets are for a side of two dimensions, and it needs them"),
        ((values[0][0], values[1], values[2]), "[8] and [2, 8, 8] are not matrices or groups"),
        ((values[0], values[1], values[2][:1]), "1 offsets do not go with the groups"),
        ((*values, values[0]), "no kernel of a grouped product takes a bias"),
    ):
        with pytest.raises(InvalidIRError, match=re.escape(message)):
            function(*wrong)


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("op_type", "first", "second"), SHAPES)
def test_products(
    op_type: str, first: tuple[int, ...], second: tuple[int, ...], dtype: torch.dtype
) -> None:
    check(op_type, tensor(first, dtype), tensor(second, dtype, 1), atol=bound(dtype))


SUMS = [
    ("aten.addmm.default", (5,), (3, 4), (4, 5)),
    ("aten.addmm.default", (), (3, 4), (4, 5)),
    ("aten.baddbmm.default", (3, 1), (2, 3, 4), (2, 4, 5)),
    ("aten.addbmm.default", (3, 5), (2, 3, 4), (2, 4, 5)),
    ("aten.addmv.default", (3,), (3, 4), (4,)),
    ("aten.addr.default", (3, 4), (3,), (4,)),
]


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("op_type", *"abc"), SUMS)
def test_products_with_a_sum(
    op_type: str, a: tuple[int, ...], b: tuple[int, ...], c: tuple[int, ...], dtype: torch.dtype
) -> None:
    operands = tensor(a, dtype), tensor(b, dtype, 1), tensor(c, dtype, 2)
    check(op_type, *operands, atol=bound(dtype))
    check(op_type, *operands, beta=2, alpha=3, atol=4 * bound(dtype))
    check(op_type, *operands, beta=0, alpha=1, atol=bound(dtype))


@pytest.mark.parametrize("op_type", ["aten.addmm.default", "aten.addr.default"])
def test_factor_zero_keeps_nan_of_the_summand_out(op_type: str) -> None:
    ones = torch.ones((2, 2) if op_type == "aten.addmm.default" else 2)
    check(op_type, torch.full((2, 2), math.nan), ones, ones, beta=0)


def test_factors_of_integers_are_truncated() -> None:
    threes = torch.full((2, 2), 3)
    check("aten.addmm.default", threes, threes, threes, beta=2.6, alpha=1.7)
    message = refused("aten.addr.default", threes, threes[0], threes[0], beta=2.6)
    assert message == "beta 2.6 and alpha 1 are not both integers, as int64 is"


def test_nan_and_infinities() -> None:
    matrix = torch.tensor([[math.inf, 1.0], [math.nan, -0.0], [-math.inf, math.inf]])
    check("aten.mm.default", matrix, torch.tensor([[1.0, 0.0], [2.0, -1.0]]))
    check("aten.mm.default", torch.tensor([[3e38, 3e38]]), torch.tensor([[1.0], [1.0]]))


def test_small_integers_wrap() -> None:
    check(
        "aten.mm.default", torch.full((1, 3), 200, dtype=torch.uint8), torch.full((3, 1), 3).byte()
    )


def test_addr_of_booleans() -> None:
    flags = torch.tensor([True, False])
    check("aten.addr.default", torch.zeros(2, 2, dtype=torch.bool), flags, flags)


def test_linear_adds_its_bias_before_it_rounds() -> None:
    """1 + ε/4 + ε/4 + ε/8 is nearer to 1 + ε than to 1; rounded at each step it stays 1."""
    unit = 2.0**-23
    arrays = (np.array(x, "float32") for x in ([[1, unit / 4]], [[1, 1]], [unit * 3 / 8]))
    assert denotation("aten.linear.default").function(*arrays).item() == 1 + unit


def test_what_torch_refuses() -> None:
    ones = torch.ones
    assert refused("aten.mm.default", ones(2, 3), ones(2, 3)) == (
        "[2, 3] and [2, 3] cannot be multiplied as matrices"
    )
    assert (
        refused("aten.mm.default", ones(2, 3), ones(3)) == "a tensor of shape [3] has not rank 2"
    )
    assert refused("aten.mm.default", ones(2, 2), ones(2, 2).double()) == (
        "a product of float32 and float64 has no meaning"
    )
    assert refused("aten.mm.default", ones(2, 2).bool(), ones(2, 2).bool()) == (
        "a product of bool and bool has no meaning"
    )
    assert refused("aten.bmm.default", ones(2, 2, 2), ones(1, 2, 2)) == (
        "batches of 2 and 1 matrices differ"
    )
    assert refused("aten.addmm.default", ones(3), ones(2, 2), ones(2, 2)) == (
        "[3] does not broadcast to [2, 2]"
    )
    assert refused("aten.addmm.default", ones(2).double(), ones(2, 2), ones(2, 2)) == (
        "float64 cannot be added to a product of float32"
    )
    assert refused("aten.matmul.default", ones(()), ones(2)) == (
        "a tensor without dimensions has no matrix product"
    )
    assert refused("aten.inner.default", ones(2, 3), ones(2)) == "last axes of 3 and 2 differ"
    assert refused("aten.dot.default", ones(2), ones(3)) == (
        "[2] and [3] cannot be multiplied as matrices"
    )
