"""Operators that read memory by strides."""

from __future__ import annotations

READING_MEMORY = frozenset(
    f"aten.{name}.default"
    for name in (
        *("as_strided", "as_strided_copy", "as_strided_scatter"),
        *("_reshape_alias", "_reshape_alias_copy", "resize", "resize_"),
    )
)
"""Operators that mean what lies where, and not only a value, unless that is all of its storage."""

BY_LAYOUT = {"aten._linalg_det.default": (1, 2), "aten._linalg_slogdet.default": (2, 3)}
"""Results that depend on strides: of a matrix in row-major order, the transpose is factored."""
