"""The language of symbolic expressions, read with :mod:`ast` and interpreted by :func:`fold`.

Nothing is ever evaluated as code.
"""

from __future__ import annotations

import ast
import keyword
import math
import operator
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from torch_ir.errors import InvalidIRError, did_you_mean
from torch_ir.ir.expressions.polynomials import MAX_LENGTH, require_length

MAX_NODES = 2000
"""Nodes in the tree of one expression."""

MAX_DEPTH = 64
"""Levels in the tree of one expression; a chain of sums or of products is one level."""

T = TypeVar("T")

Number: TypeAlias = int | float | bool

OF_EITHER: dict[str, Callable[..., Any]] = {"min": min, "max": max, "abs": abs}
"""Integers if all arguments are."""

BITWISE: dict[str, Callable[..., Any]] = {
    "bit_and": operator.and_,
    "bit_or": operator.or_,
    "bit_xor": operator.xor,
}
"""Of two integers."""

TRACED = ("sqrt", "exp", "log", "log2", "sin", "cos", "tan", "asin", "acos", "atan")
"""Functions of :mod:`math` that torch's symbolic numbers have too."""
TO_FLOAT: dict[str, Callable[..., Any]] = {
    "float": float,
    **{name: getattr(math, name) for name in (*TRACED, "sinh", "cosh", "tanh")},
}
_TO_INT = {"int": int, "floor": math.floor, "ceil": math.ceil, "round": round}
FUNCTIONS: dict[str, Callable[..., Any]] = {**OF_EITHER, **_TO_INT, **BITWISE, **TO_FLOAT}
"""The functions of the language, by name."""

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
"""The comparisons of the language, by sign."""

ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
}
"""The arithmetic of the language on two numbers, by sign."""

_SIGNS: dict[type[ast.AST], str] = dict(
    zip(
        (
            *(ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow),
            *(ast.And, ast.Or, ast.USub, ast.UAdd, ast.Not),
            *(ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE),
        ),
        (*ARITHMETIC, "and", "or", "-x", "+x", "not", *COMPARISONS),
        strict=True,
    )
)
_CHAINS = {"+": "sum", "-": "sum", "*": "product"}
_WORD = re.compile(r"\b[^\W\d]\w*")


class FoldStep(NamedTuple):
    """One node of an expression, which comes after its parts.

    Attributes:
        node: The node as Python reads it.
        operation: A sign (``-x`` and ``+x`` before one number), a word, a function's name (after a
            dot if it is one of a module), or several signs of a chain of comparisons.
        arity: How many parts it has.
    """

    node: ast.expr
    operation: str
    arity: int

    @property
    def text(self) -> str:
        """The node in Python syntax."""
        return ast.unparse(self.node)


@dataclass(frozen=True)
class Algebra(Generic[T]):
    """What each part of an expression stands for.

    Attributes:
        constant: Of a number.
        symbol: Of the name of a symbol.
        operations: Of the parts of an operation, by :attr:`FoldStep.operation`.
        other: Of any other step and its parts; raises InvalidIRError unless given.
    """

    constant: Callable[[Number], T]
    symbol: Callable[[str], T]
    operations: Mapping[str, Callable[..., T]] = field(default_factory=dict[str, Callable[..., T]])
    other: Callable[[FoldStep, Sequence[T]], T] = field(default_factory=lambda: refuse)


def fold(text: str, algebra: Algebra[T], *, max_length: int = MAX_LENGTH) -> T:
    """Compute what an expression stands for from its leaves up, each node once.

    Args:
        text: The expression in Python syntax.
        algebra: What its parts stand for.
        max_length: How many characters are read.

    Raises:
        InvalidIRError: The text is not Python syntax, has a part that is not of the language, or
            is too long, too large or too deep.

    Example:
        >>> length = Algebra(lambda n: 1, lambda name: 1, {"+": lambda a, b: a + b})
        >>> fold("s0 + 4 + s1", length)
        3
    """
    values: list[T] = []
    for step in steps(text, max_length):
        node = step.node
        if isinstance(node, ast.Name):
            values.append(algebra.symbol(node.id))
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            values.append(algebra.constant(node.value))
            continue
        start = len(values) - step.arity
        parts = values[start:]
        operation = algebra.operations.get(step.operation)
        made = algebra.other(step, parts) if operation is None else operation(*parts)
        values[start:] = [made]
    return values[0]


