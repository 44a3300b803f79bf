"""``torch-ir show``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

import click

from torch_ir.cli import console
from torch_ir.cli.files import FORMAT_BY_SUFFIX, STDIO, read_ir, write
from torch_ir.cli.options import OUTPUT, pattern_of
from torch_ir.errors import counted
from torch_ir.ir import IR, OpNode
from torch_ir.ir.functions import written_out
from torch_ir.ir.queries import graphs
from torch_ir.passes.cutting.parts import nodes_around


def depth_of(value: Any) -> int:
    """Check that the depth asked for is 1 or more, and return it.

    Raises:
        BadParameter: It is none; a file name that the option took by its position is told as that.
    """
    try:
        depth = int(value)
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is not a depth; put --module after the file, or write --module=1"
        ) from None
    if depth < 1:
        raise click.BadParameter(f"{depth} is less than 1, the model's own children")
    return depth


@click.command
@click.argument("file")
@click.option(
    "--module",
    "fold",
    type=depth_of,
    metavar="DEPTH",
    is_flag=False,
    flag_value=1,
    help="Fold the calls of each module at this depth into one line [1].",
)
@click.option(
    "--depth",
    type=click.IntRange(min=1),
    metavar="N",
    help="Print an outline: N levels of modules, equal layers once.",
)
@click.option(
    "--grep",
    callback=pattern_of,
    metavar="PATTERN",
    help="Print the nodes whose line has this pattern, in functions too.",
)
@click.option(
    "--around", metavar="NODE", help="Print a node and those that it depends on or feeds."
)
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    metavar="N",
    help="How far --around looks along the values.",
)
@click.option(
    "--origins", is_flag=True, help="Say above each node which extracted nodes it is made of."
)
@click.option("--all", "everything", is_flag=True, help="Print all of it in a terminal too.")
@click.option("-o", "--output", type=OUTPUT, help="Write to this file instead of stdout.")
def command(
    file: str,
    fold: int | None,
    depth: int | None,
    grep: re.Pattern[str] | None,
    around: str | None,
    steps: int,
    origins: bool,
    everything: bool,
    output: str | None,
) -> None:
    """Print the IR in FILE as text.

    A program that is longer than the terminal is shown as an outline there, and whole in a pipe or
    file or with --all, where its lines are not folded: every command reads it back.

    \b
    torch-ir show m.tir --depth 3
    torch-ir show m.tir --grep 'aten.linear.*layers.7'
    torch-ir show m.tir --around linear_3
    """  # noqa: D301  # \b is a character that click reads
    from torch_ir.ir.text import ir_text

    if sum(option is not None for option in (fold, depth, grep, around)) > 1:
        raise click.UsageError("give one of --module, --depth, --grep and --around")
    if origins and (depth, grep, around) != (None, None, None):
        raise click.UsageError("--origins is for whole programs, and for --module")
    if (kind := FORMAT_BY_SUFFIX.get(Path(output or "").suffix, "text")) != "text":
        told = f"show writes text, and a file named {output!r} is read as {kind}"
        raise click.UsageError(f"{told}; torch-ir convert writes that")
    ir = read_ir(file)
    if grep is not None:
        text = "\n".join([line for line in _lines(ir.walk()) if grep.search(line)])
    elif around is not None:
        text = _around(ir, around, steps)
    elif depth is not None or _is_long(ir, fold, everything or origins, output):
        text = _outline(ir, depth)
    else:
        text = ir_text(ir, fold=fold, origins=origins)
    write(f"{text.rstrip()}\n".encode() if text else b"", output, fold=not everything)


def _is_long(ir: IR, fold: int | None, everything: bool, output: str | None) -> bool:
    """Whether a person would see the end only, of more than fits the terminal."""
    if everything or fold is not None or output not in (None, STDIO):
        return False
    return console.stdout().isatty() and len(ir.nodes) + len(ir.weights) + 4 > console.screen()[1]


def _outline(ir: IR, depth: int | None) -> str:
    from torch_ir.viz.outline_text import outline_text

    width, lines = console.screen()
    if depth is None:
        console.note(
            f"an outline of {counted(len(ir.nodes), 'node')}; --all prints them, --grep some"
        )
    return outline_text(ir, depth=depth, lines=lines - 3, width=width)


def _lines(nodes: Iterable[tuple[str, IR, OpNode]]) -> list[str]:
    from torch_ir.ir.text.printer import located_node_text, scope_of

    lines: list[str] = []
    for (path, _), run in groupby(nodes, lambda item: (item[0], id(item[1]))):
        items = list(run)
        refer = scope_of(items[0][1]).reference
        start = f"{path[:-1]}: " if path else ""
        lines += [f"{start}{located_node_text(node, refer)}" for _, _, node in items]
    return lines


def _around(ir: IR, name: str, steps: int) -> str:
    """The nodes within some steps of one, in program order, the one itself marked."""
    path, _, own = name.rpartition("/")
    graph = ir
    for part in path.split("/") if path else ():
        if part not in graph.functions:
            raise click.BadParameter(f"there is no function {part!r}", param_hint="--around")
        graph = graph.functions[part]
    if not path and own not in graph.by_name:
        known = (g for form in (ir, written_out(ir)) for _, g in graphs(form))
        graph = next((g for g in known if own in g.by_name), graph)
    middle = graph.node(own)
    nodes = [graph.by_name[near] for near in nodes_around(graph, [middle.name], steps)]
    texts = _lines(("", graph, node) for node in nodes)
    marks = ["> " if node is middle else "  " for node in nodes]
    return "\n".join([mark + text for mark, text in zip(marks, texts, strict=True)])
