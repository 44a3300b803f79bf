"""``torch-ir extensions``."""

from __future__ import annotations

from dataclasses import asdict

import click

from torch_ir.cli import console
from torch_ir.ops.extensions import extensions
from torch_ir.tables import table


@click.command
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(as_json: bool) -> None:
    """List what installed packages add, and what of it cannot be loaded.

    Operators, denotations, passes, backends, dialects, readers of weights and viewers are found by
    the entry points of packages; each is imported to see whether it can be.
    """
    found = list(extensions())
    if as_json:
        console.write_json([asdict(extension) for extension in found])
    elif not found:
        console.result("no installed package extends torch-ir")
    else:
        rows = [(e.group, e.name, e.value, e.package, e.fault or "loaded") for e in found]
        console.result(table(rows, align=("left",) * 5))
    if any(extension.fault for extension in found):
        raise click.exceptions.Exit(1)
