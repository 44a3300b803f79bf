"""Tensors to compare operators on: special values and ordinary ones, in small shapes."""

from __future__ import annotations

import math

import torch

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.int32, torch.int8, torch.uint8)
COMPLEX = (torch.complex64, torch.complex128)
REAL = (*FLOATS, *INTEGERS)
ALL = (*REAL, *COMPLEX, torch.bool)

SHAPES = ((), (0,), (1,), (2, 0, 3), (3, 1, 2))


def ordinary(dtype: torch.dtype, *shape: int, seed: int = 0) -> torch.Tensor:
    """Values of moderate size, of both signs where there are two; no zeros among integers."""
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if dtype.is_complex:
        parts = torch.randn((*shape, 2), generator=generator, dtype=torch.float64)
        return torch.view_as_complex(parts).to(dtype)
    if dtype.is_floating_point:
        return (torch.randn(shape, generator=generator, dtype=torch.float64) * 2).to(dtype)
    low = 1 if dtype == torch.uint8 else -9
    values = torch.randint(low, 10, shape, generator=generator)
    return torch.where(values == 0, 7, values).to(dtype)


def special(dtype: torch.dtype) -> torch.Tensor:
    """Every value that is handled apart, and some that are not, in one dimension."""
    if dtype == torch.bool:
        return torch.tensor([False, True])
    if dtype.is_complex:
        return ordinary(dtype, 40)
    if dtype.is_floating_point:
        info = torch.finfo(dtype)
        values = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.25, 10.0, info.tiny, info.smallest_normal / 4]
        values += [info.max, math.inf, info.eps, 1 + info.eps, 0.1, math.pi]
        both = torch.tensor([*values, *(-v for v in values), math.nan], dtype=torch.float64)
        return torch.cat([both.to(dtype), ordinary(dtype, 40)])
    info = torch.iinfo(dtype)
    return torch.tensor(
        [info.min, info.min + 1, 0, 1, 2, 3, 5, 7, info.max - 1, info.max], dtype=dtype
    )
