"""Bounds of symbolic sizes: interval arithmetic over the ranges of their symbols."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from itertools import product
from typing import TypeAlias

from torch_ir.errors import PassError
from torch_ir.ir import Dim, SymbolRange, SymExpr
from torch_ir.ir.expressions import Algebra, Number, fold

Interval: TypeAlias = tuple[float, float]
"""The least and the greatest value; an infinite end is unbounded. Finite ends are ints."""

_ANYTHING: Interval = (-math.inf, math.inf)
_LARGEST = 2**1000
"""The greatest end that counts as one: arithmetic with an infinite end stays defined."""


def upper_bound(dim: Dim, ranges: Mapping[str, SymbolRange]) -> int:
    """Return the largest value of a size, or for an intricate one a bound above it.

    Args:
        dim: The size.
        ranges: The range of each symbol.

    Raises:
        PassError: It has no bound; the message names the symbols that have none.

    Example:
        >>> ranges = {"s0": SymbolRange(2, 8), "s1": SymbolRange(1, 3)}
        >>> upper_bound(SymExpr("2*s0 - s1"), ranges), upper_bound(SymExpr("s0 // 3"), ranges)
        (15, 2)
    """
    if not isinstance(dim, SymExpr):
        return dim
    _, high = _interval(dim, ranges)
    if high == math.inf:
        free = [name for name in dim.symbols if _is_free(ranges.get(name))]
        has = "has" if len(free) < 2 else "have"
        raise PassError(
            f"the size {dim} has no upper bound: {', '.join(free) or dim.text} {has} none",
            remedy="Extract the model with a maximum for it: torch.export.Dim(NAME, max=...).",
        )
    return max(int(high), 0)


def may_be_empty(dim: Dim, ranges: Mapping[str, SymbolRange]) -> bool:
    """Return whether a size may be 0; of an intricate one, whether nothing shows that it is not.

    Args:
        dim: The size.
        ranges: The range of each symbol.

    Example:
        >>> ranges = {"s0": SymbolRange(2, 8), "u0": SymbolRange(0, None)}
        >>> [may_be_empty(SymExpr(text), ranges) for text in ("s0 - 1", "s0 - 2", "u0", "u0 + 1")]
        [False, True, True, False]
    """
    return dim == 0 if isinstance(dim, int) else _interval(dim, ranges)[0] <= 0


def _interval(dim: SymExpr, ranges: Mapping[str, SymbolRange]) -> Interval:
    def symbol(name: str) -> Interval:
        bounds = ranges.get(name, SymbolRange(None, None))
        low = -math.inf if bounds.lower is None else bounds.lower
        return _known(low, math.inf if bounds.upper is None else bounds.upper)

    def constant(value: Number) -> Interval:
        return _known(value, value) if isinstance(value, int) else _ANYTHING

    algebra = Algebra(constant, symbol, _OPERATIONS, lambda step, parts: _ANYTHING)
    return fold(dim.text, algebra)


def _is_free(bounds: SymbolRange | None) -> bool:
    return bounds is None or bounds.upper is None or bounds.lower is None


def _known(low: float, high: float) -> Interval:
    """The interval without ends that are too large to count."""
    least = -math.inf if low < -_LARGEST else min(low, _LARGEST)
    return least, math.inf if high > _LARGEST else max(high, -_LARGEST)


def _choice(choose: Callable[..., float], *parts: Interval) -> Interval:
    return choose(low for low, _ in parts), choose(high for _, high in parts)


def _quotient(left: Interval, right: Interval) -> Interval:
    return _corners(_over, left, right) if right[0] > 0 else _ANYTHING


def _rest(_: Interval, right: Interval) -> Interval:
    return (0, right[1] - 1) if right[0] > 0 else _ANYTHING


def _power(base: Interval, exponent: Interval) -> Interval:
    if exponent[0] != exponent[1] or base[0] < 0 or exponent[0] < 0:
        return _ANYTHING
    return base[0] ** exponent[0], base[1] ** exponent[0]


def _corners(
    function: Callable[[float, float], float], left: Interval, right: Interval
) -> Interval:
    values = [function(a, b) for a, b in product(left, right)]
    return min(values), max(values)


def _times(a: float, b: float) -> float:
    return a * b if a and b else 0


def _over(a: float, b: float) -> float:
    if math.isinf(b):
        return a if math.isinf(a) else (0 if a >= 0 else -1)
    return a if math.isinf(a) else a // b


_BINARY: Mapping[str, Callable[[Interval, Interval], Interval]] = {
    "+": lambda left, right: _known(left[0] + right[0], left[1] + right[1]),
    "-": lambda left, right: _known(left[0] - right[1], left[1] - right[0]),
    "*": lambda left, right: _known(*_corners(_times, left, right)),
    "**": lambda base, exponent: _known(*_power(base, exponent)),
    "//": _quotient,
    "%": _rest,
}
_OPERATIONS: Mapping[str, Callable[..., Interval]] = {
    **_BINARY,
    "-x": partial(_BINARY["-"], (0, 0)),
    "min": partial(_choice, min),
    "max": partial(_choice, max),
}
