"""Viewers that programs and installed packages add: functions that write a program in a format."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from torch_ir.ir import IR
from torch_ir.ops.extensions import Registry

Viewer: TypeAlias = Callable[[IR], str | bytes]
VIEWERS = Registry[Viewer](
    "torch_ir.viewers",
    "viewer",
    (
        *("json", "tir", "ir", "txt", "mmd", "html", "dot", "pt2", "onnx"),
        *("text", "mermaid", "model-explorer", "graphviz"),
    ),
)
"""Further formats, by the suffix of their files without its dot."""


def register_viewer(suffix: str) -> Callable[[Viewer], Viewer]:
    """Let ``torch-ir convert`` write files of a suffix with the decorated function.

    A package offers one by an entry point of the group ``torch_ir.viewers``, whose name is the
    suffix without its dot.

    Raises:
        InvalidIRError: The suffix is taken, or nothing can ask for it.

    Example:
        >>> @register_viewer("count")
        ... def count(ir):
        ...     return f"{len(ir.nodes)} nodes"
        >>> "count" in VIEWERS.names()
        True
        >>> VIEWERS.unregister("count")
    """
    return VIEWERS.register(suffix)
