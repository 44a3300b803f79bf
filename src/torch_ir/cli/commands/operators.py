"""``torch-ir operators``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from torch_ir.cli import console
from torch_ir.cli.files import read_ir
from torch_ir.errors import Raised, attempt
from torch_ir.ops.extensions import DENOTATIONS, OPERATORS, import_for, points_of
from torch_ir.serde.operator_table import operator_table

if TYPE_CHECKING:
    from torch_ir.infer.foreign import ForeignOperator


@click.command
@click.argument("file", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print arguments and defaults as JSON.")
def command(file: str | None, as_json: bool) -> None:
    """Print the schemas of the operators that FILE calls, or of all of torch's and of libraries.

    No torch is needed, but for the libraries that packages and --import name: what is registered
    for an operator of theirs stands behind it. What a file leaves out of a call has its default.
    """
    ir = read_ir(file) if file else None
    libraries = _libraries()
    foreign = {known.op_type: known for known in libraries}
    found = operator_table(ir, {name: known.schema for name, known in foreign.items()})
    if as_json:
        for name in found.keys() & foreign.keys():
            found[name] = {**found[name], "has": list(foreign[name].has)}
        console.write_json(found)
        return
    for name, known in found.items():
        has = f"  # {', '.join(foreign[name].has) or 'nothing more'}" if name in foreign else ""
        console.result(
            f"{known['schema']}{has}" if known else f"{name} (nobody recorded its schema)"
        )


def _libraries() -> tuple[ForeignOperator, ...]:
    """The operators of libraries, and what they mean; what cannot be loaded is told."""
    for group in (OPERATORS, DENOTATIONS):
        for namespace in points_of(group):
            fault = attempt(import_for, group, namespace)
            if isinstance(fault, Raised):
                console.note(str(fault.error))
    if "torch" not in sys.modules:
        return ()
    from torch_ir.infer.foreign import foreign_operators

    return foreign_operators()
