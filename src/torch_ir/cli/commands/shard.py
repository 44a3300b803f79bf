"""``torch-ir shard``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from torch_ir.cli import console
from torch_ir.cli.call import Invocation, call_options
from torch_ir.cli.files import read_ir, read_report, write_ir
from torch_ir.cli.options import FOLDER, INPUT, finish, require_torch
from torch_ir.cli.progress import progress
from torch_ir.errors import InputError, counted

Entry = tuple[str, str | int]


def _entry(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> tuple[Entry, ...]:
    found: list[Entry] = []
    for value in values:
        name, _sign, style = value.rpartition("=")
        if not name or not style:
            raise click.BadParameter(f"{value!r} is not PATTERN=STYLE, such as '*.up=column'")
        found.append((name, int(style) if style.isdecimal() else style))
    return tuple(found)


@click.command
@click.argument("file")
@click.option("--ranks", type=click.IntRange(min=1), required=True, help="How many processes.")
@click.option(
    "--split",
    "entries",
    multiple=True,
    callback=_entry,
    metavar="PATTERN=STYLE",
    help="How ranks share the weights of modules: column, row, vocabulary, expert, whole or a "
    "dimension; may be repeated.",
)
@click.option("--plan", type=INPUT, metavar="PATH", help='The same, as JSON: {"*.up": "column"}.')
@click.option("--group", default="tp", show_default=True, help="Name of the ranks' group.")
@click.option(
    "-o", "--output", type=FOLDER, metavar="DIR", help="Where to write rank0.tir, rank1.tir, ...."
)
@click.option(
    "--write-weights", is_flag=True, help="Write each rank's weights too: rank0.safetensors, ...."
)
@click.option(
    "--validate", is_flag=True, help="Run whole and shared programs by their meaning and compare."
)
@call_options
def command(
    file: str,
    ranks: int,
    entries: tuple[Entry, ...],
    plan: str | None,
    group: str,
    output: str | None,
    write_weights: bool,
    validate: bool,
    **options: Any,
) -> None:
    """Share the weights of the IR in FILE between ranks: a program for each.

    Each rank runs its program with torch_ir.compile(..., groups={"tp": group}) under torchrun.
    Exit status 1: --validate found that they disagree.

    \b
    torch-ir shard m.tir --ranks 2 --split '*.up=column' -o ranks
    torch-ir shard m.tir --ranks 4 --plan plan.json --write-weights -o ranks
    torch-ir shard m.tir --ranks 2 --plan plan.json --validate --random
    """  # noqa: D301  # \b is a character that click reads
    call = Invocation(**options)
    call.check_usage()
    given = {**(_read_plan(plan) if plan else {}), **dict(entries)}
    if not given:
        raise click.UsageError("give --split or --plan")
    if not (output or validate):
        raise click.UsageError("give -o, --validate or both")
    call.refuse_constants("--ranks")
    ir = call.read(file) if validate else read_ir(file)
    require_torch()
    from torch_ir.passes.sharding import shard

    programs = shard(ir, given, ranks=ranks, group=group)
    report = None
    if validate:
        from torch_ir.debug.ranks import validate_ranks

        weights = call.weight_tensors(ir, file)
        with progress("comparing"):
            report = validate_ranks(ir, programs, weights or {}, call.tensors(ir), seed=call.seed)
    if output:
        _write(call, file, programs, Path(output), write_weights=write_weights)
    gathered = programs[0].metadata.get("gathered", ())
    console.note(f"{counted(ranks, 'program')}, {counted(len(gathered), 'value')} gathered")
    if report is not None:
        console.result(str(report))
        finish(report.verdict)


def _read_plan(path: str) -> dict[str, Any]:
    remedy = 'It is JSON such as {"*.up": "column"}.'
    found = read_report(path, remedy)
    if not isinstance(found, dict):
        raise InputError(f"{path} is no plan", remedy=remedy)
    return {str(name): style for name, style in found.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]  # JSON


def _write(
    call: Invocation, file: str, programs: tuple[Any, ...], folder: Path, *, write_weights: bool
) -> None:
    from torch_ir.cli.tensors import write_tensors
    from torch_ir.serde.files import make_folder
    from torch_ir.weights import shard_weights

    make_folder(folder)
    weights = call.weight_tensors(programs[0], file) if write_weights else None
    if write_weights and weights is None:
        raise click.UsageError("--write-weights needs --weights")
    for rank, program in enumerate(programs):
        write_ir(program, str(folder / f"rank{rank}.tir"), "tir")
        if weights is not None:
            mine = shard_weights(program, weights, rank)
            write_tensors(mine, str(folder / f"rank{rank}.safetensors"))
