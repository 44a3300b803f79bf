"""Expressions over torch's symbolic numbers, without deciding anything about their values."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, cast

import torch

from torch_ir.errors import InvalidIRError
from torch_ir.ir import SymExpr
from torch_ir.ir.expressions import parse_expression


def _to_int(value: Any) -> Any:
    return torch.sym_ite(value, 1, 0) if isinstance(value, torch.SymBool) else torch.sym_int(value)


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "min": lambda *values: reduce(torch.sym_min, values),
    "max": lambda *values: reduce(torch.sym_max, values),
    "abs": operator.abs,
    "int": _to_int,
    "floor": math.floor,
    "ceil": math.ceil,
    "round": round,
    "float": torch.sym_float,
    "bit_and": operator.and_,
    "bit_or": operator.or_,
    "bit_xor": operator.xor,
    **{
        name: getattr(torch, f"_sym_{name}")
        for name in ("sqrt", "exp", "log", "log2", "sin", "cos", "tan", "asin", "acos", "atan")
        if hasattr(torch, f"_sym_{name}")
    },
}
_OPERATORS: Mapping[type[Any], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.And: operator.and_,
    ast.Or: operator.or_,
}


def symbolic(value: Any, symbols: Mapping[str, Any]) -> Any:
    """The value with every expression in it computed from the symbols' symbolic values.

    Raises:
        InvalidIRError: A function has no counterpart for symbolic numbers.
    """
    if isinstance(value, list | tuple):
        return [symbolic(item, symbols) for item in cast(list[Any], value)]
    if isinstance(value, dict):
        items = cast(dict[str, Any], value).items()
        return {key: symbolic(item, symbols) for key, item in items}
    return _compute(parse_expression(value.text), symbols) if isinstance(value, SymExpr) else value


def _compute(node: ast.expr, symbols: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name) if name in symbols:
            return symbols[name]
        case ast.BoolOp(op=op, values=values):
            return reduce(_OPERATORS[type(op)], [_compute(item, symbols) for item in values])
        case ast.UnaryOp(op=op, operand=operand):
            made = _compute(operand, symbols)
            return torch.sym_not(made) if isinstance(op, ast.Not) else -made
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](_compute(left, symbols), _compute(right, symbols))
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return _OPERATORS[type(op)](_compute(left, symbols), _compute(right, symbols))
        case ast.Call(func=ast.Name(id=name), args=arguments) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*[_compute(item, symbols) for item in arguments])
        case _:
            raise InvalidIRError(f"{ast.unparse(node)!r:.80} cannot be computed symbolically")
