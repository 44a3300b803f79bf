"""``torch-ir opt``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from torch_ir.cli import console
from torch_ir.cli.call import Invocation, call_options
from torch_ir.cli.files import (
    format_of,
    note_left_weights,
    read_ir,
    require_other_place,
    write_ir,
)
from torch_ir.cli.options import OUTPUT, PASSES
from torch_ir.cli.passes import steps_of
from torch_ir.errors import PassError, code_of, counted
from torch_ir.ir import IR
from torch_ir.tables import table

DEFAULT = "remove-no-ops,fold-constants,clean-casts,cse,dce"


def _list(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        from torch_ir.passes.pass_registry import described_passes

        console.result(table([*described_passes().items()], align=("left", "left")))
        context.exit()


@click.command
@click.argument("file")
@click.option("-o", "--output", type=OUTPUT, help="Where to write [text to stdout].")
@click.option(
    "-p",
    "--passes",
    "--pass",
    type=PASSES,
    metavar="NAMES",
    default=DEFAULT,
    show_default=True,
    help="The passes, in order, separated by commas.",
)
@click.option("--print-after-each", is_flag=True, help="Print the program after each pass.")
@click.option(
    "--verify",
    type=click.Choice(("off", "stage", "each")),
    default="each",
    show_default=True,
    help="Check the rules of the dialect: after each pass, after all, or not.",
)
@click.option(
    "--list",
    "listed",
    is_flag=True,
    is_eager=True,
    help="List the passes and exit.",
    expose_value=False,
    callback=_list,
)
@click.option("--explain", is_flag=True, help="Say why patterns that nearly fit were left alone.")
@click.option(
    "--validate",
    type=click.Choice(("off", "stage", "each")),
    default="off",
    show_default=True,
    help="Run the program before and after, and compare: each pass, all, or not.",
)
@click.option("--print-changed", is_flag=True, help="Print what each pass changed.")
@call_options
def command(
    file: str,
    output: str | None,
    passes: str,
    print_after_each: bool,
    verify: Any,
    explain: bool,
    validate: Any,
    print_changed: bool,
    **options: Any,
) -> None:
    """Run passes over the IR in FILE; torch-ir's own passes keep every bit.

    A pass may be FILE.py:NAME. --validate needs inputs to run with, and nothing is written where
    a pass breaks the program.
    """
    from torch_ir.passes import run_passes
    from torch_ir.passes.base import lineage_of, require_same_values

    kind = format_of(output, "text")
    require_other_place(file, output)
    call = Invocation(**options)
    call.check_usage()
    ir = before = read_ir(file) if validate == "off" else call.read(file)
    steps = steps_of(passes)
    lineage = None
    if validate != "off":
        lineage = lineage_of(call.executor(ir, file).weights, call.tensors(ir))
    known = _findings(ir, verify)
    for position, step in enumerate(steps):
        is_last = position == len(steps) - 1
        level = "each" if verify == "each" or (verify == "stage" and is_last) else "off"
        result = run_passes(
            ir,
            [step],
            verify=level,
            verifier=lambda made: _new(made, known),
            allow=call.allow,
        )
        if lineage is not None and validate == "each" and result.modified:
            require_same_values(ir, result.ir, str(step), lineage)
        if print_changed and result.modified:
            told = f"# {step}\n{ir.diff(result.ir)}\n"
            (console.message if output is None else console.result)(told)
        ir = result.ir
        left = f"{counted(len(ir.nodes), 'node')} left"
        console.note(f"{step}: {left if result.modified else 'nothing to do'}")
        with code_of(step, f"what the pass {step.name} explains", PassError):
            for line in step.explain(ir) if explain else ():
                console.message(f"  {line}")
        if print_after_each:
            (console.message if output is None else console.result)(f"# after {step}\n{ir}\n")
    if lineage is not None and validate == "stage" and ir is not before:
        require_same_values(before, ir, "the passes", lineage)
    console.note(f"{counted(len(before.nodes), 'node')} became {counted(len(ir.nodes), 'node')}")
    note_left_weights(file)
    write_ir(ir, output, kind)


def _findings(ir: IR, verify: str) -> frozenset[str]:
    """What is against the dialect's rules before any pass."""
    return frozenset() if verify == "off" else frozenset(map(str, _violations(ir)))


def _new(ir: IR, known: frozenset[str]) -> Iterable[Any]:
    return [violation for violation in _violations(ir) if str(violation) not in known]


def _violations(ir: IR) -> Iterable[Any]:
    from torch_ir.dialects import verify

    return verify(ir, types=False)
