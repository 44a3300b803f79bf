"""``torch-ir bisect``."""

from __future__ import annotations

from typing import Any

import click

from torch_ir.cli import console
from torch_ir.cli.call import Invocation, call_options
from torch_ir.cli.options import PASSES, READER, pass_list
from torch_ir.cli.passes import steps_of
from torch_ir.cli.progress import progress
from torch_ir.errors import counted


@click.command
@click.argument("file")
@click.option(
    "-p",
    "--passes",
    type=PASSES,
    required=True,
    metavar="NAMES",
    help="The passes in order: cse,file.py:Mine.",
)
@click.option("--against", type=READER, default="aten", show_default=True, metavar="READER")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@call_options
def command(file: str, passes: str, against: str, as_json: bool, **options: Any) -> None:
    """Find the pass that breaks the program in FILE, and the node; exit status 1 if one does.

    \b
    torch-ir bisect m.tir -p no-ops,file.py:MyPass,cse,dce --random
    """  # noqa: D301  # \b is a character that click reads
    if not pass_list(passes):
        raise click.UsageError("give one pass or more")
    call, ir = Invocation.opened(file, options)
    from torch_ir.debug.shrinking.bisection import bisect

    executor, inputs = call.executor(ir, file), call.tensors(ir)
    steps = steps_of(passes)
    with progress(f"comparing {counted(len(ir.nodes), 'node')}"):
        found = bisect(ir, steps, executor.weights, inputs, against=against)
    console.show(found, as_json)
    if found.index is not None:
        raise click.exceptions.Exit(1)
