"""The language of symbolic expressions: read, spelled in one canonical way, evaluated, solved.

Integer sums and products become a polynomial. What rounds keeps the order in which it was written.
Text is read with :mod:`ast` and interpreted here; nothing is ever evaluated as code.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, reduce
from typing import Any, TypeAlias

from torch_ir.errors import InvalidIRError, did_you_mean

MAX_LENGTH = 4096
"""Characters in one expression; longer ones are refused."""

MAX_TERMS = 256
"""Terms of one expanded expression; ``(a + b + c)**50`` is refused."""

MAX_POWER = 64
"""The highest power of a symbol or of another factor; ``s0**65`` is refused."""

MAX_BITS = 4096
"""Bits in one integer, also while evaluating; ``9**9**9`` is refused."""

Number: TypeAlias = int | float | bool

Monomial: TypeAlias = tuple[tuple[str, int], ...]
"""A product of atoms with their powers, sorted; the empty product is the constant term."""

Polynomial: TypeAlias = dict[Monomial, int]

_OF_EITHER: dict[str, Callable[..., Any]] = {"min": min, "max": max, "abs": abs}
_TO_INT: dict[str, Callable[..., Any]] = {
    "int": int,
    "floor": math.floor,
    "ceil": math.ceil,
    "round": round,
}
_BITWISE: dict[str, Callable[..., Any]] = {
    "bit_and": operator.and_,
    "bit_or": operator.or_,
    "bit_xor": operator.xor,
}
"""Of two integers."""

_MATH = (
    *("sqrt", "exp", "log", "log2", "sin", "cos", "tan", "asin", "acos", "atan"),
    *("sinh", "cosh", "tanh"),
)
_TO_FLOAT: dict[str, Callable[..., Any]] = {
    "float": float,
    **{name: getattr(math, name) for name in _MATH},
}
FUNCTIONS: dict[str, Callable[..., Any]] = {**_OF_EITHER, **_TO_INT, **_BITWISE, **_TO_FLOAT}
"""The functions of the language, by name."""

_COMPARE: dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], bool]]] = {
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
}
_ARITHMETIC: dict[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
    ast.Pow: ("**", operator.pow),
}


@lru_cache(maxsize=4096)
def parse_expression(text: str) -> ast.expr:
    """Parse an expression to its syntax tree.

    Raises:
        InvalidIRError: The text is not Python syntax, or too long.
    """
    if len(text) > MAX_LENGTH:
        raise InvalidIRError(
            f"an expression of {len(text)} characters is too long (at most {MAX_LENGTH})"
        )
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise InvalidIRError(f"{text!r:.80} is not an expression") from None


@lru_cache(maxsize=4096)
def canonical(text: str) -> str:
    """Spell an expression in the one way for all that are the same.

    Raises:
        InvalidIRError: The text is not an expression of the language, or too large.
    """
    try:
        spelled = _spell(parse_expression(text))
        parse_expression(spelled)  # expanding may have made it too long to be read again
        return spelled
    except RecursionError:
        raise InvalidIRError(f"{text!r:.80} is nested too deeply") from None
    except (ZeroDivisionError, OverflowError, ValueError) as error:
        if isinstance(error, InvalidIRError):
            raise
        raise InvalidIRError(f"{text!r:.80} has no value: {error}") from None


def symbols_of(text: str) -> tuple[str, ...]:
    """Return the symbols that occur in an expression, sorted."""
    calls = {n.func for n in ast.walk(parse_expression(text)) if isinstance(n, ast.Call)}
    names = (n for n in ast.walk(parse_expression(text)) if isinstance(n, ast.Name))
    return tuple(sorted({name.id for name in names if name not in calls}))


def evaluate_expression(text: str, bindings: Mapping[str, Number]) -> Number:
    """Evaluate an expression when each symbol has the given value.

    Raises:
        InvalidIRError: A symbol has no value, or the expression has none there (a division by
            zero).
    """
    try:
        return _evaluate(parse_expression(text), bindings)
    except RecursionError:
        raise InvalidIRError(f"{text!r:.80} is nested too deeply") from None
    except (ZeroDivisionError, OverflowError, ValueError) as error:
        if isinstance(error, InvalidIRError):
            raise
        raise InvalidIRError(f"{text} has no value at {dict(bindings)}: {error}") from None


def kind_of(text: str) -> type[Number]:
    """Return the type of an expression: ``int``, ``float`` or ``bool``."""
    return _kind(parse_expression(text))


def solve_linear(text: str, value: int) -> tuple[str, int] | None:
    """Solve ``a*symbol + b`` for an integer that gives the value; None if there is none.

    Example:
        >>> solve_linear("2*s0 + 1", 7)
        ('s0', 3)
        >>> solve_linear("2*s0", 7) is None, solve_linear("s0*s1", 6) is None
        (True, True)
    """
    node = parse_expression(text)
    polynomial = {} if _kind(node) is not int else _polynomial(node)
    linear = [monomial for monomial in polynomial if monomial]
    if len(linear) != 1 or len(linear[0]) != 1 or linear[0][0][1] != 1:
        return None
    ((symbol, _),) = linear[0]
    quotient, rest = divmod(value - polynomial.get((), 0), polynomial[linear[0]])
    return (symbol, quotient) if rest == 0 and symbol.isidentifier() else None


# -- kinds ----------------------------------------------------------------------------------------


def _kind(node: ast.expr) -> type[Number]:
    """Whether an expression is an integer, a floating-point number, or a condition."""
    match node:
        case ast.BoolOp() | ast.Compare() | ast.UnaryOp(op=ast.Not()):
            return bool
        case ast.Constant(value=bool()):
            return bool
        case ast.Constant(value=float()):
            return float
        case ast.Name(id=name):
            return float if name.startswith("z") else int
        case ast.UnaryOp(operand=operand):
            return _kind(operand)
        case ast.BinOp(op=ast.Div()):
            return float
        case ast.BinOp(left=left, right=right):
            return float if float in (_kind(left), _kind(right)) else int
        case ast.Call(func=ast.Name(id=name), args=arguments):
            if name in _OF_EITHER:
                return float if any(_kind(argument) is float for argument in arguments) else int
            return float if name in _TO_FLOAT else int
        case _:
            return int


# -- spelling -------------------------------------------------------------------------------------


def _spell(node: ast.expr) -> str:
    kind = _kind(node)
    if kind is bool:
        return _spell_condition(node)
    return _spell_polynomial(_polynomial(node)) if kind is int else _spell_float(node)


def _spell_condition(node: ast.expr) -> str:
    match node:
        case ast.BoolOp(op=op, values=values):
            word = " and " if isinstance(op, ast.And) else " or "
            return word.join(_operand(_spell(value)) for value in values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return f"not {_operand(_spell(operand))}"
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
            sign = _COMPARE[type(op)][0]
            return f"{_operand(_spell(left))} {sign} {_operand(_spell(right))}"
        case ast.Constant(value=bool(value)):
            return str(value)
        case _:
            raise _not_an_expression(node)


def _spell_float(node: ast.expr) -> str:
    """Floating-point arithmetic as it is written, its integer parts in canonical form."""
    match node:
        case ast.Constant(value=float(value)):
            return repr(value)
        case ast.Name(id=name):
            return name
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return f"-{_operand(_spell_number(operand))}"
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _spell_number(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            sign = _ARITHMETIC[type(op)][0]
            return f"{_operand(_spell_number(left))} {sign} {_operand(_spell_number(right))}"
        case ast.Call():
            return _spell_call(node)
        case _:
            raise _not_an_expression(node)


def _spell_number(node: ast.expr) -> str:
    if _kind(node) is bool:
        raise InvalidIRError(
            f"{ast.unparse(node)!r:.80} is a condition where a number is expected"
        )
    return _spell(node)


def _spell_call(node: ast.expr) -> str:
    match node:
        case ast.Call(func=ast.Name(id=name), args=[_, *_] as arguments, keywords=[]):
            if name not in FUNCTIONS:
                hint = did_you_mean(name, FUNCTIONS)
                raise InvalidIRError(f"{name!r} is not a function of expressions", remedy=hint)
            _require_arguments(name, arguments)
            spell = _spell if name == "int" else _spell_number  # int(s0 == 1) is 1 or 0
            return f"{name}({', '.join(map(spell, arguments))})"
        case _:
            raise _not_an_expression(node)


def _require_arguments(name: str, arguments: list[ast.expr]) -> None:
    count = len(arguments)
    if name in _BITWISE:
        if count != 2 or any(_kind(argument) is not int for argument in arguments):
            raise InvalidIRError(f"{name} takes two integers")
    elif (name in ("min", "max")) != (count > 1):
        takes = "two or more arguments" if name in ("min", "max") else "one argument"
        raise InvalidIRError(f"{name} takes {takes}")


def _not_an_expression(node: ast.expr) -> InvalidIRError:
    return InvalidIRError(f"{ast.unparse(node)!r:.80} is not an expression")


def _operand(text: str) -> str:
    """The text in brackets unless it reads as one thing."""
    whole = isinstance(parse_expression(text), ast.Name | ast.Constant | ast.Call)
    return text if whole else f"({text})"


# -- integer polynomials --------------------------------------------------------------------------


def _polynomial(node: ast.expr) -> Polynomial:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return _constant(value)
        case ast.Name(id=name):
            return {((_symbol(name), 1),): 1}
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _times(_constant(-1), _polynomial(operand))
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _polynomial(operand)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _plus(_polynomial(left), _polynomial(right))
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return _plus(_polynomial(left), _times(_constant(-1), _polynomial(right)))
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _times(_polynomial(left), _polynomial(right))
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int(power))):
            _require_power(power)
            return reduce(_times, [_polynomial(left)] * power, _constant(1))
        case ast.BinOp(left=left, op=ast.FloorDiv() | ast.Mod() as op, right=right):
            sign = "//" if isinstance(op, ast.FloorDiv) else "%"
            return _divide(_polynomial(left), _polynomial(right), sign)
        case ast.Call(func=ast.Name(id=name), args=arguments) if name in _OF_EITHER:
            return _call(node, name, arguments)
        case ast.Call():
            return {((_spell_call(node), 1),): 1}
        case ast.IfExp() | ast.Compare() | ast.BoolOp():
            text = ast.unparse(node)
            raise InvalidIRError(f"{text!r:.80} is a condition where a number is expected")
        case _:
            raise InvalidIRError(f"{ast.unparse(node)!r:.80} is not an integer expression")


def _constant(value: int) -> Polynomial:
    _require_bits(value.bit_length())
    return {(): value} if value else {}


def _symbol(name: str) -> str:
    if name in FUNCTIONS:
        raise InvalidIRError(f"{name!r} is a function of expressions, not a symbol")
    return name


def _require_power(power: int) -> None:
    if power > MAX_POWER:
        raise InvalidIRError(f"the power {power} is not between 0 and {MAX_POWER}")


def _require_bits(bits: int) -> None:
    if bits > MAX_BITS:
        raise InvalidIRError(f"an integer of {bits} bits is too large in an expression")


def _plus(left: Polynomial, right: Polynomial) -> Polynomial:
    total = dict(left)
    for monomial, coefficient in right.items():
        total[monomial] = total.get(monomial, 0) + coefficient
    return _bounded({monomial: c for monomial, c in total.items() if c})


def _times(left: Polynomial, right: Polynomial) -> Polynomial:
    if len(left) * len(right) > MAX_TERMS**2:
        raise InvalidIRError(f"an expression has more than {MAX_TERMS} terms")
    total: Polynomial = {}
    for (m1, c1), (m2, c2) in ((a, b) for a in left.items() for b in right.items()):
        powers = dict(m1)
        for atom, power in m2:
            powers[atom] = powers.get(atom, 0) + power
            _require_power(powers[atom])
        monomial = tuple(sorted(powers.items()))
        total[monomial] = total.get(monomial, 0) + c1 * c2
    return _bounded({monomial: c for monomial, c in total.items() if c})


def _bounded(polynomial: Polynomial) -> Polynomial:
    if len(polynomial) > MAX_TERMS:
        raise InvalidIRError(
            f"an expression of {len(polynomial)} terms is too large (at most {MAX_TERMS})"
        )
    _require_bits(max((c.bit_length() for c in polynomial.values()), default=0))
    return polynomial


def _value(polynomial: Polynomial) -> int | None:
    """The constant that a polynomial is, or None."""
    return polynomial.get((), 0) if not polynomial.keys() - {()} else None


def _divide(left: Polynomial, right: Polynomial, sign: str) -> Polynomial:
    divisor = _value(right)
    if divisor == 0:
        raise ZeroDivisionError("division by zero")
    dividend = _value(left)
    if divisor is not None and dividend is not None:
        return _constant(dividend // divisor if sign == "//" else dividend % divisor)
    if divisor is not None and all(c % divisor == 0 for c in left.values()):
        return {m: c // divisor for m, c in left.items()} if sign == "//" else {}
    text = f"{_operand(_spell_polynomial(left))} {sign} {_operand(_spell_polynomial(right))}"
    return {((text, 1),): 1}


def _call(node: ast.expr, name: str, arguments: list[ast.expr]) -> Polynomial:
    _spell_call(node)  # refuses a wrong number of arguments
    polynomials = [_polynomial(argument) for argument in arguments]
    known = [value for value in map(_value, polynomials) if value is not None]
    if len(known) == len(polynomials):
        return _constant(FUNCTIONS[name](*known))
    spelled = [_spell_polynomial(polynomial) for polynomial in polynomials]
    if name != "abs":
        spelled = sorted(set(spelled))
        if len(spelled) == 1:
            return polynomials[0]
    return {((f"{name}({', '.join(spelled)})", 1),): 1}


def _spell_polynomial(polynomial: Polynomial) -> str:
    """Highest degree first, then by name, the constant last."""
    if not polynomial:
        return "0"
    ordered = sorted(polynomial.items(), key=lambda item: (-_degree(item[0]), item[0]))
    text = ""
    for monomial, coefficient in ordered:
        alone = len(polynomial) == 1 and coefficient == 1
        term = "*".join(_factors(monomial, abs(coefficient), alone=alone))
        if text:
            text += f" - {term}" if coefficient < 0 else f" + {term}"
        else:
            text = f"-{term}" if coefficient < 0 else term
    return text


def _degree(monomial: Monomial) -> int:
    return sum(power for _, power in monomial)


def _factors(monomial: Monomial, coefficient: int, *, alone: bool) -> Iterator[str]:
    if coefficient != 1 or not monomial:
        yield str(coefficient)
    for atom, power in monomial:
        spelled = atom if alone and len(monomial) == 1 and power == 1 else _operand(atom)
        yield spelled if power == 1 else f"{spelled}**{power}"


# -- values ---------------------------------------------------------------------------------------


def _evaluate(node: ast.expr, bindings: Mapping[str, Number]) -> Number:
    match node:
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.Name(id=name):
            if name not in bindings:
                raise InvalidIRError(
                    f"symbol {name} has no value", remedy=did_you_mean(name, bindings)
                )
            return bindings[name]
        case ast.BoolOp(op=op, values=values):
            test = all if isinstance(op, ast.And) else any
            return test(_evaluate(value, bindings) for value in values)
        case ast.UnaryOp(op=op, operand=operand):
            value = _evaluate(operand, bindings)
            return (not value) if isinstance(op, ast.Not) else -value
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return _COMPARE[type(op)][1](_evaluate(left, bindings), _evaluate(right, bindings))
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return FUNCTIONS[name](*(_evaluate(argument, bindings) for argument in arguments))
        case ast.BinOp(left=left, op=op, right=right):
            return _combine(op, _evaluate(left, bindings), _evaluate(right, bindings))
        case _:
            raise _not_an_expression(node)


def _combine(op: ast.operator, left: Number, right: Number) -> Number:
    if isinstance(op, ast.Pow) and isinstance(left, int) and isinstance(right, int):
        _require_bits(left.bit_length() * right)  # before it is computed
    value = _ARITHMETIC[type(op)][1](left, right)
    if isinstance(value, int):
        _require_bits(value.bit_length())
    return value
