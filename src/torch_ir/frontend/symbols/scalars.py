"""Arithmetic on sizes and on numbers read from tensors, as expressions: it makes no nodes."""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable
from typing import Any

import sympy
import torch
from torch.utils._sympy import functions as sympy_functions

from torch_ir.errors import InvalidIRError
from torch_ir.frontend.symbols.symbol_names import creation_order
from torch_ir.ir import SymExpr
from torch_ir.ir.expressions.language import ARITHMETIC, COMPARISONS, TRACED

_INFIX: dict[type[Any], str] = {
    sympy.Add: " + ",
    sympy.Mul: " * ",
    sympy.And: " and ",
    sympy.Or: " or ",
    sympy.Eq: " == ",
    sympy.Ne: " != ",
    sympy.Lt: " < ",
    sympy.Le: " <= ",
    sympy.Gt: " > ",
    sympy.Ge: " >= ",
    sympy_functions.FloorDiv: " // ",
    sympy_functions.CleanDiv: " // ",
    sympy_functions.Mod: " % ",
    sympy_functions.PythonMod: " % ",
    sympy_functions.IntTrueDiv: " / ",
    sympy_functions.FloatTrueDiv: " / ",
    sympy_functions.FloatPow: " ** ",
}
_CALLS: dict[type[Any], str] = {
    sympy.Max: "max",
    sympy.Min: "min",
    sympy_functions.Max: "max",
    sympy_functions.Min: "min",
    sympy.Abs: "abs",
    sympy_functions.ToFloat: "float",
    sympy_functions.TruncToInt: "int",
    sympy_functions.FloorToInt: "floor",
    sympy_functions.CeilToInt: "ceil",
    sympy_functions.RoundToInt: "round",
    sympy_functions.BitwiseFn_bitwise_and: "bit_and",
    sympy_functions.BitwiseFn_bitwise_or: "bit_or",
    sympy_functions.BitwiseFn_bitwise_xor: "bit_xor",
    **{getattr(sympy_functions, f"OpaqueUnaryFn_{name}"): name for name in TRACED},
}
_TEMPLATES: dict[type[Any], str] = {
    sympy_functions.CeilDiv: "-(-{} // {})",
    sympy_functions.ModularIndexing: "{} // {} % {}",
    sympy_functions.TruncToFloat: "float(int({}))",
    sympy_functions.Identity: "{}",
}


def expression(value: Any) -> SymExpr:
    """Convert a ``torch.SymInt``, ``SymFloat`` or ``SymBool`` to an expression.

    Raises:
        InvalidIRError: It uses a function that expressions do not have.
    """
    return SymExpr(expression_text(value.node.expr))


def expression_text(expr: Any) -> str:
    """Write a sympy expression of torch's in Python syntax.

    Raises:
        InvalidIRError: It uses a function that expressions do not have.
    """
    kind = type(expr)
    if isinstance(expr, sympy.Symbol | sympy.Integer) or expr in (sympy.true, sympy.false):
        return str(expr)
    if kind is sympy.Piecewise and expr.args[-1].cond == sympy.true:
        return _choice_text(expr)
    if isinstance(expr, sympy.Float):
        return repr(float(expr))
    arguments = [f"({expression_text(argument)})" for argument in expr.args]
    if kind in (sympy.And, sympy.Or):  # which sympy sorts by names, and torch's are accidental
        arguments.sort(key=creation_order)
    if kind in _INFIX:
        return _INFIX[kind].join(arguments)
    if kind in _CALLS:
        return f"{_CALLS[kind]}({', '.join(arguments)})"
    if kind in _TEMPLATES:
        return _TEMPLATES[kind].format(*arguments)
    if kind in (sympy.Pow, sympy_functions.PowByNatural) and expr.args[1].is_nonnegative:
        return f"{arguments[0]} ** {expr.args[1]}"
    if kind is sympy.Not:
        return f"not {arguments[0]}"
    raise InvalidIRError(
        f"the size expression {expr} uses {kind.__name__}, which has no counterpart"
    )


def _choice_text(expr: Any) -> str:
    *choices, otherwise = expr.args
    text = expression_text(otherwise.expr)
    for choice in reversed(choices):
        text = _CHOICE.format(expression_text(choice.cond), expression_text(choice.expr), text)
    return text


_CHOICE = "({2}) + (({1}) - ({2})) * int({0})"
"""Of two integers, the first if a condition holds."""

_OPERATORS: dict[Callable[..., Any], str] = {
    **{f: f"({{}}) {sign} ({{}})" for sign, f in (ARITHMETIC | COMPARISONS).items()},
    operator.neg: "-({})",
    operator.pos: "({})",
    operator.abs: "abs({})",
    operator.and_: "({}) and ({})",
    operator.or_: "({}) or ({})",
    torch.sym_ite: _CHOICE,
    torch.sym_not: "not ({})",
    torch.sym_float: "float({})",
    torch.sym_int: "int({})",
    torch.sym_max: "max({}, {})",
    torch.sym_min: "min({}, {})",
    math.trunc: "int({})",
    math.floor: "floor({})",
    math.ceil: "ceil({})",
    builtins.round: "round({})",
    **{
        getattr(torch, f"_sym_{name}"): f"{name}({{}})"
        for name in TRACED
        if hasattr(torch, f"_sym_{name}")
    },
}


def call_expression(function: Any, arguments: tuple[Any, ...], traced: Any) -> SymExpr:
    """Return the expression of a traced call of Python arithmetic.

    Integers are taken from torch's own expression, which it has simplified with what it knows;
    where floating-point numbers take part, the operations stay in the order in which the program
    does them.

    Raises:
        InvalidIRError: The function has no counterpart.
    """
    if isinstance(traced, torch.SymInt | torch.SymBool):
        try:
            return expression(traced)
        except InvalidIRError:
            pass  # floating-point numbers take part
    template = _OPERATORS.get(function)
    is_bitwise = isinstance(traced, torch.SymInt) and function in (operator.and_, operator.or_)
    if template is None or is_bitwise:
        raise InvalidIRError(f"a call of {function} on numbers has no counterpart")
    return SymExpr(template.format(*map(repr_number, arguments)))


def repr_number(value: Any) -> str:
    """Write a number or expression as text of an expression."""
    return value.text if isinstance(value, SymExpr) else repr(value)
