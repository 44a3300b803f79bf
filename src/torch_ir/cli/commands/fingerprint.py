"""``torch-ir fingerprint``."""

from __future__ import annotations

import click

from torch_ir.cli import console
from torch_ir.cli.files import read_ir


@click.command
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--no-shapes", is_flag=True, help="Leave sizes out.")
@click.option("--no-dtypes", is_flag=True, help="Leave dtypes out.")
@click.option("--no-keys", is_flag=True, help="Take a weight for its type, not for its key.")
@click.option("--regions", is_flag=True, help="Print each function and each module as well.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(
    files: tuple[str, ...],
    no_shapes: bool,
    no_dtypes: bool,
    no_keys: bool,
    regions: bool,
    as_json: bool,
) -> None:
    """Print a hash of the program in each FILE, equal for programs equal but for names and order.

    \b
    torch-ir fingerprint a.tir b.tir
    torch-ir fingerprint m.tir --regions --no-keys | sort      # equal layers
    """  # noqa: D301  # \b is a character that click reads
    from torch_ir.ir.analysis.fingerprints import fingerprint

    wanted = {"shapes": not no_shapes, "dtypes": not no_dtypes, "keys": not no_keys}
    found: dict[str, str] = {}
    for file in files:
        ir = read_ir(file)
        found[file] = fingerprint(ir, **wanted)
        if regions:
            from torch_ir.passes.cutting import module_fingerprints

            parts = module_fingerprints(ir, **wanted)
            found |= {f"{file}:{name}": made for name, made in parts.items()}
    lines = [f"{made}  {name}" for name, made in found.items()]
    console.show(found, as_json, lambda: "\n".join(lines))
