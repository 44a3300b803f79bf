"""``torch-ir operators``."""

from __future__ import annotations

import click

from torch_ir.cli import console
from torch_ir.cli.files import read_ir
from torch_ir.serde.operator_table import operator_table


@click.command
@click.argument("file", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print arguments and defaults as JSON.")
def command(file: str | None, as_json: bool) -> None:
    """Print the schemas of the operators that FILE calls, or of all of torch's.

    No torch is needed. An attribute that a file leaves out has its default.
    """
    found = operator_table(read_ir(file) if file else None)
    if as_json:
        console.write_json(found)
        return
    for name, known in found.items():
        console.result(known["schema"] if known else f"{name} (nobody recorded its schema)")
