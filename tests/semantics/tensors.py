"""Small tensors for comparing denotations with torch: the same in every run."""

from __future__ import annotations

import math

import torch

ALL = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.complex64,
    torch.complex128,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
)
FLOATING = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
SPECIAL = (0.0, -0.0, math.inf, -math.inf, math.nan, 1e-42, -1.5, 3e38)


def tensor(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Normal numbers, integers from 0 to 9, or booleans."""
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_complex:
        return torch.randn(shape, generator=generator, dtype=torch.complex128).to(dtype)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
    high = 2 if dtype == torch.bool else 10
    return torch.randint(0, high, shape, generator=generator).to(dtype)


def special(dtype: torch.dtype) -> torch.Tensor:
    """Lines [9, 4] of what is special about a type: NaN, inf, -0, denormals; extreme integers."""
    if dtype.is_floating_point or dtype.is_complex:
        numbers = torch.tensor(SPECIAL, dtype=torch.float64)
    elif dtype == torch.bool:
        numbers = torch.tensor([True, False, True])
    else:
        info = torch.iinfo(dtype)
        numbers = torch.tensor([info.min, info.max, 0, 1, info.max - 1, 3])
    return numbers[torch.arange(36) * 7 % 13 % len(numbers)].reshape(9, 4).to(dtype)
