"""Element types for storage above all: what torch does with them, the denotation does."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from semantics.compare import check

RARE = (
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.int8,
    torch.int16,
    torch.uint16,
    torch.uint64,
)
FIRST = torch.zeros((1, 4), dtype=torch.int64)
MASK = torch.tensor([True, False, True, False])
MOVES: list[tuple[str, list[Any]]] = [
    ("aten.view.default", [[4, 3]]),
    ("aten.permute.default", [[1, 0]]),
    ("aten.select.int", [0, 1]),
    ("aten.slice.Tensor", [1, 0, 4, 2]),
    ("aten.unfold.default", [1, 2, 1]),
    ("aten.constant_pad_nd.default", [[1, 1], 1]),
    ("aten.repeat.default", [[2, 1]]),
    ("aten.roll.default", [[1], [0]]),
]
INTEGER: list[tuple[str, list[Any]]] = [
    ("aten.sum.default", []),
    ("aten.cumsum.default", [0]),
    ("aten.amax.default", []),
    ("aten.argmax.default", []),
    ("aten.sort.default", []),
    ("aten.gather.default", [0, FIRST]),
    ("aten.scatter.value", [0, FIRST, 1]),
    ("aten.index.Tensor", [[torch.tensor([0, 2])]]),
    ("aten.masked_fill.Scalar", [MASK, 1]),
    ("aten.nonzero.default", []),
    ("aten.embedding.default", [torch.tensor([1])]),
]


def values(dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(12.0).reshape(3, 4).to(dtype)


@pytest.mark.parametrize("dtype", RARE, ids=str)
@pytest.mark.parametrize(("op_type", "args"), MOVES)
def test_moves(op_type: str, args: list[Any], dtype: torch.dtype) -> None:
    check(op_type, values(dtype), *args)
    check("aten.cat.default", [values(dtype)] * 2, 1)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16], ids=str)
@pytest.mark.parametrize(("op_type", "args"), INTEGER)
def test_short_integers(op_type: str, args: list[Any], dtype: torch.dtype) -> None:
    check(op_type, values(dtype), *args)


@pytest.mark.parametrize("given", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_exponents_take_the_modulus_and_round_half_up(given: torch.dtype) -> None:
    special = [0.0, -0.0, 1.0, 1.5, 1.25, -3.0, 6.0, 1e-45, 5.9e-39, 8.9e-39, 3e38, math.inf]
    numbers = torch.tensor([*special, -math.inf, math.nan])
    drawn = torch.randn(2000, generator=torch.Generator().manual_seed(0))
    spread = drawn * torch.logspace(-44, 37, 2000)
    kind = torch.float8_e8m0fnu
    check("aten._to_copy.default", torch.cat([numbers, spread]).to(given), dtype=kind)
