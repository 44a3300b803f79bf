"""Tables of text, and numbers in them: all that a report or command shows, laid out alike."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias
from unicodedata import east_asian_width

from torch_ir.errors import printable, printable_lines

Rows: TypeAlias = Sequence[Sequence[str]]
"""Rows of cells, the first of them the heading."""


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


_GAP = re.compile(r"(?<=\S) {2,}(?=\S)")
"""What stands between two columns, or before a comment."""


WIDTH = 100
"""Columns of a report."""


def report_text(lines: Iterable[str]) -> str:
    """Return the lines of a report as a text, no line of which is longer than a report is wide.

    A break within a line is not layout, but from a name of the program's: it is escaped.
    """
    return fitted("\n".join(map(printable, lines)), WIDTH, breaks=True)


def fitted(text: str, width: int, *, breaks: bool = False) -> str:
    """Return a text with longer lines folded at spaces, at best between columns.

    What follows is indented: as far as the last column, if that begins in the first half.

    Args:
        text: The text.
        width: The columns of a terminal that a line may take.
        breaks: Whether a word that is longer is broken, too; else it stays whole.

    Example:
        >>> print(fitted("  58.8%  37  aten.linear.default", 20))
          58.8%  37
              aten.linear.default
        >>> print(fitted("run   Run a program on inputs.", 20))
        run   Run a program
              on inputs.
    """
    return "\n".join([part for line in text.split("\n") for part in _folded(line, width, breaks)])


def _folded(line: str, width: int, breaks: bool) -> list[str]:
    parts: list[str] = []
    least = len(line) - len(line.lstrip())
    *_, last = [0, *[gap.end() for gap in _GAP.finditer(line)]]
    words = max(map(_width, line[last:].split()), default=0)
    is_hung = 0 < last <= width // 2 and last + words <= width
    indent = " " * (last if is_hung else least + 4)
    while _width(line) > width:
        most = _reach(line, width)
        gaps = [] if is_hung else [gap.start() for gap in _GAP.finditer(line, least, most + 3)]
        at = max((gap for gap in gaps if gap <= most), default=0)
        at = at or line.rfind(" ", last if is_hung and not parts else least, most + 1)
        if at < 0:
            at = most if breaks and most > least else line.find(" ", least)
        if at < 0:
            break
        parts.append(line[:at].rstrip())
        line, least = indent + line[at:].lstrip(), len(indent)
    return [*parts, line]


def _reach(line: str, width: int) -> int:
    """Return how many characters of a line fit."""
    return next(at for at in range(min(width, len(line)), -1, -1) if _width(line[:at]) <= width)


def shortened(text: str, width: int) -> str:
    """Return a text that is at most so many characters long, the end cut off if it has to be.

    Example:
        >>> shortened("layers.0.attention", 10)
        'layers.0.…'
    """
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"


def html_table(title: str, rows: Sequence[Sequence[str]]) -> str:
    """Return rows as an HTML table for notebooks, the first as its heading; all is escaped.

    Example:
        >>> html_table("a<b", [("x",), ("1",)])
        '<b>a&lt;b</b><table><tr><th>x</th></tr><tr><td>1</td></tr></table>'
    """

    def line(row: Sequence[str], mark: str) -> str:
        cells = [f"<{mark}>{html.escape(printable(cell))}</{mark}>" for cell in row]
        return f"<tr>{''.join(cells)}</tr>"

    body = [line(row, "td" if index else "th") for index, row in enumerate(rows)]
    return f"<b>{html.escape(printable(title))}</b><table>{''.join(body)}</table>"


MAX_LINES = 2000
"""Lines of a text that a notebook shows."""


def text_html(text: str) -> str:
    """Return a text as HTML for notebooks: as it prints, in a box that scrolls where it is long.

    Example:
        >>> print(text_html("a < b"))
        <pre style="max-height:32em;overflow:auto;white-space:pre-wrap">a &lt; b</pre>
    """
    lines = printable_lines(text).split("\n")
    more = [f"and {len(lines) - MAX_LINES} more lines"] if len(lines) > MAX_LINES else []
    style = "max-height:32em;overflow:auto;white-space:pre-wrap"
    body = html.escape("\n".join([*lines[:MAX_LINES], *more]))
    return f'<pre style="{style}">{body}</pre>'


class Shown:
    """A value that a notebook shows as it prints or as its rows, under its picture if any."""

    __slots__ = ()

    def _picture(self) -> str:
        """Return a picture as SVG, or the empty string."""
        return ""

    def _grid(self) -> Rows:
        """Return rows to show in place of the text below its first line, or none."""
        return ()

    def _repr_html_(self) -> str:
        rows, text = self._grid(), str(self)
        return self._picture() + (
            html_table(text.split("\n")[0], rows) if rows else text_html(text)
        )


def module_paths(path: str) -> list[str]:
    """Return a module's path and those of all around it, from the root.

    Example:
        >>> module_paths("layers.3.fc")
        ['', 'layers', 'layers.3', 'layers.3.fc']
    """
    parts = path.split(".") if path else []
    return ["", *(".".join(parts[: end + 1]) for end in range(len(parts)))]


def time_text(seconds: float) -> str:
    """Format a time for people: always in the same unit, so that columns compare."""
    return f"{seconds * 1e3:.3f} ms"


def bytes_text(count: int) -> str:
    """Format a number of bytes for people.

    Example:
        >>> bytes_text(1000), bytes_text(1536)
        ('1000 B', '1.5 KiB')
    """
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def number_text(count: int) -> str:
    """Format a large number for people.

    Example:
        >>> number_text(999), number_text(2_500_000)
        ('999', '2.50 M')
    """
    size = float(count)
    for unit in ("", " k", " M", " G", " T"):
        if size < 1000:
            return str(count) if not unit else f"{size:.2f}{unit}"
        size /= 1000
    return f"{size:.2f} P"
