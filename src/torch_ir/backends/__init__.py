"""Ways of running an IR, by name, and backends that run a part of one."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from torch_ir.backends.delegate import to_backend
from torch_ir.backends.partition import Partition, Partitioner
from torch_ir.backends.protocol import SUPPORTED, DelegateBackend, Support
from torch_ir.backends.registry import (
    Backend,
    Options,
    known_backends,
    register_backend,
    unregister_backend,
)
from torch_ir.backends.report import SupportReport, support

if TYPE_CHECKING:
    from torch_ir.backends.compilation import compile

__all__ = [
    "SUPPORTED",
    "Backend",
    "DelegateBackend",
    "Options",
    "Partition",
    "Partitioner",
    "Support",
    "SupportReport",
    "compile",
    "known_backends",
    "register_backend",
    "support",
    "to_backend",
    "unregister_backend",
]


def __getattr__(name: str) -> object:
    """What needs torch is imported when it is first used."""
    if name != "compile":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()["compile"] = import_module("torch_ir.backends.compilation").compile
    return globals()["compile"]
