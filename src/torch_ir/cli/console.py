"""The one way to stdout and stderr: what a terminal would obey is escaped before it is printed.

Lines are the layout of a text; control, format and other characters that do not print come from
names and paths, and appear as escapes. Only an archive on stdout is written as it is.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, redirect_stdout
from typing import IO, Any

import click

from torch_ir.errors import printable_lines
from torch_ir.tables import fitted

SHOW_TRACEBACK = "torch_ir.traceback"
"""The key in the context's metadata that says whether to show all."""


_RESULTS = "torch_ir.results"
"""The key in the context's metadata for where results go while the rest goes to stderr."""


@contextmanager
def only_results() -> Generator[None]:
    """Keep stdout for results: what models, backends and packages print goes to stderr."""
    meta = click.get_current_context().meta
    is_first = meta.setdefault(_RESULTS, sys.stdout) is sys.stdout
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        if is_first:
            del meta[_RESULTS]


def stdout() -> IO[Any]:
    """Return where results go."""
    context = click.get_current_context(silent=True)
    return sys.stdout if context is None else context.meta.get(_RESULTS, sys.stdout)


def result(text: str) -> None:
    """Print a result to stdout; in a terminal, long lines are folded and some have colors."""
    click.echo(_painted(text, stdout()), file=stdout())


def folded(text: str, stream: IO[Any]) -> str:
    """Return a text without what a terminal obeys, folded between words if it goes to one."""
    lines = printable_lines(text)
    return fitted(lines, screen()[0]) if stream.isatty() else lines


_PAINTS = (
    (re.compile(r"\A[+] .*", re.S), 32),
    (re.compile(r"\A(- .*|error\b)", re.S | re.I), 31),
    (re.compile(r"\A(~ .*|warning\b)", re.S | re.I), 33),
    (re.compile(r"(?<=\S)\s{2,}# .*", re.S), 2),
)
"""What has a color in a terminal, first come first served: changes, findings, comments."""


def _painted(text: str, stream: IO[Any]) -> str:
    """Return a text folded, with colors if a terminal has them and ``NO_COLOR`` is not set."""
    if not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return folded(text, stream)
    return "\n".join([_painted_line(folded(line, stream)) for line in text.split("\n")])


def _painted_line(line: str) -> str:
    for place, code in _PAINTS:
        if found := place.search(line):
            painted = f"\x1b[{code}m{found[0]}\x1b[0m"
            return line[: found.start()] + painted + line[found.end() :]
    return line


def screen() -> tuple[int, int]:
    """Return the columns and lines of the terminal, 80 and 24 where there is none."""
    return shutil.get_terminal_size()


def message(text: str, file: IO[Any] | None = None) -> None:
    """Print to stderr what is no result."""
    click.echo(_painted(text, file or sys.stderr), file=file, err=True)


def note(text: str) -> None:
    """Say something that is no result."""
    indented = text.replace("\n", "\n    ")
    message(f"note: {indented}")


def write_json(value: Any) -> None:
    """Print a value for scripts, in ASCII."""
    click.echo(_ascii_json(json.dumps(value, indent=2)), file=stdout())


def show(found: Any, as_json: bool, text: Callable[[], str] | None = None) -> None:
    """Print a report to stdout: as JSON for scripts, or as its text."""
    if as_json:
        write_json(found.to_dict() if hasattr(found, "to_dict") else found)
    else:
        result(text() if text else str(found))


def document(data: bytes, *, fold: bool) -> None:
    """Print a rendered program to stdout; a JSON document in ASCII, an archive as it is."""
    if not data.startswith(b"PK"):
        text = data.decode()
        if text.startswith("{"):
            text = _ascii_json(text)
        else:
            text = _painted(text, stdout()) if fold else printable_lines(text)
        data = text.encode()
    click.echo(data, file=stdout(), nl=False)


def _ascii_json(text: str) -> str:
    """The same document: in JSON, what is not printable ASCII is inside strings only."""
    return re.sub(r"[^\n -~]", lambda match: json.dumps(match[0])[1:-1], text).replace(
        "\x7f", r"\u007f"
    )
