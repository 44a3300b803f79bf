"""What is going on, for a person who waits: on stderr, and only if that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager

import click


@contextmanager
def progress(what: str) -> Generator[None]:
    """Show that something long is going on."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield


def note(text: str) -> None:
    """Say something that is no result."""
    click.echo(f"note: {text}", err=True)
