"""``torch-ir browse``."""

from __future__ import annotations

import sys

import click

from torch_ir.cli.files import read_ir


@click.command
@click.argument("file")
def command(file: str) -> None:
    """Walk the IR in FILE in the terminal: modules, functions, nodes, search.

    Enter opens, / searches, n goes to the next, u to what makes the value, d to
    what takes it, f to the function that it calls, q ends. It needs the extra
    torch-ir[browse].
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):  # what keys come from, and is drawn on
        raise click.UsageError(
            "browse draws on a terminal and waits for keys, and there is none. Print the program "
            "with torch-ir show, or make a page of it with torch-ir view"
        )
    from torch_ir.viz.terminal import browser

    browser(read_ir(file)).run()
