"""``torch-ir conform``."""

from __future__ import annotations

import click

from torch_ir.cli import console
from torch_ir.cli.group import QuietCommand
from torch_ir.cli.options import BACKEND, CARD_OUTPUT, INPUT, SECONDS, names_of_list, require_torch
from torch_ir.cli.progress import progress


@click.command(cls=QuietCommand)
@click.option(
    "--backend", type=BACKEND, required=True, metavar="NAME", help="A backend, or FILE.py:NAME."
)
@click.option(
    "--operators", callback=names_of_list, metavar="NAMES", help="Such as 'aten.add*,aten.mm*'."
)
@click.option("--dtypes", callback=names_of_list, metavar="NAMES", help="Such as float32,int8.")
@click.option(
    "--cases",
    "suite",
    type=INPUT,
    metavar="DIR",
    help="What torch-ir cases wrote [core operators].",
)
@click.option(
    "--seconds", type=SECONDS, default=10.0, show_default=True, help="Limit of one case."
)
@click.option(
    "-o", "--output", type=CARD_OUTPUT, metavar="PATH", help="Write the card: .json or .md."
)
@click.option(
    "--baseline", type=INPUT, metavar="PATH", help="An older card: print what has changed."
)
@click.option("--json", "as_json", is_flag=True, help="Print the card as JSON.")
def command(
    backend: str,
    operators: list[str] | None,
    dtypes: list[str] | None,
    suite: str | None,
    seconds: float,
    output: str | None,
    baseline: str | None,
    as_json: bool,
) -> None:
    """Try a backend with many calls, each alone, and print its score card.

    Exit status 1 if a case fails that passed in the baseline or, without one, if any fails.

    \b
    torch-ir conform --backend my_device.py:MyDevice --operators 'aten.add*'
    torch-ir conform --backend my_device --cases suite/ --baseline old.json
    """  # noqa: D301  # \b is a character that click reads
    require_torch()
    from torch_ir.debug.conformance.conforming import conform
    from torch_ir.debug.conformance.scorecard import Conformance

    older = None if baseline is None else Conformance.load(baseline)
    with progress("trying the backend"):
        found = conform(backend, operators=operators, dtypes=dtypes, cases=suite, seconds=seconds)
    if output is not None:
        found.save(output)
    changes = () if older is None else found.diff(older)
    console.show(found, as_json, lambda: "\n".join([str(found), *changes]))
    passed = {row.case for row in older.rows if row.status == "pass"} if older else None
    if any(passed is None or row.case in passed for row in found.failures):
        raise click.exceptions.Exit(1)
