"""How large a symbolic size can get: interval arithmetic over the ranges of its symbols."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from itertools import product
from typing import TypeAlias

from torch_ir.errors import PassError
from torch_ir.ir import Dim, SymbolRange, SymExpr
from torch_ir.ir.expressions import parse_expression

Interval: TypeAlias = tuple[float, float]
"""The least and the greatest value; an infinite end is unbounded. Finite ends are ints."""

_ANYTHING: Interval = (-math.inf, math.inf)


def upper_bound(dim: Dim, ranges: Mapping[str, SymbolRange]) -> int:
    """The largest value that a size can have, or one that it cannot reach if it is intricate.

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
    _, high = _interval(parse_expression(dim.text), ranges)
    if high == math.inf:
        free = [name for name in dim.symbols if _is_free(ranges.get(name))]
        has = "has" if len(free) < 2 else "have"
        raise PassError(
            f"the size {dim} has no upper bound: {', '.join(free) or dim.text} {has} none",
            remedy="Extract the model with a maximum for it: torch.export.Dim(NAME, max=...).",
        )
    return max(int(high), 0)


def _is_free(bounds: SymbolRange | None) -> bool:
    return bounds is None or bounds.upper is None or bounds.lower is None


def _interval(node: ast.expr, ranges: Mapping[str, SymbolRange]) -> Interval:
    match node:
        case ast.Constant(value=int() as value):
            return value, value
        case ast.Name(id=name):
            bounds = ranges.get(name, SymbolRange(None, None))
            low = -math.inf if bounds.lower is None else bounds.lower
            return low, math.inf if bounds.upper is None else bounds.upper
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            low, high = _interval(operand, ranges)
            return -high, -low
        case ast.BinOp(left=left, op=op, right=right):
            return _combined(op, _interval(left, ranges), _interval(right, ranges))
        case ast.Call(func=ast.Name(id="min" | "max" as name), args=arguments):
            parts = [_interval(argument, ranges) for argument in arguments]
            choose: Callable[..., float] = min if name == "min" else max
            return choose(low for low, _ in parts), choose(high for _, high in parts)
        case _:
            return _ANYTHING


def _combined(op: ast.operator, left: Interval, right: Interval) -> Interval:
    match op:
        case ast.Add():
            return left[0] + right[0], left[1] + right[1]
        case ast.Sub():
            return left[0] - right[1], left[1] - right[0]
        case ast.Mult():
            return _corners(_times, left, right)
        case ast.FloorDiv() if right[0] > 0:
            return _corners(_over, left, right)
        case ast.Mod() if right[0] > 0:
            return 0, right[1] - 1
        case ast.Pow() if right[0] == right[1] and left[0] >= 0 and right[0] >= 0:
            return left[0] ** right[0], left[1] ** right[0]
        case _:
            return _ANYTHING


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
