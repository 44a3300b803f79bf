"""What the judge says of one call, run as torch does or with a fault."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from infer.trusting_calls import eager, program_of
from torch_ir import validate
from torch_ir.executor import register_executor, unregister_executor

Kernel = Callable[[list[torch.Tensor]], list[torch.Tensor]]


def verdict(
    op_type: str,
    arguments: Mapping[str, Any],
    kernel: Kernel | None = None,
    against: Sequence[str] = ("denotation",),
) -> Any:
    """The report on a program of one call; ``kernel`` makes its results of torch's."""
    made = eager(op_type, arguments)
    results = list(made) if isinstance(made, tuple | list) else [made]
    ir, tensors = program_of(op_type, arguments, results)
    if kernel is not None:
        register_executor(op_type)(lambda inputs, attributes: kernel([*results]))
    try:
        return validate(ir, {}, tuple(tensors), against=[*against])
    finally:
        if kernel is not None:
            unregister_executor(op_type)


def off_by(units: float, index: int = 0, share: float = 1 / 7) -> Kernel:
    """A kernel that is off by so many units of its type in every seventh element of a result."""

    def kernel(results: list[torch.Tensor]) -> list[torch.Tensor]:
        parts = [part.clone() for part in results]
        wrong = parts[index].flatten()
        step = max(int(1 / share), 1)
        wrong[::step] *= 1 + units * torch.finfo(wrong.dtype).eps
        parts[index] = wrong.reshape(parts[index].shape)
        return parts

    return kernel


def seen(
    meant: Sequence[Any], allowed: Sequence[Any], dtype: torch.dtype, units: int = 8
) -> float:
    """In which part of the normal numbers an error of so many units is more than is allowed."""
    found: list[Any] = []
    for mine, limits in zip(meant, allowed, strict=True):
        sizes = np.abs(mine)
        counted = np.isfinite(mine) & (sizes >= torch.finfo(dtype).smallest_normal)
        counted &= np.isfinite(limits)
        found.append((units * torch.finfo(dtype).eps * sizes > limits)[counted])
    told = np.concatenate([part.reshape(-1) for part in found])
    return float(told.mean()) if told.size else 1.0
