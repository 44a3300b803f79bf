"""Diagnostics: which node breaks which rule, what is expected, what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch_ir.errors import DialectError, counted
from torch_ir.ir import IR
from torch_ir.ir.node import Location

MAX_SHOWN = 20
"""How many violations an error shows."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One breach of one rule.

    Attributes:
        rule: Stable kebab-case code of the rule.
        node: Name of the node, inside a function ``"function/node"``; empty for the graph.
        op_type: The operator that the node calls, or the empty string.
        message: What is wrong, in a sentence.
        expected: What the rule asks for, where it can be said shortly.
        found: What is there, in the same form.
        remedy: What the reader can do about it.
        location: The user's source line, where it is known.
    """

    rule: str
    node: str
    op_type: str
    message: str
    expected: str = ""
    found: str = ""
    remedy: str = ""
    location: Location | None = None

    def __str__(self) -> str:
        where = f"node {self.node!r}: " if self.node else ""
        parts = (("expected", self.expected), ("found", self.found))
        said = ", ".join([f"{word} {text}" for word, text in parts if text])
        details = f" ({said})" if said else ""
        source = f"\n    at {self.location}" if self.location is not None else ""
        remedy = f"\n    {self.remedy}" if self.remedy else ""
        return f"[{self.rule}] {where}{self.message}{details}{source}{remedy}"


def dialect_error(
    ir: IR, dialect: str, violations: Sequence[Violation], *, method: str = ""
) -> DialectError:
    """Return the error that shows what keeps a program from being of a dialect."""
    name = f"method {method!r}" if method else f"program {ir.model_name!r}"
    shown = [str(violation) for violation in violations[:MAX_SHOWN]]
    if len(violations) > MAX_SHOWN:
        shown.append(f"and {len(violations) - MAX_SHOWN} more")
    return DialectError(
        f"the {name} breaks the rules of the dialect {dialect!r} in "
        f"{counted(len(violations), 'place')}",
        picture="\n".join(shown),
        violations=tuple(violations),
    )
