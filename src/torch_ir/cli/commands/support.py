"""``torch-ir support``."""

from __future__ import annotations

import click

from torch_ir.cli import console
from torch_ir.cli.files import read_ir
from torch_ir.cli.options import delegate_named, partition_options


@click.command
@click.argument("file")
@partition_options
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def command(file: str, backend: str, min_nodes: int, as_json: bool) -> None:
    """Show what of the IR in FILE a backend runs, and why not the rest.

    Nothing is run: a backend decides by operators, shapes and element types. Each line is the
    calls of one operator that fare alike.

    \b
    torch-ir support m.tir --backend my_device
    torch-ir support m.tir --backend examples/numpy_device.py:NumpyDevice --json
    """  # noqa: D301  # \b is a character that click reads
    ir = read_ir(file)
    found = delegate_named(backend)
    from torch_ir.backends import Partitioner, support

    report = support(ir, Partitioner(found, min_nodes=min_nodes))
    console.show(report, as_json)
