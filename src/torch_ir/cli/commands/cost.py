"""``torch-ir cost``."""

from __future__ import annotations

import click

from torch_ir.cli import console
from torch_ir.cli.call import symbol_of
from torch_ir.cli.files import read_ir


@click.command
@click.argument("file")
@click.option(
    "--by",
    type=click.Choice(["node", "operator", "module"]),
    default="operator",
    show_default=True,
    help="What a row of the table is.",
)
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
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON, not the table.")
def command(
    file: str,
    by: str,
    top: int | None,
    symbols: tuple[tuple[str, int], ...],
    peak: float | None,
    bandwidth: float | None,
    as_json: bool,
) -> None:
    """Count operations and bytes of the program in FILE, without running it and without torch.

    With --peak and --bandwidth a node takes the greater of its operations by the one and its
    bytes by the other.

    \b
    torch-ir cost m.tir --by module --peak 230e9 --bandwidth 20e9 --symbol s0=8
    """  # noqa: D301  # \b is a character that click reads
    from torch_ir.ir.analysis.costs import cost

    found = cost(read_ir(file), symbols=dict(symbols), peak_flops=peak, bandwidth=bandwidth)
    if as_json:
        console.write_json(found.to_dict())
    else:
        console.result(found.table(by, top))
