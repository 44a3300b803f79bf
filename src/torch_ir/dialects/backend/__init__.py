"""Operators that only a target knows: ``bind_pattern_to_op`` makes one, ``ops`` finds it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch_ir.dialects.backend.binding import bind_pattern_to_op, bindings
    from torch_ir.dialects.backend.operators import ops

__all__ = ["bind_pattern_to_op", "bindings", "ops"]

_HOME = {"bind_pattern_to_op": "binding", "bindings": "binding", "ops": "operators"}


def __getattr__(name: str) -> object:
    """What needs torch is imported when it is first used."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"torch_ir.dialects.backend.{_HOME[name]}")
    return getattr(module, name)
