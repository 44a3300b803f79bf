"""Tables of text: every table that a report or command shows, laid out alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal
from unicodedata import east_asian_width

from torch_ir.errors import printable


def table(
    rows: Sequence[Sequence[str]],
    *,
    align: Sequence[Literal["left", "right"]] | None = None,
    indent: str = "",
) -> str:
    """Return rows as aligned columns, two spaces apart, without color and as wide as they need.

    Args:
        rows: The rows, each of as many cells as there are columns; a heading is a row too. What
            does not print in a cell is escaped.
        align: The side to which each column is aligned; if not given, numbers stand to the right.
        indent: What stands before each row.

    Example:
        >>> print(table([("relu", "12"), ("softmax", "3")]))
        relu     12
        softmax   3
    """
    if not rows:
        return ""
    rows = [tuple(map(printable, row)) for row in rows]
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    return "\n".join([indent + _line(row, widths, align) for row in rows])


def _line(row: Sequence[str], widths: Sequence[int], align: Sequence[str] | None) -> str:
    sides = align or ["right" if _is_number(cell) else "left" for cell in row]
    cells: list[str] = []
    for cell, width, side in zip(row, widths, sides, strict=True):
        space = " " * (width - _width(cell))
        cells.append(space + cell if side == "right" else cell + space)
    return "  ".join(cells).rstrip()


def _is_number(cell: str) -> bool:
    return cell.replace(",", "").replace(".", "").lstrip("-").isdecimal()


def _width(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    return len(text) + sum(east_asian_width(character) in "WF" for character in text)
