"""One spelling for all expressions that are the same.

Integer sums and products become a polynomial. What rounds keeps the order in which it was written.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache, partial
from keyword import iskeyword
from typing import NamedTuple

from torch_ir.errors import InvalidIRError
from torch_ir.ir.expressions.language import (
    BITWISE,
    COMPARISONS,
    FUNCTIONS,
    MAX_DEPTH,
    MAX_LENGTH,
    OF_EITHER,
    TO_FLOAT,
    Algebra,
    Number,
    fold,
    refusals,
    refuse,
    steps,
)
from torch_ir.ir.expressions.polynomials import (
    Polynomial,
    constant,
    constant_of,
    divide,
    operand,
    plus,
    require_length,
    require_power,
    spell,
    times,
)

MAX_WORK = 2**18
"""Work that one expression may take, about in microseconds."""

STEP = 8
"""The work of one node; a factor that is multiplied is one, and so are 16 characters."""

DOCUMENT_WORK = 3 * 2**17
"""Work that the expressions of one document may take, if a third of its characters is not more."""


_BRACKETS = re.compile(r"[(),]")


class Spelling(NamedTuple):
    """An expression in its canonical spelling, its type, and the work that it took."""

    text: str
    kind: type[Number]
    work: int


class _Document:
    """The expressions that one document has had so far, and the work that is left for others."""

    def __init__(self, characters: int):
        self._known: dict[str, Spelling] = {}
        self._left = max(characters // 3, DOCUMENT_WORK)

    def spelling(self, text: str) -> Spelling:
        found = self._known.get(text)
        if found is None:
            found = _spelling(text)
            self._left -= found.work
            if self._left < 0:
                raise InvalidIRError(
                    "the expressions of the document are too many, or too large when they are "
                    "expanded, for its size"
                )
            self._known[text] = found
        return found


_DOCUMENT: ContextVar[_Document | None] = ContextVar("document", default=None)


@contextmanager
def expressions_of(characters: int) -> Generator[None]:
    """Bound the work of the expressions that are made in the block, those of one document.

    It is counted, each distinct text once, so that it is the same on every machine.

    Args:
        characters: Of the document.

    Raises:
        InvalidIRError: The expressions take more than :data:`DOCUMENT_WORK` allows.
    """
    token = _DOCUMENT.set(_Document(characters))
    try:
        yield
    finally:
        _DOCUMENT.reset(token)


def canonical(text: str) -> Spelling:
    """Spell an expression in the one way for all that are the same.

    Raises:
        InvalidIRError: The text is not an expression of the language, or too large.
    """
    document = _DOCUMENT.get()
    return _spelling(text) if document is None else document.spelling(text)


@lru_cache(maxsize=4096)
def _spelling(text: str) -> Spelling:
    normal = _normal_form(text)
    spelled = normal.spelled
    if spelled == text:
        return Spelling(text, normal.kind, normal.work)
    if len(spelled) > MAX_DEPTH:  # what is shorter is neither deep nor large
        steps(spelled, MAX_LENGTH)  # expanding may have made it too large to be read again
    return Spelling(spelled, normal.kind, normal.work + len(spelled))


def kind_of(text: str) -> type[Number]:
    """Return the type of an expression: ``int``, ``float`` or ``bool``."""
    return _normal_form(text).kind


def solve_linear(text: str, value: int) -> tuple[str, int] | None:
    """Solve ``a*symbol + b`` for an integer that gives the value; None if there is none.

    Example:
        >>> solve_linear("2*s0 + 1", 7)
        ('s0', 3)
        >>> solve_linear("2*s0", 7) is None, solve_linear("s0*s1", 6) is None
        (True, True)
    """
    polynomial = _normal_form(text).polynomial or {}
    linear = [monomial for monomial in polynomial if monomial]
    if len(linear) != 1 or len(linear[0]) != 1 or linear[0][0][1] != 1:
        return None
    ((symbol, _),) = linear[0]
    quotient, rest = divmod(value - polynomial.get((), 0), polynomial[linear[0]])
    return (symbol, quotient) if rest == 0 and symbol.isidentifier() else None


class Normal(NamedTuple):
    """What decides the canonical spelling of a part of an expression.

    Attributes:
        kind: Whether it is an integer, a floating-point number, or a condition.
        polynomial: Of an integer.
        text: Of another kind: its spelling.
        work: What it took, in the unit of :data:`MAX_WORK`.
    """

    kind: type[Number]
    polynomial: Polynomial | None = None
    text: str = ""
    work: int = 0

    @property
    def spelled(self) -> str:
        """The canonical spelling."""
        return self.text if self.polynomial is None else spell(self.polynomial)


def normal_form(text: str) -> Normal:
    """Return the normal form of an expression, a new one that may be part of another.

    Raises:
        InvalidIRError: The text is not an expression of the language, or too large.
    """
    known = _normal_form(text)
    return known if known.polynomial is None else known._replace(polynomial={**known.polynomial})


@lru_cache(maxsize=4096)
def _normal_form(text: str) -> Normal:
    if text.isidentifier() and text.isascii() and not (iskeyword(text) or text in FUNCTIONS):
        require_length(text)
        return _normal_symbol(text)
    with refusals(lambda: f"{text!r:.80} has no value"):
        for step in reversed(steps(text, MAX_LENGTH)):  # what is around a fault is named before it
            if isinstance(step.node, ast.Call) and step.operation not in FUNCTIONS:
                refuse(step, ())
        return fold(text, NORMAL)


def _made(parts: Sequence[Normal], kind: type[Number], text: str) -> Normal:
    """What is spelled, and is an atom if it is an integer."""
    require_length(text)
    work = _work(*parts, more=STEP + len(text) // 16)
    if kind is int:
        return Normal(int, {((text, 1),): 1}, work=work)
    return Normal(kind, text=text, work=work)


def _work(*parts: Normal, more: int) -> int:
    work = sum(part.work for part in parts) + more
    if work > MAX_WORK:
        raise InvalidIRError("an expression is too large when it is expanded")
    return work


def _normal_constant(value: Number) -> Normal:
    if isinstance(value, int):
        if isinstance(value, bool):
            return Normal(bool, text=str(value), work=STEP)
        return Normal(int, constant(value), work=STEP)
    if math.isinf(value):  # is spelled "inf", which reads as a symbol
        raise InvalidIRError("a floating-point number in an expression is too large")
    return Normal(float, text=repr(value), work=STEP)


def _normal_symbol(name: str) -> Normal:
    if name in FUNCTIONS:
        raise InvalidIRError(f"{name!r} is a function of expressions, not a symbol")
    return _made((), float if name.startswith("z") else int, name)


def _joined(sign: str, kind: type[Number], *parts: Normal) -> Normal:
    """Operands with a sign between them; numbers unless it is a condition."""
    checked = parts if kind is bool else [_number(part) for part in parts]
    return _made(parts, kind, f" {sign} ".join([operand(part.spelled) for part in checked]))


def _arithmetic(
    sign: str, combine: Callable[[Polynomial, Polynomial], Polynomial], *parts: Normal
) -> Normal:
    """Arithmetic on polynomials, or on floating-point numbers as it is written."""
    left, right = parts
    if left.polynomial is None or right.polynomial is None:
        return _joined(sign, float, left, right)
    fewer = min(len(left.polynomial), len(right.polynomial))
    made = combine(left.polynomial, right.polynomial)
    spelled = sum([len(atom) for term in made for atom, _ in term]) if len(made) == 1 else 0
    return Normal(int, made, work=_work(left, right, more=STEP + fewer + spelled // 16))


def _product(left: Normal, right: Normal) -> Normal:
    if left.polynomial is None or right.polynomial is None:
        return _joined("*", float, left, right)
    a, b = left.polynomial, right.polynomial
    factors = len(a) * sum(map(len, b)) + len(b) * sum(map(len, a)) + len(a) * len(b)
    work = _work(left, right, more=STEP + factors)
    return Normal(int, times(a, b), work=work)


def _power(base: Normal, exponent: Normal) -> Normal:
    if base.polynomial is None or exponent.polynomial is None:
        return _joined("**", float, base, exponent)
    power = constant_of(exponent.polynomial)
    if power is None:
        text = f"{operand(base.spelled)} ** {operand(exponent.spelled)}"
        raise InvalidIRError(f"{text!r:.80} is not an integer expression")
    require_power(power)
    result = Normal(int, constant(1), work=base.work)
    for _ in range(power):
        result = _product(result, base._replace(work=0))
    return result


def _negative(part: Normal) -> Normal:
    if part.polynomial is None:
        return _made([part], float, f"-{operand(_number(part).text)}")
    work = _work(part, more=STEP + len(part.polynomial))
    return part._replace(polynomial={m: -c for m, c in part.polynomial.items()}, work=work)


def _negation(part: Normal) -> Normal:
    return _made([part], bool, f"not {operand(part.spelled)}")


def _function(name: str, *parts: Normal) -> Normal:
    if name in BITWISE:
        if len(parts) != 2 or any(part.kind is not int for part in parts):
            raise InvalidIRError(f"{name} takes two integers")
    elif (name in ("min", "max")) != (len(parts) > 1) or not parts:
        takes = "two or more arguments" if name in ("min", "max") else "one argument"
        raise InvalidIRError(f"{name} takes {takes}")
    spelled = [(part if name == "int" else _number(part)).spelled for part in parts]
    kind = float if name in TO_FLOAT else int  # int(s0 == 1) is 1 or 0
    if name in OF_EITHER:
        known = [constant_of(part.polynomial) for part in parts if part.polynomial is not None]
        if len(known) < len(parts):
            kind = float
        elif None not in known:
            value = FUNCTIONS[name](*known)
            return Normal(int, constant(value), work=_work(*parts, more=STEP))
        elif name != "abs":
            spelled = _members(name, spelled)
            if len(spelled) == 1:
                return parts[0]._replace(work=_work(*parts, more=STEP))
    return _made(parts, kind, f"{name}({', '.join(spelled)})")


def _members(name: str, parts: Sequence[str]) -> list[str]:
    """What a minimum or maximum is of: nested ones are one, and so are the constants of all."""
    known: list[int] = []
    others: set[str] = set()
    for text in [inner for part in parts for inner in _arguments(name, part)]:
        if text.removeprefix("-").isdecimal():
            known.append(int(text))
        else:
            others.add(text)
    constants = [str(FUNCTIONS[name](*known, known[0]))] if known else []
    return sorted([*constants, *others])


def _arguments(name: str, text: str) -> list[str]:
    """The arguments of a call of that function; the text itself, if it is something else."""
    if not text.startswith(f"{name}("):
        return [text]
    found, depth, start = list[str](), 0, len(name) + 1
    for place in _BRACKETS.finditer(text):
        depth += {"(": 1, ")": -1}.get(place[0], 0)
        if depth == 1 and place[0] == ",":
            found.append(text[start : place.start()])
            start = place.end() + 1
        if depth == 0 and place.end() < len(text):  # another operation follows
            return [text]
    return [*found, text[start:-1]]


def _number(part: Normal) -> Normal:
    if part.kind is bool:
        raise InvalidIRError(f"{part.text!r:.80} is a condition where a number is expected")
    return part


NORMAL: Algebra[Normal] = Algebra(
    _normal_constant,
    _normal_symbol,
    {
        "+": partial(_arithmetic, "+", plus),
        "-": partial(_arithmetic, "-", partial(plus, sign=-1)),
        "*": _product,
        "/": partial(_joined, "/", float),
        "//": partial(_arithmetic, "//", partial(divide, "//")),
        "%": partial(_arithmetic, "%", partial(divide, "%")),
        "**": _power,
        "-x": _negative,
        "+x": _number,
        "not": _negation,
        **{sign: partial(_joined, sign, bool) for sign in ("and", "or", *COMPARISONS)},
        **{name: partial(_function, name) for name in FUNCTIONS},
    },
)
"""The normal form of each part."""
