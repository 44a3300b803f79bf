"""Diagnostics: the one record of something that is wrong with a program, and errors made of them.

An error about nodes holds its diagnostics, so that no caller has to read its message.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

from torch_ir.errors import (
    CompileError,
    DialectError,
    ExecutionError,
    TorchIRError,
    counted,
    printable,
)
from torch_ir.ir.node import Location, OpNode
from torch_ir.tables import Shown

if TYPE_CHECKING:
    from torch_ir.ir.graph import IR

MAX_SHOWN = 20
"""How many diagnostics an error shows unless it says otherwise."""

_Error = TypeVar("_Error", bound=TorchIRError)


@dataclass(frozen=True, slots=True)
class Diagnostic(Shown):
    """One thing that is wrong with a program.

    Attributes:
        code: Stable kebab-case name of the rule.
        message: What is wrong, in a sentence.
        node: Name of the node, inside a function ``"function/node"``; empty for the graph.
        op_type: The operator that the node calls, or the empty string.
        expected: What the rule asks for, where it can be said shortly.
        found: What is there instead.
        remedy: What the reader can do about it.
        location: The user's source line, where it is known.
        severity: ``"error"``, or ``"warning"`` for what is no fault of the program.

    Example:
        >>> print(Diagnostic("wrong-type", "%y is not what it says", "y", found="f32[3]"))
        [wrong-type] node 'y': %y is not what it says (got f32[3])
    """

    code: str
    message: str
    node: str = ""
    op_type: str = ""
    expected: str = ""
    found: str = ""
    remedy: str = ""
    location: Location | None = None
    severity: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        below = [text for text in (at(self.location), self.remedy) if text]
        kind = "" if self.is_error else f"{self.severity}: "
        return "\n    ".join([f"[{self.code}] {kind}{self.sentence}", *map(printable, below)])

    @property
    def is_error(self) -> bool:
        """Whether the program is at fault."""
        return self.severity == "error"

    @property
    def sentence(self) -> str:
        """The node, the message, what is expected and what is found, in one line."""
        where = f"node {self.node!r}: " if self.node else ""
        parts = (("expected", self.expected), ("got", self.found))
        said = ", ".join([f"{word} {text}" for word, text in parts if text])
        return printable(f"{where}{self.message}{f' ({said})' if said else ''}")

    @property
    def line(self) -> str:
        """The node, its operator, the message and the source line, as an item of a list."""
        about = (f"node {self.node!r}" if self.node else "", self.op_type, self.message)
        return printable(": ".join(filter(None, about)) + at(self.location, " ({})"))

    @property
    def rule(self) -> str:
        """The code, by its former name."""
        _warn("rule", "code")
        return self.code

    @property
    def got(self) -> str:
        """What is found, by its former name."""
        _warn("got", "found")
        return self.found


Finding: TypeAlias = Diagnostic
"""The former name of what :meth:`torch_ir.IR.check` finds."""
Violation: TypeAlias = Diagnostic
"""The former name of what :func:`torch_ir.dialects.verify` finds."""


def _warn(old: str, new: str) -> None:
    warnings.warn(
        f"Diagnostic.{old} is deprecated: it is called {new!r} now", DeprecationWarning, 3
    )


class Diagnostics:
    """What is found while a program is looked at, in order.

    Example:
        >>> from torch_ir.errors import PassError
        >>> found = Diagnostics([Diagnostic("no-rule", "there is no rule", "y", "my.op.default")])
        >>> found.raise_if_any(PassError, "1 node cannot be decomposed")
        Traceback (most recent call last):
            ...
        torch_ir.errors.PassError: 1 node cannot be decomposed
            - node 'y': my.op.default: there is no rule
    """

    def __init__(self, diagnostics: Iterable[Diagnostic] = ()):
        self._found = [*diagnostics]

    def __repr__(self) -> str:
        return f"Diagnostics({counted(len(self), 'diagnostic')})"

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[Diagnostic]:
        return iter(self._found)

    def add(self, diagnostic: Diagnostic) -> None:
        """Add a diagnostic."""
        self._found.append(diagnostic)

    def extend(self, diagnostics: Iterable[Diagnostic]) -> None:
        """Add several."""
        self._found += diagnostics

    def raise_if_any(
        self,
        error_class: type[TorchIRError],
        sentence: str,
        *,
        limit: int = MAX_SHOWN,
        remedy: str | None = None,
    ) -> None:
        """Raise an error that lists the diagnostics, if there are any.

        Args:
            error_class: The class of the error.
            sentence: Its message, which usually says how many there are.
            limit: How many it shows; it holds all of them.
            remedy: What the reader can do about all of them.
        """
        if self:
            items = listed([f"- {diagnostic.line}" for diagnostic in self], limit)
            raise error_class(sentence, picture=items, remedy=remedy, diagnostics=tuple(self))


class DiagnosticError(Exception):
    """One thing that is wrong with one node, on its way to who knows at which.

    Args:
        code: The rule, as in :func:`torch_ir.ir.check.check`.
        message: What is wrong, in a sentence.
        expected: What the rule asks for, where it can be said in a word.
        found: What is there instead.
        remedy: What to do about it.
    """

    def __init__(
        self, code: str, message: str, *, expected: str = "", found: str = "", remedy: str = ""
    ):
        super().__init__(message)
        self.code = code
        self.message = message
        self.expected = expected
        self.found = found
        self.remedy = remedy

    def at(self, node: OpNode | None, path: str = "") -> Diagnostic:
        """Return it as a diagnostic of a node of the function at a path, or of the graph."""
        message = f"{self.message}. {self.remedy}" if self.remedy else self.message
        found = Diagnostic(self.code, message, expected=self.expected, found=self.found)
        if node is None:
            return replace(found, node=path.rstrip("/"))
        return about(found, node, path)


def errors_among(found: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Return the diagnostics that are errors, without warnings."""
    return tuple([diagnostic for diagnostic in found if diagnostic.is_error])


