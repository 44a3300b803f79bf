"""Progress lines for a person who waits: on stderr, and only if that is a terminal."""

from __future__ import annotations

import io
import sys
import warnings
from collections.abc import Generator
from contextlib import contextmanager, redirect_stderr

import click

from torch_ir.cli import console
from torch_ir.errors import printable


@contextmanager
def progress(what: str) -> Generator[None]:
    """Show that something long is going on."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.text import Text

    with Console(file=sys.stderr).status(Text(printable(what))):
        yield


@contextmanager
def held_back() -> Generator[None]:
    """Hold back what torch writes to stderr; an error that follows says it better.

    With ``--traceback`` all of it is shown.
    """
    from torch_ir.torch_api import silent_log

    if click.get_current_context().meta.get(console.SHOW_TRACEBACK):
        yield
        return
    held = io.StringIO()
    with silent_log(), redirect_stderr(held), warnings.catch_warnings(record=True) as warned:
        yield
    if held.getvalue():
        console.message(held.getvalue().rstrip("\n"))
    for text in dict.fromkeys(str(warning.message) for warning in warned):
        console.note(text)
