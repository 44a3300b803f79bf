"""``torch-ir lower``."""

from __future__ import annotations

from importlib import import_module

import click

from torch_ir.cli import console
from torch_ir.cli.files import (
    format_of,
    note_left_weights,
    read_ir,
    require_other_place,
    write_ir,
)
from torch_ir.cli.options import OUTPUT, ClosestChoice, allow_option, require_torch
from torch_ir.cli.progress import progress
from torch_ir.errors import counted
from torch_ir.ir import IR
from torch_ir.ops.rules import allow_operators

TARGETS = ("aten", "core_aten", "edge")


@click.command
@click.argument("file")
@click.option("-o", "--output", type=OUTPUT, help="Where to write [text to stdout].")
@click.option(
    "--to",
    "target",
    type=ClosestChoice(TARGETS),
    default="core_aten",
    show_default=True,
    help="Dialect: functional, reduced to the core operators too, or Edge.",
)
@click.option(
    "--preserve",
    multiple=True,
    metavar="OPERATOR",
    help="Keep this overload whole, such as aten.linear.default; may be repeated.",
)
@click.option("--strict", is_flag=True, help="For edge: no numbers, only tensors.")
@allow_option
def command(
    file: str,
    output: str | None,
    target: str,
    preserve: tuple[str, ...],
    strict: bool,
    allow: tuple[str, ...],
) -> None:
    """Lower the IR in FILE to another dialect.

    In `aten` no operator writes: what the program writes to its inputs and buffers is listed. In
    `core_aten` every operator outside the core set is replaced by what it is made of. In `edge`
    operators are specialized by element type too: promotion, layouts and copies are written out,
    and the result is verified.
    """
    if preserve and target == "aten":
        raise click.UsageError("--preserve is for --to core_aten and --to edge")
    if strict and target != "edge":
        raise click.UsageError("--strict is for --to edge")
    kind = format_of(output, "text")
    require_other_place(file, output)
    require_torch()
    ir = read_ir(file)
    import_module("torch")  # its loading has a line of its own
    with allow_operators(*allow), progress(f"lowering {counted(len(ir.nodes), 'node')}"):
        result = _lowered(ir, target, preserve, strict=strict)
    before, after = counted(len(ir.nodes), "node"), counted(len(result.nodes), "node")
    console.note(f"{before} of {ir.dialect} became {after} of {result.dialect}")
    note_left_weights(file)
    write_ir(result, output, kind)


def _lowered(ir: IR, target: str, preserve: tuple[str, ...], *, strict: bool) -> IR:
    from torch_ir.edge import to_edge
    from torch_ir.passes import decompose, functionalize

    match target:
        case "aten":
            return functionalize(ir)
        case "edge":
            return to_edge(ir, preserve=preserve, strict=strict).ir()
        case _:
            return decompose(ir, target, preserve=preserve)
