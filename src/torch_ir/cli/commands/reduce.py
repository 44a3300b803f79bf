"""``torch-ir reduce``."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torch_ir.cli import console
from torch_ir.cli.call import Invocation, call_options
from torch_ir.cli.options import FOLDER, READER, SECONDS, pattern_of
from torch_ir.cli.progress import progress
from torch_ir.errors import counted

if TYPE_CHECKING:
    import torch

    from torch_ir.debug import Oracle
    from torch_ir.ir import IR

SCRIPT = """\
import shlex
import subprocess

raise SystemExit(subprocess.call([*shlex.split({command!r}), str(program)]))"""


@click.command
@click.argument("file")
@click.option(
    "--run", type=READER, metavar="READER", help="The failure: what compare says of this reader."
)
@click.option("--against", type=READER, default="reference", show_default=True, metavar="READER")
@click.option(
    "--test", "test", metavar="CMD", help="The failure: the exit status of CMD PROGRAM.tir."
)
@click.option(
    "--match",
    callback=pattern_of,
    metavar="REGEX",
    help="With --test: what its output has to match.",
)
@click.option("--seconds", type=SECONDS, default=60.0, show_default=True, help="How long to try.")
@click.option("--timeout", type=SECONDS, default=60.0, show_default=True, help="Of one CMD.")
@click.option("--no-shapes", is_flag=True, help="Leave sizes as they are.")
@click.option(
    "-o",
    "--output",
    type=FOLDER,
    required=True,
    metavar="DIR",
    help="Where to write what is left.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@call_options
def command(
    file: str,
    run: str | None,
    against: str,
    test: str | None,
    match: re.Pattern[str] | None,
    seconds: float,
    timeout: float,
    no_shapes: bool,
    output: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Make the program in FILE small, as long as it fails in the same way.

    --test gets the path of a program with weights as its last argument; inputs.safetensors lies
    beside it. A signal and a time limit are failures of their own.

    \b
    torch-ir reduce m.tir --random --run my_device.py:MyDevice -o small/
    torch-ir reduce m.tir --random --test my_test --match illegal -o small/
    """  # noqa: D301  # \b is a character that click reads
    if (run is None) == (test is None):
        raise click.UsageError("give --run or --test")
    if test is not None and not test.strip():
        raise click.UsageError("--test names no command")
    if match is not None and test is None:
        raise click.UsageError("--match needs --test")
    call, ir = Invocation.opened(file, options)
    from torch_ir.debug.shrinking.reduced import COMPARE
    from torch_ir.debug.shrinking.reduction import reduce

    if run is not None:
        oracle = _compared(run, against)
        script = COMPARE.format(run=_absolute(run), against=_absolute(against))
    else:
        oracle = _tested(test or "", match, timeout)
        script = SCRIPT.format(command=test)
    executor, inputs = call.executor(ir, file), call.tensors(ir)
    with progress(f"reducing {counted(len(ir.nodes), 'node')}"):
        found = reduce(ir, executor.weights, inputs, oracle, seconds=seconds, shapes=not no_shapes)
    from dataclasses import replace

    found = replace(found, script=script)
    found.save(output)
    console.show(found, as_json)


def _absolute(reader: str) -> str:
    """A reader as a script in another folder finds it."""
    place, mark, name = reader.partition(":")
    return f"{Path(place).resolve()}{mark}{name}" if place.endswith(".py") else reader


def _compared(run: Any, against: Any) -> Oracle:
    """The failure that a comparison finds."""
    from torch_ir.debug import compare

    def oracle(
        ir: IR, weights: Mapping[str, torch.Tensor], inputs: Sequence[torch.Tensor]
    ) -> str | None:
        first = compare(ir, weights, inputs, run=run, against=against, mode="isolated").first
        return None if first is None else first.failure

    return oracle


def _tested(test: str, match: re.Pattern[str] | None, timeout: float) -> Oracle:
    """The failure that a command finds in a program."""
    import shlex

    from torch_ir.debug.shrinking.reduced import write_program
    from torch_ir.serde.files import temporary_folder

    def oracle(
        ir: IR, weights: Mapping[str, torch.Tensor], inputs: Sequence[torch.Tensor]
    ) -> str | None:
        with temporary_folder() as folder:
            write_program(folder, ir, weights, inputs)
            try:
                done = subprocess.run(  # noqa: S603  # it is the user's own command
                    [*shlex.split(test), str(folder / "program.tir")],
                    capture_output=True,
                    text=True,
                    errors="replace",
                    timeout=timeout,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return f"no end within {timeout:g} s"
        if done.returncode < 0:
            return f"signal {-done.returncode}"
        if match is not None:
            is_found = match.search(done.stdout + done.stderr)
            return f"match of {match.pattern}" if is_found else None
        return f"exit status {done.returncode}" if done.returncode else None

    return oracle
