"""Integers whose quotient, cut to an integer, is none of their type."""

from __future__ import annotations

from typing import Any


def overflows(left: Any, right: Any, least: int) -> Any:
    """Return where the least integer of a type is divided by -1, at which processors stop.

    Args:
        left: The dividends, an array or tensor of the type.
        right: The divisors, which broadcast with them.
        least: The least integer of the type.

    Example:
        >>> import numpy as np
        >>> overflows(np.array([-128, -128]), np.array([-1, 1]), -128).tolist()
        [True, False]
    """
    return (left == least) & (right == -1)
