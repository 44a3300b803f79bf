"""The state of torch that tracing depends on, beside arguments and closures."""

from __future__ import annotations

from typing import Any

import torch

from torch_ir.torch_modes import (
    has_function_modes,
    has_modes,
    is_any_autocast_enabled,
    is_in_forward_level,
    is_transforming,
)

NAMES = (
    "grad mode",
    "inference mode",
    "autocast",
    "default dtype",
    "default device",
    "deterministic algorithms",
)


def modes() -> tuple[Any, ...]:
    """Return the current value of each of :data:`NAMES` in this thread."""
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        _autocast() if is_any_autocast_enabled() else None,
        torch.get_default_dtype(),
        torch.get_default_device() if has_function_modes() else None,
        torch.are_deterministic_algorithms_enabled(),
    )


def _autocast() -> tuple[Any, ...]:
    regions = [
        (device, torch.get_autocast_dtype(device))
        for device in ("cpu", "cuda")
        if torch.is_autocast_enabled(device)
    ]
    return (*regions, torch.is_autocast_cache_enabled())


def is_observed() -> bool:
    """Return whether something else watches or transforms operators called in this thread.

    So do ``torch.compile`` and ``make_fx`` while they trace, ``torch.func``'s transforms, forward
    derivatives, and modes. They then see the operators of the function itself.
    """
    return is_transforming() or has_modes() or is_in_forward_level()
