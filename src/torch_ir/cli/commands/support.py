"""``torch-ir support``."""

from __future__ import annotations

import click

from torch_ir.cli import console
from torch_ir.cli.files import read_ir


@click.command
@click.argument("file")
@click.option(
    "--backend",
    required=True,
    metavar="NAME",
    help="A registered backend, or package.module:NAME or file.py:NAME of one.",
)
@click.option(
    "--min-nodes",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Leave smaller subgraphs to torch.",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def command(file: str, backend: str, min_nodes: int, as_json: bool) -> None:
    """Show what of the IR in FILE a backend runs, and why not the rest.

    Nothing is run: a backend decides by operators, shapes and element types. Each line is the
    calls of one operator that fare alike.

    \b
    torch-ir support m.tir --backend my_device
    torch-ir support m.tir --backend examples/numpy_device.py:NumpyDevice --json
    """  # noqa: D301  # \b is a character that click reads
    from torch_ir.backends import Partitioner, support
    from torch_ir.backends.support_report import delegate_backend, require_delegate

    ir = read_ir(file)
    if ":" in backend:
        from torch_ir.cli.options import require_torch

        require_torch()
        from torch_ir.cli.user_code import import_object

        found = require_delegate(import_object(backend), backend)
    else:
        found = delegate_backend(backend)
    report = support(ir, Partitioner(found, min_nodes=min_nodes))
    if as_json:
        console.write_json(report.to_dict())
    else:
        console.result(str(report))
