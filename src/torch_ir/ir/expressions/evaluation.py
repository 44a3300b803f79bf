"""The value of an expression when each of its symbols has one."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import TypeAlias

from torch_ir.errors import InvalidIRError, did_you_mean
from torch_ir.ir.expressions.language import (
    ARITHMETIC,
    COMPARISONS,
    FUNCTIONS,
    Algebra,
    Number,
    fold,
    refusals,
)
from torch_ir.ir.expressions.polynomials import require_bits

_Bindings: TypeAlias = Mapping[str, Number]
_Compute: TypeAlias = Callable[[_Bindings], Number]


def evaluate_expression(text: str, bindings: Mapping[str, Number]) -> Number:
    """Evaluate an expression when each symbol has the given value.

    Raises:
        InvalidIRError: A symbol has no value, or the expression has none there (a division by
            zero).
    """
    with refusals(lambda: f"{text} has no value at {dict(bindings)}"):
        return _function_of(text)(bindings)


@lru_cache(maxsize=4096)
def _function_of(text: str) -> _Compute:
    """The function from the symbols' values to the value of an expression."""
    return fold(text, _VALUES)


def _read(name: str) -> _Compute:
    def value(bindings: _Bindings) -> Number:
        if name not in bindings:
            raise InvalidIRError(
                f"symbol {name} has no value", remedy=did_you_mean(name, bindings)
            )
        return bindings[name]

    return value


def _applied(operation: Callable[..., Number], *parts: _Compute) -> _Compute:
    return lambda bindings: operation(*[part(bindings) for part in parts])


def _combined(sign: str, left: Number, right: Number) -> Number:
    if sign == "**" and isinstance(left, int) and isinstance(right, int):
        require_bits(left.bit_length() * right)  # before it is computed
    value = ARITHMETIC[sign](left, right)
    if isinstance(value, int):
        require_bits(value.bit_length())
    elif isinstance(value, complex):
        raise ValueError("the power of a negative number is complex")
    return value


_VALUES: Algebra[_Compute] = Algebra(
    lambda value: lambda _: value,
    _read,
    {
        "and": lambda *parts: lambda bindings: all(part(bindings) for part in parts),
        "or": lambda *parts: lambda bindings: any(part(bindings) for part in parts),
        "not": partial(_applied, operator.not_),
        "-x": partial(_applied, partial(_combined, "*", -1)),
        **{sign: partial(_applied, partial(_combined, sign)) for sign in ARITHMETIC},
        **{sign: partial(_applied, compare) for sign, compare in COMPARISONS.items()},
        **{name: partial(_applied, function) for name, function in FUNCTIONS.items()},
    },
)
