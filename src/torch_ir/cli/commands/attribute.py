"""``torch-ir attribute``."""

from __future__ import annotations

from typing import Any

import click

from torch_ir.cli import console
from torch_ir.cli.call import Invocation, call_options
from torch_ir.cli.progress import progress


@click.command
@click.argument("file")
@click.option("--budget", type=float, metavar="DB", help="Say what to leave in float for this.")
@click.option("--samples", type=click.IntRange(min=0), default=0, metavar="N", help="More inputs.")
@click.option("--top", type=click.IntRange(min=1), metavar="N", help="Only the N worst pairs.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@call_options
def command(
    file: str,
    budget: float | None,
    samples: int,
    top: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Show which quantized values of FILE cost its outputs their accuracy, in decibels.

    At most ten forward runs for each sample; ``~`` marks what is estimated by derivatives.

    \b
    torch-ir attribute q.tir --random --budget 30
    torch-ir attribute q.tir --inputs x.npz --top 10
    """  # noqa: D301  # \b is a character that click reads
    call, ir = Invocation.opened(file, options)
    from torch_ir.debug import attribute

    weights, more = call.weight_tensors(ir, file), call.samples(ir, samples)
    with progress("running"):
        found = attribute(ir, weights, call.tensors(ir), samples=more, budget=budget)
    head = str(found).partition("\n")[0]
    console.show(found, as_json, lambda: f"{head}\n{found.table(top)}" if top else str(found))
