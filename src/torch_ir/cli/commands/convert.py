"""``torch-ir convert``."""

from __future__ import annotations

from collections.abc import Mapping

import click

from torch_ir.cli import console
from torch_ir.cli.files import FORMATS, format_of, has_weights, read_ir, write_ir
from torch_ir.ir import Constant


@click.command
@click.argument("file")
@click.argument("output", required=False)
@click.option("-o", "--output", "output_option", metavar="PATH", help="Where to write [stdout].")
@click.option("--to", type=click.Choice(FORMATS), help="Format [as the name of OUTPUT says].")
def command(file: str, output: str | None, output_option: str | None, to: str | None) -> None:
    """Write the IR in FILE to OUTPUT in another format.

    JSON (.json) and archives (.tir) hold everything. Text (.ir, .txt) names large constants by
    their hash only. Diagrams (.mmd, .html) are for looking at.
    """
    if output and output_option:
        raise click.UsageError("the output is given twice")
    target = output or output_option
    if target is None and to is None:
        raise click.UsageError("give a file to write, or --to and it goes to stdout")
    kind = format_of(target, to, "json")
    write_ir(read_ir(file), target, kind, _weights(file, kind))


def _weights(file: str, kind: str) -> Mapping[str, Constant] | None:
    """The weights in an archive, if they can go along."""
    if not has_weights(file):
        return None
    if kind != "tir":
        console.note(f"the weights in {file} are left out; only an archive holds weights")
        return None
    from torch_ir.serde import read_archive_weights

    return read_archive_weights(file)
