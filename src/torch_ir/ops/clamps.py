"""Bounds of a clamp that the integer type of its operand does not hold."""

from __future__ import annotations

from torch_ir.torch_versions import torch_is


def clamp_cuts_bounds() -> bool:
    """Return whether bounds that an integer type does not hold bound nothing, as since torch 2.15.

    Before, torch refuses them, and an unsigned integer is bounded by a negative number wrapped.
    """
    return torch_is("2.15")


def cut_bound(bound: float, least: int, most: int, *, lower: bool) -> float:
    """Return the last integer of a type in place of a bound that is beyond all of them.

    What bounds on the other side is an integer as it is, without its fraction. Where torch does
    not cut bounds, nothing is changed.

    Args:
        bound: The bound.
        least: The least integer of the type.
        most: The greatest one.
        lower: Whether it is a lower bound.

    Example:
        >>> cut_bound(7, -128, 127, lower=True)
        7
    """
    is_whole = isinstance(bound, int) or abs(bound) < 2**63  # a fraction passes as int64
    if not is_whole or not clamp_cuts_bounds():
        return bound
    return max(int(bound), least) if lower else min(int(bound), most)
