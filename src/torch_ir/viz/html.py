"""An IR as an HTML table that folds by module, for notebooks."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from itertools import groupby

from torch_ir.arguments import public
from torch_ir.errors import counted, printable
from torch_ir.ir import IR, OpNode, TensorMeta
from torch_ir.ir.node import source_place
from torch_ir.tables import text_html
from torch_ir.viz.fold import module_path
from torch_ir.viz.outline_text import outline_text

MAX_TABLE = 200
DEEPEST_LEVEL = 16  # deeper modules are shown together, so that no input can exhaust the stack
STYLE = "text-align:left;font-family:monospace;white-space:nowrap"
HEADINGS = ("result", "operator", "inputs", "attributes", "source")


def escape(text: str) -> str:
    r"""Escape text for HTML, and what does not print in it.

    Example:
        >>> print(escape("<b>\u202e"))
        &lt;b&gt;\u202e
    """
    return html.escape(printable(text))


@public
def ir_html(ir: IR) -> str:
    """Render a table of the nodes in program order; sections open and close by module.

    A program of more than 200 nodes is an outline of its modules, with equal layers once. Every
    text from the IR is escaped; there are no scripts and nothing is fetched.

    Example:
        >>> ir_html(IR([], [], [], [], model_name="<b>")).splitlines()[0]
        '<div><b>IR &#x27;&lt;b&gt;&#x27;</b>: 0 nodes, 0 inputs, 0 outputs, 0 weights'
    """
    counts = (
        f"{counted(len(ir.nodes), 'node')}, {counted(len(ir.graph_inputs), 'input')}, "
        f"{counted(len(ir.graph_outputs), 'output')}, {counted(len(ir.weights), 'weight')}"
    )
    if len(ir.nodes) > MAX_TABLE:
        return text_html(outline_text(ir, lines=60, width=100))
    parts = [
        f"<div><b>IR {escape(repr(ir.model_name))}</b>: {counts}",
        _values("inputs", ir.graph_inputs),
        *_section(ir.nodes, 0),
        _values("outputs", ir.graph_outputs),
        "</div>",
    ]
    return "\n".join(parts)


def _values(title: str, metas: Sequence[TensorMeta]) -> str:
    listed = ", ".join(escape(str(meta)) for meta in metas) or "none"
    return f'<div style="{STYLE}">{title}: {listed}</div>'


def _section(nodes: Sequence[OpNode], level: int) -> Iterator[str]:
    """Rows for this module's own calls, a section for each run of calls of one below it."""
    for part, run in groupby(nodes, lambda node: module_path(node)[level : level + 1]):
        inside = list(run)
        if not part or level >= DEEPEST_LEVEL:
            yield from _table(inside)
            continue
        path = ".".join(module_path(inside[0])[: level + 1])
        count = counted(len(inside), "node")
        yield f'<details style="margin-left:1em"><summary>{escape(path)}: {count}</summary>'
        yield from _section(inside, level + 1)
        yield "</details>"


def _table(nodes: Sequence[OpNode]) -> Iterator[str]:
    yield "<table><tr>" + "".join(f"<th>{heading}</th>" for heading in HEADINGS) + "</tr>"
    for node in nodes:
        yield (
            "<tr>" + "".join(f'<td style="{STYLE}">{cell}</td>' for cell in _cells(node)) + "</tr>"
        )
    yield "</table>"


def _cells(node: OpNode) -> tuple[str, ...]:
    location = node.location
    place = source_place(node)
    return (
        "<br>".join(escape(str(output)) for output in node.outputs) or escape(node.name),
        escape(node.op_type),
        escape(", ".join(f"%{meta.name}" for meta in node.inputs)),
        escape(", ".join(f"{name}={value}" for name, value in node.attrs.items())),
        f'<span title="{escape(place)}">{escape(location.code if location else "")}</span>',
    )
