"""``torch-ir partition``."""

from __future__ import annotations

import click

from torch_ir.cli import console
from torch_ir.cli.files import (
    format_of,
    note_left_weights,
    read_ir,
    require_other_place,
    write_ir,
)
from torch_ir.cli.options import OUTPUT, delegate_named, partition_options
from torch_ir.errors import counted


@click.command
@click.argument("file")
@partition_options
@click.option("-o", "--output", type=OUTPUT, help="Where to write [text to stdout].")
def command(file: str, backend: str, min_nodes: int, output: str | None) -> None:
    """Write the IR in FILE with a function for each part that a backend takes.

    The program computes the same, bit for bit. The functions are named after the backend.

    \b
    torch-ir partition m.tir --backend my_device -o parts.tir
    torch-ir partition m.tir --backend my_device.py:MyDevice --min-nodes 3
    """  # noqa: D301  # \b is a character that click reads
    kind = format_of(output, "text")
    require_other_place(file, output)
    ir = read_ir(file)
    found = delegate_named(backend)
    from torch_ir.backends import Partitioner, to_backend
    from torch_ir.backends.delegate import body_of, delegates
    from torch_ir.ir.functions import written_out

    result = to_backend(ir, Partitioner(found, min_nodes=min_nodes))
    calls, whole = delegates(result), written_out(ir)
    taken = sum(len(body_of(result, call).nodes) for call in calls)
    console.note(
        f"{taken} of {counted(len(whole.nodes), 'node')} in {counted(len(calls), 'subgraph')} of "
        f"{found.name!r}"
    )
    note_left_weights(file)
    write_ir(result, output, kind)
