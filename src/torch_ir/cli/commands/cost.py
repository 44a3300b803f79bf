"""``torch-ir cost``."""

from __future__ import annotations

import click

from torch_ir.cli import console
from torch_ir.cli.call import symbol_of
from torch_ir.cli.files import read_ir
from torch_ir.cli.options import by_option, require_torch
from torch_ir.cli.progress import progress


@click.command
@click.argument("file")
@by_option
@click.option("--top", type=click.IntRange(min=1), metavar="N", help="Only the N costliest rows.")
@click.option(
    "--symbol",
    "symbols",
    multiple=True,
    type=symbol_of,
    metavar="NAME=VALUE",
    help="The value of a symbol in shapes, such as s0=8; may be repeated.",
)
@click.option("--peak", type=float, metavar="FLOPS", help="Operations per second: 230e9.")
@click.option("--bandwidth", type=float, metavar="BYTES", help="Bytes per second: 20e9.")
@click.option(
    "--calibrate",
    is_flag=True,
    help="Predict times on this machine, which is measured the first time.",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON, not the table.")
def command(
    file: str,
    by: str,
    top: int | None,
    symbols: tuple[tuple[str, int], ...],
    peak: float | None,
    bandwidth: float | None,
    calibrate: bool,
    as_json: bool,
) -> None:
    """Count operations and bytes of the program in FILE, without running it and without torch.

    With --peak and --bandwidth a node takes the greater of its operations by the one and its
    bytes by the other; with --calibrate (which needs torch), what its kind takes here.

    \b
    torch-ir cost m.tir --by module --peak 230e9 --bandwidth 20e9 --symbol s0=8
    """  # noqa: D301  # \b is a character that click reads
    from torch_ir.ir.analysis.costs import cost

    ir, machine = read_ir(file), None
    if calibrate:
        require_torch()
        from torch_ir.debug.conformance.calibrating import calibrate as measured

        with progress("measuring this machine"):
            machine = measured()
    found = cost(
        ir,
        symbols=dict(symbols),
        peak_flops=peak,
        bandwidth=bandwidth,
        calibration=machine,
    )
    console.show(found, as_json, lambda: found.table(by, top))
