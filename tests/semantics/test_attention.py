"""Attention: every mask, queries without a key, shared heads, both outputs of the kernels."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from semantics.compare import check, denoted, refused
from torch_ir.errors import InvalidIRError

ATTENTION = "aten.scaled_dot_product_attention.default"
FLASH = "aten._scaled_dot_product_flash_attention_for_cpu.default"
MATH = "aten._scaled_dot_product_attention_math.default"


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
