"""``torch-ir browse``."""

from __future__ import annotations

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
    from torch_ir.viz.terminal import browser

    browser(read_ir(file)).run()
