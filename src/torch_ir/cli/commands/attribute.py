"""``torch-ir attribute``."""

from __future__ import annotations

from typing import Any

import click

from torch_ir.cli import console
from torch_ir.cli.call import Invocation, call_options, weights_wanted
from torch_ir.cli.options import require_torch
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
    call = Invocation(**options)
    call.check_usage()
    require_torch()
    ir = call.read(file)
    from torch_ir.cli.tensors import random_inputs
    from torch_ir.debug import attribute

    weights, symbols = call.weight_tensors(ir, file), dict(call.symbols)
    more = [random_inputs(ir, call.seed + 1 + number, symbols) for number in range(samples)]
    with weights_wanted(), progress("running"):
        found = attribute(ir, weights, call.tensors(ir), samples=more, budget=budget)
    if as_json:
        console.write_json(found.to_dict())
    else:
        head = str(found).split("\n  quantize", 1)[0] if top else str(found)
        console.result(f"{head.splitlines()[0]}\n{found.table(top)}" if top else head)
