"""``torch-ir fuzz``."""

from __future__ import annotations

import click

from torch_ir.cli import console
from torch_ir.cli.group import QuietCommand
from torch_ir.cli.options import (
    BACKEND,
    FOLDER,
    READER,
    SECONDS,
    SEED,
    names_of_list,
    require_torch,
)
from torch_ir.cli.progress import progress


@click.command(cls=QuietCommand)
@click.option(
    "--backend", type=BACKEND, required=True, metavar="NAME", help="A backend, or FILE.py:NAME."
)
@click.option("--programs", type=click.IntRange(min=1), metavar="N", help="How many [100].")
@click.option("--seconds", type=SECONDS, metavar="S", help="When to stop.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="That of the first program.")
@click.option("--nodes", type=click.IntRange(min=1), default=10, show_default=True)
@click.option(
    "--operators", callback=names_of_list, metavar="NAMES", help="Such as 'aten.add*,aten.mm*'."
)
@click.option("--dtypes", callback=names_of_list, metavar="NAMES", help="Such as float32,int8.")
@click.option("--against", type=READER, default="reference", show_default=True, metavar="READER")
@click.option(
    "-o", "--output", type=FOLDER, metavar="DIR", help="Write a folder for each finding."
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def command(
    backend: str,
    programs: int | None,
    seconds: float | None,
    seed: int,
    nodes: int,
    operators: list[str] | None,
    dtypes: list[str] | None,
    against: str,
    output: str | None,
    as_json: bool,
) -> None:
    """Try a backend with random programs, whose meaning is known; exit status 1 if it is wrong.

    Programs call every operator that has a denotation: views, writes in place, dynamic sizes,
    conditions and loops, half types. What differs is looked at twice and made small.

    \b
    torch-ir fuzz --backend onnxruntime --programs 1000 --seed 0 -o findings/
    torch-ir fuzz --backend my_device.py:MyDevice --operators 'aten.*pool*'
    """  # noqa: D301  # \b is a character that click reads
    require_torch()
    from torch_ir.debug import fuzz

    with progress("trying random programs"):
        found = fuzz(
            backend,
            seed=seed,
            programs=programs,
            seconds=seconds,
            operators=operators,
            dtypes=dtypes,
            against=against,
            nodes=nodes,
            out=output,
        )
    console.show(found, as_json)
    if found.findings:
        raise click.exceptions.Exit(1)