@lru_cache(maxsize=256)  # the trees of large expressions take a megabyte each
def steps(text: str, max_length: int) -> tuple[FoldStep, ...]:
    """Return the nodes of an expression, each after its parts.

    Raises:
        InvalidIRError: The text is not Python syntax, or too long, too large or too deep.
    """
    require_length(text, max_length)
    try:
        root = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise InvalidIRError(f"{text!r:.80} is not an expression") from None
    found: list[FoldStep] = []
    waiting: list[tuple[ast.expr, str, int]] = [(root, "", 0)]
    while waiting:
        node, above, depth = waiting.pop()
        name, parts = _operation(node)
        chain = _CHAINS.get(name, "")
        depth += 0 if chain and chain == above else 1
        found.append(FoldStep(node, name, len(parts)))
        if len(found) > MAX_NODES or depth > MAX_DEPTH:
            large = "nested too deeply" if depth > MAX_DEPTH else "too large"
            raise InvalidIRError(f"{text!r:.80} is {large}")
        waiting += [(part, chain if i == 0 else "", depth) for i, part in enumerate(parts)]
    return tuple(reversed(found))


def _operation(node: ast.expr) -> tuple[str, list[ast.expr]]:
    """The operation that a node is, "" for none, and its parts."""
    match node:
        case ast.Name() | ast.Constant():  # most nodes are leaves
            return "", []
        case ast.BinOp(left=left, op=op, right=right):
            return _SIGNS.get(type(op), "?"), [left, right]
        case ast.UnaryOp(op=op, operand=operand):
            return _SIGNS.get(type(op), "?"), [operand]
        case ast.BoolOp(op=op, values=values):
            return _SIGNS[type(op)], values
        case ast.Compare(left=left, ops=ops, comparators=others):
            return " ".join([_SIGNS.get(type(op), "?") for op in ops]), [left, *others]
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            return name, arguments
        case ast.Call(func=ast.Attribute(attr=name), args=arguments, keywords=[]):
            return f".{name}", arguments
        case ast.Attribute() | ast.Subscript() | ast.Call():
            return "", []
        case _:
            return "", [item for item in ast.iter_child_nodes(node) if isinstance(item, ast.expr)]


def refuse(step: FoldStep, parts: Sequence[object]) -> Any:
    """Raise InvalidIRError for a part that is not of the language."""
    if not step.operation.isidentifier() or not isinstance(step.node, ast.Call):
        raise InvalidIRError(f"{step.text!r:.80} is not an integer expression")
    raise InvalidIRError(
        f"{step.operation!r} is not a function of expressions",
        remedy=did_you_mean(step.operation, FUNCTIONS),
    )


def renamed(text: str, rename: Callable[[str], str]) -> str:
    """Return the text with all symbols and functions in it replaced at once.

    Example:
        >>> renamed("min(s0, s10) and True", str.upper)
        'MIN(S0, S10) and True'
    """
    return _WORD.sub(lambda m: m[0] if keyword.iskeyword(m[0]) else rename(m[0]), text)


@lru_cache(maxsize=4096)
def symbols_of(text: str) -> tuple[str, ...]:
    """Return the symbols that occur in an expression, sorted."""
    return tuple(
        sorted(
            {step.node.id for step in steps(text, MAX_LENGTH) if isinstance(step.node, ast.Name)}
        )
    )


@contextmanager
def refusals(sentence: Callable[[], str]) -> Generator[None]:
    """Raise what arithmetic raises as an InvalidIRError that begins with a sentence."""
    try:
        yield
    except InvalidIRError:
        raise
    except RecursionError:
        raise InvalidIRError(f"{sentence()}: it is nested too deeply") from None
    except (ZeroDivisionError, OverflowError, ValueError) as error:
        raise InvalidIRError(f"{sentence()}: {error}") from None
