"""``torch-ir diff``."""

from __future__ import annotations

import click

from torch_ir.cli import console
from torch_ir.cli.files import STDIO, read_ir
from torch_ir.ir import IR
from torch_ir.ir.functions import written_out


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
    before, after = read_ir(old), read_ir(new)
    difference = before.diff(after)
    if stat and as_json:
        console.write_json({"different": bool(difference), **difference.stat().to_dict()})
    elif stat:
        console.result(str(difference.stat()))
    elif as_json:
        console.write_json({"different": bool(difference), "report": str(difference).splitlines()})
    elif difference:
        console.result(str(difference))
    if difference:
        _note_same(before, after)
        raise click.exceptions.Exit(1)


def _note_same(before: IR, after: IR) -> None:
    """Say that the programs differ in what is a function alone, where that is so."""
    flat = written_out(before), written_out(after)
    if flat != (before, after) and not flat[0].diff(flat[1]):
        console.note("they are the same where calls of functions are written out")
