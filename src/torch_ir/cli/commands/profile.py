"""``torch-ir profile``."""

from __future__ import annotations

import json
from typing import Any

import click

from torch_ir.cli import console
from torch_ir.cli.call import Invocation, backend_option, call_options, graph_of
from torch_ir.cli.files import write
from torch_ir.cli.options import TRACE_OUTPUT, by_option
from torch_ir.cli.progress import progress


@click.command
@click.argument("file")
@call_options
@click.option(
    "--repeat",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Number of runs to take the medians of.",
)
@by_option
@click.option(
    "--top", type=click.IntRange(min=1), metavar="N", help="Only the N rows that take longest."
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON, not the table.")
@backend_option
@click.option(
    "--chrome", type=TRACE_OUTPUT, help="Write a trace (.json) for chrome://tracing or Perfetto."
)
def command(
    file: str,
    repeat: int,
    by: str,
    top: int | None,
    as_json: bool,
    backend: str | None,
    chrome: str | None,
    **options: Any,
) -> None:
    """Run the IR in FILE and show where its time goes.

    Each node's wall time is the median over the runs. Bytes are those of its operands and results;
    FLOPs are counted by formula, and unknown where there is none. With --backend each of its
    subgraphs is a row, and torch runs the rest.

    \b
    torch-ir profile m.tir --random
    torch-ir profile m.json --weights m.safetensors --inputs x.npz --by module
    torch-ir profile m.tir --random --by node --top 10 --chrome trace.json
    torch-ir profile m.tir --random --backend onnxruntime --by node
    """  # noqa: D301  # \b is a character that click reads
    call, ir = Invocation.opened(file, options)
    from torch_ir.debug import profile

    inputs = call.tensors(ir)
    with progress("measuring"):
        if backend is None:
            graph = call.executor(ir, file).graph
        else:
            graph = graph_of(call.runner(ir, file, backend), backend)
        report = profile(graph, inputs, repeat=repeat)
    if chrome:
        write(json.dumps(report.to_chrome_trace()).encode(), chrome)
    console.show(report, as_json, lambda: report.table(by, top))
