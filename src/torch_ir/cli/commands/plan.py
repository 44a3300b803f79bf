"""``torch-ir plan``."""

from __future__ import annotations

import click

from torch_ir.cli import console
from torch_ir.cli.files import read_ir


@click.command
@click.argument("file")
@click.option(
    "--alignment",
    type=click.IntRange(min=1),
    default=64,
    show_default=True,
    metavar="BYTES",
    help="What every offset is a multiple of.",
)
@click.option("--inputs", is_flag=True, help="Put the inputs of the program in the arena too.")
@click.option("--no-outputs", is_flag=True, help="Leave its outputs out of the arena.")
@click.option("--no-in-place", is_flag=True, help="Let no result take the place of an operand.")
@click.option(
    "--capacity",
    multiple=True,
    metavar="[BANK=]BYTES",
    help="What the arena may have at most; repeat it for banks, the preferred first.",
)
@click.option("--reorder", is_flag=True, help="Let nodes come in an order that needs less.")
@click.option("--nodes", is_flag=True, help="Print a line for every node.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole plan as JSON.")
def command(
    file: str,
    alignment: int,
    inputs: bool,
    no_outputs: bool,
    no_in_place: bool,
    capacity: tuple[str, ...],
    reorder: bool,
    nodes: bool,
    as_json: bool,
) -> None:
    """Plan the memory of the IR in FILE: one arena for all that it computes.

    Shows its size, what no arena can be smaller than, and what is needed when most is. Weights
    are outside of it; symbolic sizes count with their upper bounds.

    \b
    torch-ir plan m.tir
    torch-ir plan m.tir --alignment 16 --inputs --nodes
    torch-ir plan m.tir --capacity sram=262144 --capacity dram=67108864
    """  # noqa: D301  # \b is a character that click reads
    from torch_ir.passes.memory_plan import plan_memory

    plan = plan_memory(
        read_ir(file),
        alignment=alignment,
        inputs=inputs,
        outputs=not no_outputs,
        in_place=not no_in_place,
        capacity=_capacity(capacity),
        reorder=reorder,
    )
    console.show(plan, as_json, lambda: f"{plan}\n\n{plan.table()}" if nodes else str(plan))


def _capacity(given: tuple[str, ...]) -> int | dict[str, int] | None:
    banks: dict[str, int] = {}
    for text in given:
        name, _, count = text.rpartition("=")
        if not count.isdecimal() or name in banks or (not name and len(given) > 1):
            raise click.BadParameter(
                f"{text!r} is not BYTES, or BANK=BYTES once for each bank", param_hint="--capacity"
            )
        banks[name] = int(count)
    return banks.get("", banks or None)
