"""Tables of text: every table that a report or command shows, laid out by rich."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

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
    from rich.console import Console  # here: most runs show no table
    from rich.table import Table
    from rich.text import Text

    if not rows:
        return ""
    rows = [tuple(map(printable, row)) for row in rows]
    made = Table.grid(padding=(0, 2, 0, 0))
    for _ in rows[0]:
        made.add_column(no_wrap=True)
    for row in rows:
        sides = align or ["right" if _is_number(cell) else "left" for cell in row]
        cells = zip(row, sides, strict=True)
        made.add_row(*[Text(cell, justify=side) for cell, side in cells])
    width = sum([max(map(len, column)) + 2 for column in zip(*rows, strict=True)])
    console = Console(width=width, no_color=True, color_system=None, legacy_windows=False)
    with console.capture() as captured:
        console.print(made, soft_wrap=True)
    return "\n".join([indent + line.rstrip() for line in captured.get().splitlines()])


def _is_number(cell: str) -> bool:
    return cell.replace(",", "").replace(".", "").lstrip("-").isdecimal()
