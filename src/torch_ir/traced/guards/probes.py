"""State of libraries that code reads by name, compared at each call."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_ir.kernel_switches import backend_flags

Probe = Callable[[], Any]


def _environment() -> dict[str, str]:
    return dict(os.environ)


_PROBES: dict[tuple[str, ...], Probe] = {
    ("os", "environ"): _environment,
    ("os", "getenv"): _environment,
    ("torch", "backends"): backend_flags,
    ("torch", "get_num_threads"): torch.get_num_threads,
    ("torch", "get_num_interop_threads"): torch.get_num_interop_threads,
    ("torch", "get_float32_matmul_precision"): torch.get_float32_matmul_precision,
}


def probe_of(module: str, names: Sequence[str]) -> Probe | None:
    """Return what reads the state that an attribute of a library's module is about, or None.

    Example:
        >>> probe_of("torch", ["backends", "cuda"]) is backend_flags, probe_of("math", ["pi"])
        (True, None)
    """
    chain = (*module.split("."), *names)
    return next((probe for known, probe in _PROBES.items() if chain[: len(known)] == known), None)


def probe_of_value(value: object) -> Probe | None:
    """Return what reads an object that is a library's state itself, or None."""
    return _environment if value is os.environ else None
