"""``torch-ir cases``."""

from __future__ import annotations

from importlib import import_module

import click

from torch_ir.cli import console
from torch_ir.cli.files import read_ir
from torch_ir.cli.options import FOLDER, SEED, require_torch
from torch_ir.cli.progress import progress
from torch_ir.errors import counted


@click.command
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "-o", "--output", type=FOLDER, metavar="DIR", help="Where to write cases, vectors and tests."
)
@click.option("--no-strides", is_flag=True, help="Leave strides out; then no torch is needed.")
@click.option("--no-vectors", is_flag=True, help="Write no vectors.")
@click.option("--no-pytest", is_flag=True, help="Write no files for pytest.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of the vectors.")
@click.option("--top", type=click.IntRange(min=1), metavar="N", help="Print only N rows.")
@click.option("--by", type=click.Choice(["count", "flops"]), default="count", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print the cases as JSON.")
def command(
    files: tuple[str, ...],
    output: str | None,
    no_strides: bool,
    no_vectors: bool,
    no_pytest: bool,
    seed: int,
    top: int | None,
    by: str,
    as_json: bool,
) -> None:
    """Collect every distinct call of the programs in FILE..., with counts, as test cases.

    \b
    torch-ir cases *.tir -o suite/
    torch-ir cases big.tir --no-strides --top 20 --by flops
    pytest suite/ --backend my_device.py:MyDevice
    """  # noqa: D301  # \b is a character that click reads
    from torch_ir.passes.operator_calls.collection import cases

    if not no_strides:
        require_torch()
        import_module("torch")  # its loading has a line of its own
    with progress(f"collecting the calls of {counted(len(files), 'program')}"):
        found = cases({file: read_ir(file) for file in files}, strides=not no_strides)
    if output is not None:
        with progress(f"writing {counted(len(found), 'case')}"):
            found.save(output, seed=seed, vectors=not no_vectors, pytest=not no_pytest)
    calls = sum(case.count for case in found)
    head = f"{counted(len(found), 'case')} in {counted(calls, 'call')}"
    console.show(found, as_json, lambda: f"{head}\n{found.table(top, by)}")
