"""``torch-ir diff``."""

from __future__ import annotations

import click

from torch_ir.cli import console
from torch_ir.cli.files import STDIO, read_ir


@click.command
@click.argument("old")
@click.argument("new")
@click.option("--stat", is_flag=True, help="Print how many changes there are, by operator.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(old: str, new: str, stat: bool, as_json: bool) -> None:
    """Compare the IRs in OLD and NEW by structure; exit status 0 if they are the same, 1 if not.

    Names of values do not matter, as they do not matter to what is computed.
    """
    if old == new == STDIO:
        raise click.UsageError("only one of the two can be standard input")
    difference = read_ir(old).diff(read_ir(new))
    if stat and as_json:
        console.write_json({"different": bool(difference), **difference.stat().to_dict()})
    elif stat:
        console.result(str(difference.stat()))
    elif as_json:
        console.write_json({"different": bool(difference), "report": str(difference).splitlines()})
    elif difference:
        console.result(str(difference))
    if difference:
        raise click.exceptions.Exit(1)