# -- texts ----------------------------------------------------------------------------------------


def at(location: Location | str | None, form: str = "{}") -> str:
    """Return a source line in a form, or the empty string where it is not known.

    Example:
        >>> at(Location("model.py", 3), " ({})"), at(None, " ({})")
        (' (at model.py:3)', '')
    """
    return form.format(f"at {location}") if location else ""


def picture_of(node: OpNode) -> str:
    """Return the text of a node, and below it its source line where that is known."""
    return str(node) + at(node.location, "\n{}")


def listed(lines: Sequence[str], limit: int = MAX_SHOWN) -> str:
    """Return the first lines, and how many there are more.

    Example:
        >>> print(listed(["a", "b", "c"], limit=1))
        a
        and 2 more
    """
    more = [f"and {len(lines) - limit} more"] if len(lines) > limit else []
    return "\n".join([*lines[:limit], *more])


def about(diagnostic: Diagnostic, node: OpNode, path: str = "") -> Diagnostic:
    """Return a diagnostic as one of a node of the function at a path."""
    return replace(diagnostic, node=path + node.name, op_type=node.op_type, location=node.location)


# -- errors ---------------------------------------------------------------------------------------


def error_at(
    node: OpNode,
    message: str,
    *,
    remedy: str | None = None,
    kind: type[_Error] = ExecutionError,
) -> _Error:
    """Return an error that shows a node and where it came from, and holds both."""
    found = about(Diagnostic(kind.code, message, remedy=remedy or ""), node)
    return kind(
        found.sentence,
        picture=picture_of(node),
        remedy=remedy,
        node=node.name,
        diagnostics=(found,),
    )


def compile_error(found: Sequence[Diagnostic], node: OpNode | None) -> CompileError:
    """Return the error for diagnostics, of which there is at least one: it is about the first.

    Args:
        found: All that was found.
        node: The node that the first is about, if it is about one.
    """
    first = found[0]
    picture = [] if node is None else [str(node)]
    if first.location is not None:
        picture.append(at(first.location))
    others = len(found) - 1
    more = f"The error has {counted(others, 'more finding')}." if others else ""
    return CompileError(
        first.sentence,
        picture="\n".join(picture) or None,
        remedy=" ".join(filter(None, (first.remedy, more))) or None,
        node=first.node,
        diagnostics=tuple(found),
    )


def dialect_error(
    ir: IR, dialect: str, found: Sequence[Diagnostic], *, method: str = ""
) -> DialectError:
    """Return the error that shows what keeps a program from being of a dialect."""
    name = f"method {method!r}" if method else f"program {ir.model_name!r}"
    return DialectError(
        f"the {name} breaks the rules of the dialect {dialect!r} in "
        f"{counted(len(found), 'place')}",
        picture=listed([str(diagnostic) for diagnostic in found]),
        diagnostics=tuple(found),
    )
