"""Progress lines for a person who waits: on stderr, and only if that is a terminal."""

from __future__ import annotations

import io
import os
import sys
import time
import warnings
from collections.abc import Generator
from contextlib import contextmanager, redirect_stderr

import click

from torch_ir.cli import console
from torch_ir.errors import printable
from torch_ir.steps import counting


@contextmanager
def progress(what: str) -> Generator[None]:
    """Show that something long is going on: its steps, if it counts them, and the time left."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn("line"),
        TextColumn("{task.description}", markup=False),
        TimeElapsedColumn(),
    )
    console = Console(file=sys.stderr)
    setattr(console, "show_cursor", lambda show=True: False)  # noqa: B010  # killed, it would stay hidden
    with Progress(*columns, console=console, transient=True) as shown:
        text, start = printable(what), time.monotonic()
        task = shown.add_task(text, total=None)

        def listen(done: int, total: int) -> None:
            left = round((time.monotonic() - start) / done * (total - done)) if done else None
            more = "" if left is None else f", {left // 60}:{left % 60:02} left"
            shown.update(task, description=f"{text}: {done:,} of {total:,}{more}")

        with counting(listen):
            yield


@contextmanager
def held_back() -> Generator[None]:
    """Hold back what torch writes to stderr; an error that follows says it better.

    With ``--traceback`` all of it is shown.
    """
    from torch_ir.quiet import silent_log

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
