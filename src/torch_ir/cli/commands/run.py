"""``torch-ir run``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from torch_ir.cli import console
from torch_ir.cli.call import Invocation, backend_option, call_options, graph_of
from torch_ir.cli.options import CAPTURE_OUTPUT, TENSORS_OUTPUT, require_torch
from torch_ir.cli.progress import progress
from torch_ir.cli.values import names_of_outputs, summary_table

if TYPE_CHECKING:
    import torch

    from torch_ir.executor import IRExecutor
    from torch_ir.ir import IR


@click.command
@click.argument("file")
@call_options
@click.option("-o", "--output", type=TENSORS_OUTPUT, help="Write to a .safetensors or .npz file.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
@click.option(
    "--capture",
    type=CAPTURE_OUTPUT,
    metavar="PATH",
    help="Write the inputs and every value on the way to a .safetensors file.",
)
@click.option(
    "--capture-only",
    "patterns",
    multiple=True,
    metavar="PATTERN",
    help="Capture only values whose name, node or operator matches, such as 'aten.linear.*'; "
    "may be repeated.",
)
@click.option(
    "--reference",
    is_flag=True,
    help="Run the denotation, in NumPy: no torch is needed. The IR is in core ATen. Random "
    "inputs, weights and draws are other numbers than torch's.",
)
@backend_option
def command(
    file: str,
    output: str | None,
    as_json: bool,
    capture: str | None,
    patterns: tuple[str, ...],
    reference: bool,
    backend: str | None,
    **options: Any,
) -> None:
    """Run the IR in FILE and summarize what comes out.

    \b
    torch-ir run m.json --weights m.safetensors --inputs x.npz -o y.npz
    torch-ir run m.json --random-weights --random --seed 1
    torch-ir run m.tir --random --capture golden.safetensors
    torch-ir run m.tir --reference --random
    torch-ir run m.tir --random --backend openvino -o y.npz
    """  # noqa: D301  # \b is a character that click reads
    call = Invocation(**options)
    _check_usage(call, capture, patterns, reference)
    if backend and (reference or capture):
        raise click.UsageError("--backend excludes --reference and --capture")
    ir = call.read(file)
    if not reference:
        require_torch()
    if reference:
        facts = _run_reference(ir, call, file, output)
    else:
        facts = _run_compiled(ir, call, file, output, capture, patterns, backend)
    console.show(facts, as_json, lambda: summary_table(facts))


def _check_usage(
    call: Invocation,
    capture: str | None,
    patterns: tuple[str, ...],
    reference: bool,
) -> None:
    call.check_usage()
    if patterns and not capture:
        raise click.UsageError("--capture-only is for --capture, which says where to")
    if capture and reference:
        raise click.UsageError("--capture and --reference exclude each other")


def _run_reference(
    ir: IR, call: Invocation, file: str, output: str | None
) -> list[dict[str, Any]]:
    from torch_ir.cli.reference import run_reference, summaries_of_arrays, write_arrays

    results = run_reference(
        ir,
        call.inputs,
        call.weights_of(file),
        call.constants,
        random_weights=call.random_weights,
        seed=call.seed,
        symbols=dict(call.symbols),
    )
    if output:
        write_arrays(results, output)
    return summaries_of_arrays(results)


def _run_compiled(
    ir: IR,
    call: Invocation,
    file: str,
    output: str | None,
    capture: str | None,
    patterns: tuple[str, ...],
    backend: str | None,
) -> list[dict[str, Any]]:
    from torch_ir.cli.tensors import summaries, write_tensors
    from torch_ir.ir.functions import written_out

    inputs = call.tensors(ir)
    with progress("running"):
        if backend is not None:
            graph = graph_of(call.runner(ir, file, backend), backend)
            results = graph.run(list(inputs), dict(call.symbols))[0]
        else:
            executor = call.executor(written_out(ir) if capture else ir, file)
            executor.reset()  # compiles it
            results = (
                _captured(executor, inputs, capture, patterns)
                if capture
                else executor.execute(inputs)
            )
    named = dict(zip(names_of_outputs(ir), results, strict=True))
    if output:
        write_tensors(named, output)
    return summaries(named)


def _captured(
    executor: IRExecutor,
    inputs: tuple[torch.Tensor, ...],
    path: str,
    patterns: tuple[str, ...],
) -> tuple[torch.Tensor, ...]:
    """The results; the values on the way go to a file."""
    from torch_ir.debug import capture

    captured = capture(executor.graph, inputs, patterns)
    captured.save(path)
    return captured.outputs
