"""``torch-ir cut``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torch_ir.cli import console
from torch_ir.cli.call import Invocation, call_options
from torch_ir.cli.files import (
    format_of,
    note_left_weights,
    read_ir,
    require_other_place,
    write_ir,
)
from torch_ir.cli.options import OUTPUT, TENSORS_OUTPUT, require_torch
from torch_ir.cli.progress import progress
from torch_ir.errors import counted
from torch_ir.ir.functions import written_out

if TYPE_CHECKING:
    from torch_ir.ir import IR


def _names(context: click.Context, _: click.Parameter, value: str | None) -> tuple[str, ...]:
    return tuple([name.strip().lstrip("%") for name in (value or "").split(",") if name.strip()])


@click.command
@click.argument("file")
@click.option(
    "--from", "cut_off", callback=_names, metavar="VALUES", help="Values that become inputs."
)
@click.option(
    "--outputs", callback=_names, metavar="VALUES", help="Values to return [FILE's own]."
)
@click.option("--nodes", callback=_names, metavar="NODES", help="Exactly these nodes instead.")
@click.option(
    "--around", type=click.IntRange(min=0), metavar="N", help="With --nodes: N steps around them."
)
@click.option(
    "--stages",
    type=click.IntRange(min=1),
    metavar="N",
    help="Cut into N stages instead, and write stage0.tir, stage1.tir, ... to the folder -o.",
)
@click.option("-o", "--output", type=OUTPUT, help="Where to write the part [text to stdout].")
@click.option(
    "--record",
    type=TENSORS_OUTPUT,
    metavar="PATH",
    help="Run FILE and write the part's inputs: .safetensors or .npz.",
)
@call_options
def command(
    file: str,
    cut_off: tuple[str, ...],
    outputs: tuple[str, ...],
    nodes: tuple[str, ...],
    around: int | None,
    stages: int | None,
    output: str | None,
    record: str | None,
    **options: Any,
) -> None:
    """Cut a part out of the IR in FILE: what some values need, or exactly some nodes.

    Nodes, values and source lines keep their names. --inputs names values, as --from does; with
    --record and without --random it is the file of values that FILE runs with.

    \b
    torch-ir cut m.tir --inputs add_3 --outputs linear_9,softmax_2 -o part.tir
    torch-ir cut m.tir --nodes softmax_2 --around 2 -o part.tir
    torch-ir cut m.tir --stages 4 -o stages
    torch-ir cut m.tir --inputs add_3 -o p.tir --record p.safetensors --random
    """  # noqa: D301  # \b is a character that click reads
    from torch_ir.passes.cutting import cut, nodes_around

    if options["inputs"] and (not record or options["random"]):  # the values at which to cut
        cut_off = (*cut_off, *_names(click.get_current_context(), None, options["inputs"]))  # type: ignore[arg-type]  # the parameter is not read
        options["inputs"] = None
    if nodes and (cut_off or outputs):
        raise click.UsageError("--nodes excludes --from, --inputs and --outputs")
    if around is not None and not nodes:
        raise click.UsageError("--around needs --nodes")
    if stages:
        if nodes or cut_off or outputs or record or output is None:
            raise click.UsageError("--stages needs -o, and nothing else says where to cut")
        _write_stages(read_ir(file), stages, Path(output))
        note_left_weights(file)
        return
    if not nodes and not cut_off and not outputs:
        raise click.UsageError("give --from, --outputs, --nodes or --stages")
    kind = format_of(output, "text")
    require_other_place(file, output)
    call = Invocation(**options)
    call.check_usage()
    ir = call.read(file) if record else read_ir(file)
    if record:
        require_torch()
    wanted = nodes_around(ir, nodes, around) if around else nodes
    part = cut(ir, inputs=cut_off, outputs=outputs, nodes=wanted or None)
    if record:
        _record(call, ir, part, file, record)
    write_ir(part, output, kind)
    whole = ir if all(node.name in ir.by_name for node in part.nodes) else written_out(ir)
    console.note(f"{counted(len(part.nodes), 'node')} of {len(whole.nodes)}")
    note_left_weights(file)


def _write_stages(ir: IR, count: int, folder: Path) -> None:
    """Write the stages of a pipeline, each with its own weights, to a folder."""
    from torch_ir.passes.cutting import cut
    from torch_ir.serde.files import make_folder

    parts = cut(ir, count)
    make_folder(folder)
    for number, stage in enumerate(parts):
        write_ir(stage, str(folder / f"stage{number}.tir"), "tir")
    nodes = ", ".join(str(len(stage.nodes)) for stage in parts)
    console.note(f"{counted(count, 'stage')} of {nodes} nodes")


def _record(call: Invocation, ir: IR, part: IR, file: str, path: str) -> None:
    """Run the whole program, and write the values that the part takes."""
    from torch_ir.cli.tensors import write_tensors
    from torch_ir.debug import capture

    ir = ir if all(name in ir.value_names for name in part.input_names) else written_out(ir)
    executor, inputs = call.executor(ir, file), call.tensors(ir)
    made = [name for name in part.input_names if name in ir.producers]
    with progress("recording"):
        found = capture(executor.graph, inputs, made or ["*"])
    write_tensors({name: found.values[name] for name in part.input_names}, path)
