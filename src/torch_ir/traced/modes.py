"""The state of torch that tracing depends on, beside arguments and closures."""

from __future__ import annotations

from typing import Any

import torch

from torch_ir.torch_api import has_function_modes, has_modes, is_transforming

NAMES = (
    "grad mode",
    "inference mode",
    "CPU autocast",
    "CPU autocast dtype",
    "CUDA autocast",
    "CUDA autocast dtype",
    "autocast cache",
    "default dtype",
    "default device",
    "deterministic algorithms",
)


def modes() -> tuple[Any, ...]:
    """The value of each of :data:`NAMES` in this thread, now."""
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
        torch.is_autocast_enabled("cuda"),
        torch.get_autocast_dtype("cuda"),
        torch.is_autocast_cache_enabled(),
        torch.get_default_dtype(),
        torch.get_default_device() if has_function_modes() else None,
        torch.are_deterministic_algorithms_enabled(),
    )


def is_observed() -> bool:
    """Whether something else watches or transforms the operators that are called in this thread.

    So do ``torch.compile`` and ``make_fx`` while they trace, ``torch.func``'s transforms, and
    modes. They then see the operators of the function itself.
    """
    return is_transforming() or has_modes()
