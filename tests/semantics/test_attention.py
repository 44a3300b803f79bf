"""Attention: every mask, queries without a key, shared heads, both outputs of the kernels."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import pytest
import torch

from semantics.compare import check, denoted, refused
from semantics.judging import verdict
from torch_ir.errors import InvalidIRError

ATTENTION = "aten.scaled_dot_product_attention.default"
FLASH = "aten._scaled_dot_product_flash_attention_for_cpu.default"
MATH = "aten._scaled_dot_product_attention_math.default"
BOTH = ("denotation", "eager")


def operands(dtype: torch.dtype, width: int = 8) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    shapes = (2, 4, 5, 8), (2, 4, 6, 8), (2, 4, 6, width)
    return tuple(torch.randn(shape, generator=generator).to(dtype) for shape in shapes)


def masks(dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    flags = torch.rand((5, 6), generator=generator) > 0.4
    flags[1] = False  # a query without a key
    return [flags, torch.randn((2, 1, 5, 6), generator=generator).to(dtype)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_torch_agrees(dtype: torch.dtype) -> None:
    bound = 16 * torch.finfo(dtype).eps
    query, key, value = operands(dtype, 3)
    given: list[tuple[Any, ...]] = [(), *((mask,) for mask in masks(dtype)), (None, 0.0, True)]
    for more in given:
        check(ATTENTION, query, key, value, *more, atol=bound)
        check(ATTENTION, query, key, value, *more, scale=0.3, atol=bound)
        check(MATH, query, key, value, *more, atol=bound)
    check(ATTENTION, query[0, 0], key[0, 0], value[0, 0], atol=bound)
    check(ATTENTION, query, key[:, :2], value[:, :2], enable_gqa=True, atol=bound)
    check(ATTENTION, query, key[:, :, :0], value[:, :, :0], atol=bound)
    if torch.__version__ < "2.14":  # which refuses a mask beside the causal one
        check(ATTENTION, query, key, key, masks(dtype)[0], 0.0, True, atol=bound)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_the_fused_kernel(dtype: torch.dtype) -> None:
    bound = 16 * torch.finfo(dtype).eps
    query, key, value = operands(dtype)
    flags, numbers = masks(dtype)
    check(FLASH, query, key, value, atol=bound)
    check(FLASH, query, key, value, 0.0, True, atol=bound)
    check(FLASH, query, key, value, attn_mask=numbers, scale=0.3, atol=bound)
    mask = torch.where(flags, 0.0, -math.inf).to(dtype)
    check(FLASH, query, key, value, attn_mask=mask, atol=bound)


def test_what_torch_refuses() -> None:
    query, key, value = operands(torch.float32)
    shapes = "float32[2, 4, 5, 8], float32[2, 4, 6, 8]"
    assert refused(ATTENTION, query, key, value.double()) == (
        f"attention takes no operands {shapes}, float64[2, 4, 6, 8]"
    )
    assert refused(MATH, query, key, value[:, :, :2]) == (
        f"attention takes no operands {shapes}, float32[2, 4, 2, 8]"
    )
    assert refused(ATTENTION, query, key[:, :3], value[:, :3], enable_gqa=True) == (
        "4 heads cannot share 3"
    )
    assert refused(MATH, query, key, value, masks(torch.float32)[0], 0.0, True) == (
        "attention is causal or has a mask, not both"
    )


def test_dropout_draws() -> None:
    with pytest.raises(InvalidIRError, match="that drops weights at random has no denotation"):
        denoted(ATTENTION, *operands(torch.float32), dropout_p=0.5)


HARD = {
    "infinite": math.inf,
    "infinite and negative": -math.inf,
    "no number": math.nan,
    "below normal numbers": 1e-38,
}
CHANGED = ((0,), (1,), (0, 1, 2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_right_kernels_agree_on_hard_numbers(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = (1, 1, 19, 24), (1, 1, 33, 24), (1, 1, 33, 24)
    given = [torch.randn(shape, generator=generator) for shape in shapes]
    for place, ((how, number), changed) in enumerate(product(HARD.items(), CHANGED)):
        made = [tensor.clone() for tensor in given]
        for index in changed:
            flat = made[index].view(-1)
            every = len(flat) // 2 if not math.isfinite(number) else 3
            flat[::every] = flat[::every] * number if math.isfinite(number) else number
        query, key, value = (tensor.to(dtype) for tensor in made)
        arguments = {"query": query, "key": key, "value": value, "is_causal": place % 2 == 0}
        report = verdict(ATTENTION, arguments, against=BOTH)
        assert report.verdict == "agree", (how, changed, str(report))


def test_a_row_without_such_a_score_is_not_open() -> None:
    generator = torch.Generator().manual_seed(0)
    names = ("query", "key", "value")
    given = {n: torch.randn((1, 1, 9, 8), generator=generator).half() for n in names}
    given["query"][0, 0, 0, 0] = math.inf
    for row, expected in ((0, "agree"), (1, "disagree")):
        wrong = torch.eye(9).half()[row, :, None]
        made = verdict(ATTENTION, given, lambda parts, w=wrong: [parts[0] + w])
        assert made.verdict == expected
