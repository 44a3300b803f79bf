"""Symbolic sizes and scalars: integer expressions over named symbols, in one canonical spelling.

``SymExpr("1 + s0 * 2")`` and ``SymExpr("2*s0 + 1")`` are the same value. Sums and products are expanded to a
polynomial with integer coefficients; ``//``, ``%``, ``min`` and ``max`` stay as they are over canonical operands.
The language is Python's own arithmetic, read with :mod:`ast` and interpreted here: nothing is ever evaluated as code.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any, TypeAlias

from torch_ir.errors import InvalidIRError, did_you_mean

MAX_LENGTH = 4096
"""Characters in one expression; longer ones are refused."""

MAX_TERMS = 1024
"""Terms of one expanded expression; ``(a + b)**500`` is refused."""

MAX_BITS = 4096
"""Bits in one integer while evaluating; ``9**9**9`` is refused."""

Monomial: TypeAlias = tuple[tuple[str, int], ...]
"""A product of atoms with their powers, sorted; the empty product is the constant term."""

Polynomial: TypeAlias = dict[Monomial, int]

_COMPARE: dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], bool]]] = {
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
}
_CALLS: dict[str, Callable[..., Any]] = {"min": min, "max": max, "abs": abs}


@dataclass(frozen=True, slots=True)
class SymExpr:
    """A canonical integer or boolean expression over symbols.

    Args:
        text: The expression in Python syntax: integers, symbols, ``+ - * // % **``, ``min``, ``max``, ``abs``,
            comparisons, ``and``, ``or``, ``not``.

    Raises:
        InvalidIRError: The text is not such an expression, or is too long.

    Example:
        >>> e = SymExpr("1 + s0 * 2")
        >>> str(e), e.symbols, e.evaluate({"s0": 3})
        ('2*s0 + 1', ('s0',), 7)
        >>> SymExpr("s0") * 4 // 2
        SymExpr('2*s0')
        >>> SymExpr("s0 <= 4*s1").evaluate({"s0": 5, "s1": 1})
        False
    """

    text: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", _canonical(self.text))

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"SymExpr({self.text!r})"

    @property
    def symbols(self) -> tuple[str, ...]:
        """The symbols that occur, sorted."""
        return tuple(
            sorted(
                {n.id for n in ast.walk(_parse(self.text)) if isinstance(n, ast.Name)}
                - _CALLS.keys()
            )
        )

    def evaluate(self, bindings: Mapping[str, int]) -> int | bool:
        """The value when each symbol has the given integer value.

        Raises:
            InvalidIRError: A symbol has no value, or the expression divides by zero.
        """
        try:
            return _evaluate(_parse(self.text), bindings)
        except ZeroDivisionError:
            raise InvalidIRError(f"{self.text} divides by zero at {dict(bindings)}") from None

    def __add__(self, other: SymExpr | int) -> SymExpr:
        return SymExpr(f"({self}) + ({other})")

    def __sub__(self, other: SymExpr | int) -> SymExpr:
        return SymExpr(f"({self}) - ({other})")

    def __mul__(self, other: SymExpr | int) -> SymExpr:
        return SymExpr(f"({self}) * ({other})")

    def __floordiv__(self, other: SymExpr | int) -> SymExpr:
        return SymExpr(f"({self}) // ({other})")

    def __mod__(self, other: SymExpr | int) -> SymExpr:
        return SymExpr(f"({self}) % ({other})")

    def __neg__(self) -> SymExpr:
        return SymExpr(f"-({self})")

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: int) -> SymExpr:
        return SymExpr(f"({other}) - ({self})")


Dim: TypeAlias = int | SymExpr
"""One dimension of a shape."""


def as_dim(value: object) -> Dim:
    """A dimension from an int, an expression or its text; a constant expression becomes an int.

    Example:
        >>> as_dim(3), as_dim("s0 + 1"), as_dim("2 + 2")
        (3, SymExpr('s0 + 1'), 4)

    Raises:
        InvalidIRError: The value is negative, or neither an int nor an expression.
    """
    if isinstance(value, str):
        value = SymExpr(value)
    if isinstance(value, SymExpr):
        digits = value.text.removeprefix("-")
        if not digits.isdecimal():
            return value
        value = int(value.text)
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidIRError(
            f"a dimension cannot be {value!r:.80}",
            remedy="Dimensions are integers or expressions.",
        )
    if value < 0:
        raise InvalidIRError(f"a dimension cannot be negative, got {value}")
    return int(value)


@lru_cache(maxsize=4096)
def _parse(text: str) -> ast.expr:
    if len(text) > MAX_LENGTH:
        raise InvalidIRError(
            f"an expression of {len(text)} characters is too long (at most {MAX_LENGTH})"
        )
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise InvalidIRError(f"{text!r:.80} is not an expression") from None


@lru_cache(maxsize=4096)
def _canonical(text: str) -> str:
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers may be untyped
        raise InvalidIRError(f"an expression is text, got {type(text).__name__}")
    try:
        return _spell(_parse(text))
    except RecursionError:
        raise InvalidIRError(f"{text!r:.80} is nested too deeply") from None
    except ZeroDivisionError:
        raise InvalidIRError(f"{text!r:.80} divides by zero") from None


def _spell(node: ast.expr) -> str:
    """The canonical text of a boolean or integer expression."""
    match node:
        case ast.BoolOp(op=op, values=values):
            word = " and " if isinstance(op, ast.And) else " or "
            return word.join(_operand(_spell(value)) for value in values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return f"not {_operand(_spell(operand))}"
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
            return f"{_operand(_spell(left))} {_COMPARE[type(op)][0]} {_operand(_spell(right))}"
        case ast.Constant(value=bool(value)):
            return str(value)
        case _:
            return _spell_polynomial(_polynomial(node))


def _operand(text: str) -> str:
    """The text in brackets unless it reads as one thing."""
    return text if text.isidentifier() or text.isdecimal() or _is_call(text) else f"({text})"


def _is_call(text: str) -> bool:
    return isinstance(_parse(text), ast.Call)


def _polynomial(node: ast.expr) -> Polynomial:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return _constant(value)
        case ast.Name(id=name):
            return {((name, 1),): 1}
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
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int(power))) if (
            0 <= power <= 64
        ):
            return reduce(_times, [_polynomial(left)] * power, _constant(1))
        case ast.BinOp(left=left, op=ast.FloorDiv() | ast.Mod() as op, right=right):
            return _divide(
                _polynomial(left),
                _polynomial(right),
                "//" if isinstance(op, ast.FloorDiv) else "%",
            )
        case ast.Call(func=ast.Name(id=name), args=[_, *_] as arguments, keywords=[]) if (
            name in _CALLS
        ):
            return _call(name, [_polynomial(argument) for argument in arguments])
        case ast.IfExp() | ast.Compare() | ast.BoolOp():
            raise InvalidIRError(
                f"{ast.unparse(node)!r:.80} is a condition where a number is expected"
            )
        case ast.Call(func=ast.Name(id=name)):
            raise InvalidIRError(
                f"{name!r} is not a function of expressions", remedy=did_you_mean(name, _CALLS)
            )
        case _:
            raise InvalidIRError(f"{ast.unparse(node)!r:.80} is not an integer expression")


def _constant(value: int) -> Polynomial:
    if value.bit_length() > MAX_BITS:
        raise InvalidIRError(
            f"an integer of {value.bit_length()} bits is too large in an expression"
        )
    return {(): value} if value else {}


def _plus(left: Polynomial, right: Polynomial) -> Polynomial:
    total = dict(left)
    for monomial, coefficient in right.items():
        total[monomial] = total.get(monomial, 0) + coefficient
    return _bounded({monomial: c for monomial, c in total.items() if c})


def _times(left: Polynomial, right: Polynomial) -> Polynomial:
    total: Polynomial = {}
    for (m1, c1), (m2, c2) in ((a, b) for a in left.items() for b in right.items()):
        powers = dict(m1)
        for atom, power in m2:
            powers[atom] = powers.get(atom, 0) + power
        monomial = tuple(sorted(powers.items()))
        total[monomial] = total.get(monomial, 0) + c1 * c2
    return _bounded({monomial: c for monomial, c in total.items() if c})


def _bounded(polynomial: Polynomial) -> Polynomial:
    if len(polynomial) > MAX_TERMS:
        raise InvalidIRError(
            f"an expression of {len(polynomial)} terms is too large (at most {MAX_TERMS})"
        )
    if any(c.bit_length() > MAX_BITS for c in polynomial.values()):
        raise InvalidIRError("an integer in an expression is too large")
    return polynomial


def _value(polynomial: Polynomial) -> int | None:
    """The constant that a polynomial is, or None."""
    return polynomial.get((), 0) if not polynomial.keys() - {()} else None


def _divide(left: Polynomial, right: Polynomial, sign: str) -> Polynomial:
    divisor = _value(right)
    if divisor == 0:
        raise ZeroDivisionError
    dividend = _value(left)
    if divisor is not None and dividend is not None:
        return _constant(dividend // divisor if sign == "//" else dividend % divisor)
    if divisor is not None and all(c % divisor == 0 for c in left.values()):
        return {m: c // divisor for m, c in left.items()} if sign == "//" else {}
    text = f"{_operand(_spell_polynomial(left))} {sign} {_operand(_spell_polynomial(right))}"
    return {((text, 1),): 1}


def _call(name: str, arguments: list[Polynomial]) -> Polynomial:
    values = [_value(argument) for argument in arguments]
    if (name == "abs") != (len(arguments) == 1):
        raise InvalidIRError(
            f"{name} takes {'one argument' if name == 'abs' else 'two or more arguments'}"
        )
    known = [value for value in values if value is not None]
    if len(known) == len(values):
        return _constant(_CALLS[name](*known))
    spelled = [_spell_polynomial(argument) for argument in arguments]
    if name != "abs":
        spelled = sorted(set(spelled))
        if len(spelled) == 1:
            return arguments[0]
    return {((f"{name}({', '.join(spelled)})", 1),): 1}


def _spell_polynomial(polynomial: Polynomial) -> str:
    """Highest degree first, then by name, the constant last."""
    if not polynomial:
        return "0"
    ordered = sorted(
        polynomial.items(), key=lambda item: (-sum(power for _, power in item[0]), item[0])
    )
    text = ""
    for monomial, coefficient in ordered:
        term = "*".join(
            _factors(monomial, abs(coefficient), alone=len(polynomial) == 1 and coefficient == 1)
        )
        if text:
            text += f" - {term}" if coefficient < 0 else f" + {term}"
        else:
            text = f"-{term}" if coefficient < 0 else term
    return text


def _factors(monomial: Monomial, coefficient: int, *, alone: bool) -> Iterator[str]:
    if coefficient != 1 or not monomial:
        yield str(coefficient)
    for atom, power in monomial:
        spelled = atom if alone and len(monomial) == 1 and power == 1 else _operand(atom)
        yield spelled if power == 1 else f"{spelled}**{power}"


def _evaluate(node: ast.expr, bindings: Mapping[str, int]) -> int | bool:
    match node:
        case ast.Constant(value=int(value)):
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
            return _CALLS[name](*(_evaluate(argument, bindings) for argument in arguments))
        case ast.BinOp(left=left, op=op, right=right):
            return _ARITHMETIC[type(op)](_evaluate(left, bindings), _evaluate(right, bindings))
        case _:
            raise InvalidIRError(f"{ast.unparse(node)!r:.80} is not an expression")


_ARITHMETIC: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
