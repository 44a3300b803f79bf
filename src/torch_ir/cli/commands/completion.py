"""``torch-ir completion``."""

from __future__ import annotations

import click

from torch_ir.cli import console

LINES = {
    "bash": 'eval "$(_TORCH_IR_COMPLETE=bash_source torch-ir)"',
    "zsh": 'eval "$(_TORCH_IR_COMPLETE=zsh_source torch-ir)"',
    "fish": "_TORCH_IR_COMPLETE=fish_source torch-ir | source",
}


@click.command
@click.argument("shell", type=click.Choice(list(LINES)))
def command(shell: str) -> None:
    """Print the line for SHELL's start-up file that completes torch-ir's commands and options."""
    console.result(LINES[shell])
