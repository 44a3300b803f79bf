"""``torch-ir show``."""

from __future__ import annotations

from typing import Any

import click

from torch_ir.cli.files import read_ir, write


def depth_of(value: Any) -> int:
    """Check that the depth asked for is 1 or more, and return it.

    Raises:
        BadParameter: It is none; a file name that the option took by its position is told as that.
    """
    try:
        depth = int(value)
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is not a depth; put --module after the file, or write --module=1"
        ) from None
    if depth < 1:
        raise click.BadParameter(f"{depth} is less than 1, the model's own children")
    return depth


@click.command
@click.argument("file")
@click.option(
    "--module",
    "depth",
    type=depth_of,
    metavar="DEPTH",
    is_flag=False,
    flag_value=1,
    help="Fold the calls of each module at this depth into one line [1].",
)
@click.option(
    "--origins", is_flag=True, help="Say above each node which extracted nodes it is made of."
)
@click.option("-o", "--output", metavar="PATH", help="Write to this file instead of stdout.")
def command(file: str, depth: int | None, origins: bool, output: str | None) -> None:
    """Print the IR in FILE as text.

    What is printed without --module can be read back by every command.
    """
    from torch_ir.ir.text import ir_text

    text = ir_text(read_ir(file), fold=depth, origins=origins)
    write(f"{text.rstrip()}\n".encode(), output)
