"""``torch-ir validate``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from torch_ir.cli import console
from torch_ir.cli.call import Invocation, call_options
from torch_ir.cli.options import BACKEND, FOLDER, finish
from torch_ir.cli.progress import progress
from torch_ir.errors import InvalidIRError, did_you_mean

if TYPE_CHECKING:
    from torch_ir.debug.judging.delegates import Mode


READERS = ("denotation", "eager")


def _readers(_: click.Context, __: click.Parameter, value: str) -> list[str]:
    names = [name.strip() for name in value.split(",")]
    for name in names:
        if name not in READERS:
            raise InvalidIRError(
                f"there is no reader {name!r:.60}",
                remedy=did_you_mean(name, READERS) or f"There are {' and '.join(READERS)}.",
            )
    return names


@click.command
@click.argument("file")
@call_options
@click.option(
    "--against",
    callback=_readers,
    metavar="READERS",
    default="denotation,eager",
    show_default=True,
    help="What to compare every node with, separated by commas.",
)
@click.option(
    "--backend",
    "backends",
    type=BACKEND,
    multiple=True,
    metavar="NAME",
    help="A backend to judge: its name, or package.module:NAME or file.py:NAME; may be repeated.",
)
@click.option(
    "--mode",
    type=click.Choice(["isolated", "accumulated"]),
    default="isolated",
    show_default=True,
    help="Whether a delegate gets torch's values, or those that the delegates before it made.",
)
@click.option("--top", type=click.IntRange(min=1), metavar="N", help="Only the N worst operators.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option(
    "--repro",
    type=FOLDER,
    metavar="DIR",
    help="Where to write the inputs of the first node that diverges (of a backend: the smallest "
    "body that does), and a script that runs it alone.",
)
@click.option(
    "--allow-not-compared",
    is_flag=True,
    help="Exit status 0 where no reader disagrees, though some nodes were not compared.",
)
def command(
    file: str,
    against: list[str],
    backends: tuple[str, ...],
    mode: Mode,
    top: int | None,
    as_json: bool,
    repro: str | None,
    allow_not_compared: bool,
    **options: Any,
) -> None:
    """Compare every node of FILE with its meaning and eager.

    Exit status 0: all agree. 1: some disagree. 3: none disagrees, but nodes were not compared.

    The compiled graph runs, and each node is read again on the inputs that it had: by its
    denotation in NumPy, within a tolerance for rounding, and by torch's operator, to the bit.

    \b
    torch-ir validate m.tir --random
    torch-ir validate m.json --weights m.safetensors --inputs x.npz --repro out
    torch-ir validate m.json --random-weights --random --against eager
    torch-ir validate m.tir --random --backend acme --mode accumulated --repro out
    """  # noqa: D301  # \b is a character that click reads
    call, ir = Invocation.opened(file, options)
    from torch_ir.debug import validate

    inputs = call.tensors(ir)
    executor = call.executor(ir, file)
    with progress("comparing"):
        report = validate(
            ir,
            executor.weights,
            inputs,
            against=against,
            constants=executor.constants,
            repro=repro,
            backend=list(backends) or None,
            mode=mode,
            allow=call.allow,
        )
    console.show(report, as_json, lambda: f"{report}\n\n{report.table(top)}")
    finish(report.verdict, allow_not_compared)
