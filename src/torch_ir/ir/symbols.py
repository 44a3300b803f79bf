"""Symbolic sizes and scalars: expressions over named symbols, in one canonical spelling.

``SymExpr("1 + s0 * 2")`` and ``SymExpr("2*s0 + 1")`` are the same value. Floating-point arithmetic
rounds, so it keeps its order: ``2.0*zuf0 + zuf0`` is not ``3.0*zuf0``. A symbol whose name begins
with ``z`` is a floating-point number, as torch names them; every other symbol is an integer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from torch_ir.arguments import public
from torch_ir.errors import InvalidIRError
from torch_ir.frozen import FrozenDict, set_plain_text
from torch_ir.ir.expressions import (
    Number,
    canonical,
    evaluate_expression,
    renamed,
    solve_linear,
    symbols_of,
)


@dataclass(frozen=True, slots=True)
class SymExpr:
    """A canonical integer, floating-point or boolean expression over symbols.

    Args:
        text: The expression in Python syntax: numbers, symbols, ``+ - * / // % **``, ``min``,
            ``max``, ``abs``, ``int``, ``floor``, ``ceil``, ``round``, ``float``, ``sqrt`` and
            other functions of :mod:`math`, comparisons, ``and``, ``or``, ``not``.

    Attributes:
        kind: The type of its value: ``int``, ``float`` or ``bool``.

    Raises:
        InvalidIRError: The text is not such an expression, or is too large.

    Example:
        >>> e = SymExpr("1 + s0 * 2")
        >>> str(e), e.symbols, e.evaluate({"s0": 3})
        ('2*s0 + 1', ('s0',), 7)
        >>> SymExpr("s0") * 4 // 2
        SymExpr('2*s0')
        >>> SymExpr("s0 <= 4*s1").evaluate({"s0": 5, "s1": 1})
        False
        >>> SymExpr("zuf0 * 2 + zuf0 / s0")
        SymExpr('(zuf0 * 2) + (zuf0 / s0)')
    """

    text: str
    kind: type[Number] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers may be untyped
            raise InvalidIRError(f"an expression is text, got {type(self.text).__name__}")
        set_plain_text(self, "text")
        spelling = canonical(self.text)
        object.__setattr__(self, "text", spelling.text)
        object.__setattr__(self, "kind", spelling.kind)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"SymExpr({self.text!r})"

    @property
    def symbols(self) -> tuple[str, ...]:
        """The symbols that occur, sorted."""
        return symbols_of(self.text)

    @property
    def is_symbol(self) -> bool:
        """Whether it is one symbol and nothing else."""
        return self.text.isidentifier() and self.text not in ("True", "False")

    @public
    def evaluate(self, bindings: Mapping[str, Number]) -> Number:
        """Evaluate the expression when each symbol has the given value.

        Raises:
            InvalidIRError: A symbol has no value, or the expression has none there.
        """
        return evaluate_expression(self.text, bindings)

    def __add__(self, other: SymExpr | Number) -> SymExpr:
        return SymExpr(f"({self}) + ({other})")

    def __sub__(self, other: SymExpr | Number) -> SymExpr:
        return SymExpr(f"({self}) - ({other})")

    def __mul__(self, other: SymExpr | Number) -> SymExpr:
        return SymExpr(f"({self}) * ({other})")

    def __truediv__(self, other: SymExpr | Number) -> SymExpr:
        return SymExpr(f"({self}) / ({other})")

    def __floordiv__(self, other: SymExpr | Number) -> SymExpr:
        return SymExpr(f"({self}) // ({other})")

    def __mod__(self, other: SymExpr | Number) -> SymExpr:
        return SymExpr(f"({self}) % ({other})")

    def __neg__(self) -> SymExpr:
        return SymExpr(f"-({self})")

    def __radd__(self, other: Number) -> SymExpr:
        return SymExpr(f"({other}) + ({self})")

    def __rmul__(self, other: Number) -> SymExpr:
        return SymExpr(f"({other}) * ({self})")

    def __rsub__(self, other: Number) -> SymExpr:
        return SymExpr(f"({other}) - ({self})")


Dim: TypeAlias = int | SymExpr
"""One dimension of a shape."""


def as_dim(value: object) -> Dim:
    """Make a dimension of an int, an expression or its text; a constant one becomes an int.

    Example:
        >>> as_dim(3), as_dim("s0 + 1"), as_dim("2 + 2")
        (3, SymExpr('s0 + 1'), 4)

    Raises:
        InvalidIRError: The value is negative, or neither an int nor an expression.
    """
    if isinstance(value, str):
        value = SymExpr(value)
    if isinstance(value, SymExpr):
        if value.kind is not int:
            raise InvalidIRError(f"a dimension is an integer, {value.text!r:.80} is none")
        if not value.text.removeprefix("-").isdecimal():
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


def value_at(value: Any, symbols: Mapping[str, Number]) -> Any:
    """Return the number that an expression is for values of symbols; other values stay.

    Raises:
        InvalidIRError: A symbol in it has no value.

    Example:
        >>> value_at(SymExpr("s0 + 1"), {"s0": 2}), value_at(4, {})
        (3, 4)
    """
    return value.evaluate(symbols) if isinstance(value, SymExpr) else value


def shape_at(shape: Iterable[Dim], symbols: Mapping[str, Number]) -> tuple[int, ...]:
    """Return the sizes of a shape for values of its symbols.

    Raises:
        InvalidIRError: A symbol in it has no value.

    Example:
        >>> shape_at((SymExpr("2*s0"), 3), {"s0": 2})
        (4, 3)
    """
    return tuple([int(value_at(dim, symbols)) for dim in shape])


def solved_symbols(
    shapes: Iterable[tuple[Iterable[Dim], Iterable[int]]],
    numbers: Mapping[str, Number] = FrozenDict(),
) -> dict[str, Number]:
    """Solve for the symbols that the sizes and numbers of a call determine.

    A symbol that stands alone as a number or a dimension takes its value; after that,
    ``2*s0 + 1`` gives ``s0`` where the value allows it. Whether all agree is checked elsewhere.

    Args:
        shapes: The dimensions of each tensor, with the sizes that it has.
        numbers: The value of each symbol, or expression of symbols, that is a number of the call.

    Example:
        >>> solved_symbols([((SymExpr("s0"), 3), (4, 3)), ((SymExpr("2*s1 + s0"),), (10,))])
        {'s0': 4, 's1': 3}
    """
    symbols: dict[str, Number] = {}
    derived: list[tuple[SymExpr, Number]] = []
    for text, value in numbers.items():
        expression = SymExpr(text)
        if expression.is_symbol:
            symbols[text] = value
        else:
            derived.append((expression, value))
    for dims, sizes in shapes:
        for dim, size in zip(dims, sizes, strict=False):
            if isinstance(dim, SymExpr) and dim.is_symbol:
                symbols.setdefault(dim.text, size)
            elif isinstance(dim, SymExpr):
                derived.append((dim, size))
    for dim, size in derived:
        if symbols.keys() >= set(dim.symbols):
            continue
        left = renamed(dim.text, lambda name: str(symbols.get(name, name)))
        solved = solve_linear(left, size) if isinstance(size, int) else None
        if solved is not None:
            symbols.setdefault(*solved)
    return symbols
