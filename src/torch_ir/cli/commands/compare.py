"""``torch-ir compare``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from torch_ir.cli import console
from torch_ir.cli.call import Invocation, call_options
from torch_ir.cli.options import FOLDER, READER, finish
from torch_ir.cli.progress import progress
from torch_ir.errors import counted

if TYPE_CHECKING:
    from torch_ir.debug.comparing.compared import CompareMode

READERS = "aten, eager, reference, a backend, FILE.py:NAME, golden.safetensors, or a lowered IR"


@click.command
@click.argument("file")
@click.option(
    "--run",
    type=READER,
    default="aten",
    show_default=True,
    metavar="READER",
    help=f"What to judge: {READERS}.",
)
@click.option(
    "--against",
    type=READER,
    default="reference",
    show_default=True,
    metavar="READER",
    help="Compare with it.",
)
@click.option(
    "--mode",
    type=click.Choice(["isolated", "accumulated", "both"]),
    default="both",
    show_default=True,
    help="Whether each piece gets the other side's values, or runs on its own.",
)
@click.option(
    "--samples",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Compare on N more random inputs.",
)
@click.option("--top", type=click.IntRange(min=1), metavar="N", help="Only N rows of the table.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option(
    "--repro",
    type=FOLDER,
    metavar="DIR",
    help="Write the smallest part that shows the first fault here.",
)
@click.option(
    "--allow-not-compared", is_flag=True, help="Exit status 0 although nodes were not compared."
)
@call_options
def command(
    file: str,
    run: str,
    against: str,
    mode: CompareMode,
    samples: int,
    top: int | None,
    as_json: bool,
    repro: str | None,
    allow_not_compared: bool,
    **options: Any,
) -> None:
    """Find the first node of FILE that a backend, a file or a lowered form gets wrong.

    Exit status 0: every node agrees. 1: some disagree. 3: none disagrees, but not all were seen.

    \b
    torch-ir compare m.tir --run my_device.py:MyDevice --random
    torch-ir compare m.tir --against golden.safetensors --inputs x.npz
    torch-ir compare m.tir --run m.core.tir --against eager --random
    """  # noqa: D301  # \b is a character that click reads
    call, ir = Invocation.opened(file, options)
    from torch_ir.debug import compare

    executor = call.executor(ir, file)
    with progress(f"comparing {counted(len(ir.nodes), 'node')}"):
        report = compare(
            ir,
            executor.weights,
            call.tensors(ir),
            run=run,
            against=against,
            mode=mode,
            samples=call.samples(ir, samples),
            constants=executor.constants,
            repro=repro,
        )
    table = f"\n\n{report.table(top)}" if report.divergences else ""
    console.show(report, as_json, lambda: f"{report}{table}")
    finish(report.verdict, allow_not_compared)
