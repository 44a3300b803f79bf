"""Integer polynomials: sums of products of atoms, which are symbols or spelled expressions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TypeAlias

from torch_ir.errors import InvalidIRError

MAX_LENGTH = 4096
"""Characters in one expression; longer ones are refused."""

MAX_TERMS = 256
"""Terms of one expanded expression; ``(a + b + c)**50`` is refused."""

MAX_POWER = 64
"""The highest power of a symbol or of another factor; ``s0**65`` is refused."""

MAX_BITS = 4096
"""Bits in one integer, also while evaluating; ``9**9**9`` is refused."""

Monomial: TypeAlias = tuple[tuple[str, int], ...]
"""A product of atoms with their powers, sorted; the empty product is the constant term."""

Polynomial: TypeAlias = dict[Monomial, int]

_OUTSIDE = re.compile(r"[() *]")


def operand(text: str) -> str:
    """Put the text in brackets unless it reads as one thing."""
    if text.isidentifier() or text.isdecimal():
        return text
    depth = 0
    for found in _OUTSIDE.finditer(text):
        depth += {"(": 1, ")": -1}.get(found[0], 0)
        if depth == 0 and found[0] in " *":
            return f"({text})"
    return f"({text})" if text.startswith("-") else text


def constant(value: int) -> Polynomial:
    """Return the polynomial that is a constant."""
    require_bits(value.bit_length())
    return {(): value} if value else {}


def require_power(power: int) -> None:
    """Raise InvalidIRError unless a power is within its limit."""
    if not 0 <= power <= MAX_POWER:
        raise InvalidIRError(f"the power {power} is not between 0 and {MAX_POWER}")


def require_bits(bits: int) -> None:
    """Raise InvalidIRError if an integer has too many bits."""
    if bits > MAX_BITS:
        raise InvalidIRError(f"an integer of {bits} bits is too large in an expression")


def require_length(text: str, most: int = MAX_LENGTH) -> None:
    """Raise InvalidIRError if a text is too long."""
    if len(text) > most:
        raise InvalidIRError(
            f"an expression of {len(text)} characters is too long (at most {most})"
        )


def plus(left: Polynomial, right: Polynomial, sign: int = 1) -> Polynomial:
    """Return the sum, or with -1 as sign the difference, made in place of the longer operand.

    A sum of many terms takes as many steps as it has terms.
    """
    if sign == 1 and len(left) < len(right):
        left, right = right, left
    for monomial, coefficient in right.items():
        changed = left.get(monomial, 0) + sign * coefficient
        require_bits(changed.bit_length())
        if changed:
            left[monomial] = changed
        else:
            left.pop(monomial, None)
    return _few(left)


def times(left: Polynomial, right: Polynomial) -> Polynomial:
    """Return the product."""
    total: Polynomial = {}
    for (m1, c1), (m2, c2) in ((a, b) for a in left.items() for b in right.items()):
        powers = dict(m1)
        for atom, power in m2:
            powers[atom] = powers.get(atom, 0) + power
            require_power(powers[atom])
        monomial = tuple(sorted(powers.items()))
        total[monomial] = total.get(monomial, 0) + c1 * c2
    return _bounded(total)


def _bounded(total: Polynomial) -> Polynomial:
    polynomial = _few({monomial: c for monomial, c in total.items() if c})
    require_bits(max((c.bit_length() for c in polynomial.values()), default=0))
    return polynomial


def _few(polynomial: Polynomial) -> Polynomial:
    if len(polynomial) > MAX_TERMS:
        raise InvalidIRError(
            f"an expression of {len(polynomial)} terms is too large (at most {MAX_TERMS})"
        )
    return polynomial


def constant_of(polynomial: Polynomial) -> int | None:
    """Return the constant that a polynomial is, or None."""
    return polynomial.get((), 0) if not polynomial.keys() - {()} else None


def divide(sign: str, left: Polynomial, right: Polynomial) -> Polynomial:
    """Return the quotient of ``//`` or the rest of ``%``, an atom if it is not known."""
    divisor = constant_of(right)
    if divisor == 0:
        raise ZeroDivisionError("division by zero")
    dividend = constant_of(left)
    if divisor is not None and dividend is not None:
        return constant(dividend // divisor if sign == "//" else dividend % divisor)
    if divisor is not None and all(c % divisor == 0 for c in left.values()):
        return {m: c // divisor for m, c in left.items()} if sign == "//" else {}
    text = f"{operand(spell(left))} {sign} {operand(spell(right))}"
    require_length(text)
    return {((text, 1),): 1}


def spell(polynomial: Polynomial) -> str:
    """Spell a polynomial: highest degree first, then by name, the constant last."""
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
        require_length(text)
    return text


def _degree(monomial: Monomial) -> int:
    return sum(power for _, power in monomial)


def _factors(monomial: Monomial, coefficient: int, *, alone: bool) -> Iterator[str]:
    if coefficient != 1 or not monomial:
        yield str(coefficient)
    for atom, power in monomial:
        spelled = atom if alone and len(monomial) == 1 and power == 1 else operand(atom)
        yield spelled if power == 1 else f"{spelled}**{power}"
