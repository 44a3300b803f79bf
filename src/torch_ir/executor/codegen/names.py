"""Python identifiers for the values, symbols and objects of a graph."""

from __future__ import annotations

import builtins
import keyword
import re

_RESERVED = frozenset({*keyword.kwlist, *keyword.softkwlist, *dir(builtins), "torch", "live"})


class IdentifierPool:
    """Gives each thing an identifier of its own.

    Names come from files that strangers write, so nothing of them but letters, digits and
    underscores gets into the source.

    Example:
        >>> names = IdentifierPool()
        >>> names.of("value", "split.0"), names.of("value", "lambda"), names.of("value", "split.0")
        ('split_0', 'lambda_', 'split_0')
    """

    def __init__(self) -> None:
        self._given: dict[tuple[str, str], str] = {}
        self._taken: set[str] = set()

    def of(self, kind: str, name: str) -> str:
        """Return the identifier of a thing; equal names of different kinds have different ones."""
        found = self._given.get((kind, name))
        if found is None:
            found = self._given[kind, name] = self._fresh(name)
        return found

    def _fresh(self, name: str) -> str:
        base = name
        if not (name.isascii() and name.isidentifier()):
            base = re.sub(r"[^0-9A-Za-z_]", "_", name)
        if not base or base[0].isdigit() or base.startswith("__"):
            base = f"v{base}"
        if base in _RESERVED:
            base = f"{base}_"
        candidate, number = base, 1
        while candidate in self._taken:
            candidate, number = f"{base}_{number}", number + 1
        self._taken.add(candidate)
        return candidate


def printable(text: str) -> str:
    r"""Replace what does not print in the text of a comment, so that it stays on one line.

    Example:
        >>> printable("a\nb")
        'a?b'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else "?" for c in text)
