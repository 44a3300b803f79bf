"""Operators that say the layout of their results by the order of dimensions.

``dim_order=[0, 2, 3, 1]`` lays out an image with its channels innermost, as ``channels_last``
does. Without it the result is laid out as the argument is.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch_ir.ir.values import MemoryFormat

DIM_ORDER_OPS = {
    "aten._to_copy.default": "dim_order_ops._to_dim_order_copy.default",
    "aten.clone.default": "dim_order_ops._clone_dim_order.default",
    "aten.empty.memory_format": "dim_order_ops._empty_dim_order.default",
}
"""What stands in Edge for the operators that take a memory format."""

CHANNELS_LAST = {"channels_last": (0, 2, 3, 1), "channels_last_3d": (0, 2, 3, 4, 1)}


def dim_order_of(memory_format: MemoryFormat, rank: int) -> tuple[int, ...] | None:
    """Return the order of dimensions that a memory format gives; None to keep the argument's.

    Example:
        >>> dim_order_of(MemoryFormat("channels_last"), 4)
        (0, 2, 3, 1)
        >>> dim_order_of(MemoryFormat("contiguous_format"), 3)
        (0, 1, 2)
    """
    if memory_format.name == "preserve_format":
        return None
    return CHANNELS_LAST.get(memory_format.name, tuple(range(rank)))


def memory_format_of(dim_order: Sequence[int] | None) -> MemoryFormat | None:
    """Return the memory format of an order of dimensions; None if torch has no name for it.

    Example:
        >>> memory_format_of([0, 2, 3, 1])
        MemoryFormat(name='channels_last')
        >>> memory_format_of([1, 0]) is None
        True
    """
    if dim_order is None:
        return MemoryFormat("preserve_format")
    order = tuple(dim_order)
    if order == tuple(range(len(order))):
        return MemoryFormat("contiguous_format")
    names = [name for name, known in CHANNELS_LAST.items() if known == order]
    return MemoryFormat(names[0]) if names else None
