"""Operators that only a target knows: ``bind_pattern_to_op`` makes one, ``ops`` finds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch_ir.lazy import lazy_names

if TYPE_CHECKING:
    from torch_ir.dialects.backend.binding import bind_pattern_to_op, bindings
    from torch_ir.dialects.backend.operator_namespace import ops

__all__ = ["bind_pattern_to_op", "bindings", "ops"]

__getattr__ = lazy_names(
    __name__,
    {
        "torch_ir.dialects.backend.binding": ("bind_pattern_to_op", "bindings"),
        "torch_ir.dialects.backend.operator_namespace": ("ops",),
    },
)
