"""Expressions over torch's symbolic numbers, without deciding anything about their values."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import torch
from torch.fx import Proxy

from torch_ir.errors import InvalidIRError
from torch_ir.infer.resolve import map_argument
from torch_ir.ir import SymExpr
from torch_ir.ir.expressions import Algebra, fold
from torch_ir.ir.expressions.language import ARITHMETIC, COMPARISONS, TRACED, FoldStep


def _to_int(value: Any) -> Any:
    """The number of a truth or of a number, which a graph of fx that is being built may make."""
    made = value.node.meta["val"] if isinstance(value, Proxy) else value
    return torch.sym_ite(value, 1, 0) if isinstance(made, torch.SymBool) else torch.sym_int(value)


def _recorded(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function of Python's, which a graph of fx that is being built has only if it is told."""

    def call(value: Any) -> Any:
        if isinstance(value, Proxy):
            return value.tracer.create_proxy("call_function", function, (value,), {})
        return function(value)

    return call


_OPERATIONS: Mapping[str, Callable[..., Any]] = {
    **ARITHMETIC,
    **COMPARISONS,
    "and": lambda *values: reduce(operator.and_, values),
    "or": lambda *values: reduce(operator.or_, values),
    "not": torch.sym_not,
    "-x": operator.neg,
    "min": lambda *values: reduce(torch.sym_min, values),
    "max": lambda *values: reduce(torch.sym_max, values),
    "abs": operator.abs,
    "int": _to_int,
    **{function.__name__: _recorded(function) for function in (math.floor, math.ceil, round)},
    "float": torch.sym_float,
    "bit_and": operator.and_,
    "bit_or": operator.or_,
    "bit_xor": operator.xor,
    **{name: getattr(torch, f"_sym_{name}") for name in TRACED if hasattr(torch, f"_sym_{name}")},
}


def symbolic(value: Any, symbols: Mapping[str, Any]) -> Any:
    """Compute every expression in a value from the symbols' symbolic values.

    Raises:
        InvalidIRError: A function has no counterpart for symbolic numbers.
    """

    def symbol(name: str) -> Any:
        return symbols[name] if name in symbols else _refuse(name)

    def other(step: FoldStep, _: object) -> Any:
        return _refuse(step.text)

    algebra: Algebra[Any] = Algebra(lambda number: number, symbol, _OPERATIONS, other)
    return map_argument(
        value, lambda leaf: fold(leaf.text, algebra) if isinstance(leaf, SymExpr) else leaf
    )


def _refuse(text: str) -> Any:
    raise InvalidIRError(f"{text!r:.80} cannot be computed symbolically")
