"""``torch-ir view``."""

from __future__ import annotations

import json
import webbrowser
from pathlib import Path

import click

from torch_ir.cli import console
from torch_ir.cli.files import STDIO, read_ir, read_report, write
from torch_ir.cli.options import OUTPUT
from torch_ir.cli.progress import progress


@click.command
@click.argument("file")
@click.option(
    "-o",
    "--output",
    type=OUTPUT,
    metavar="PATH",
    help="Where to write [the name of FILE, as .html].",
)
@click.option("--against", metavar="FILE", help="Another IR beside it, the difference marked.")
@click.option(
    "--overlay",
    "overlays",
    multiple=True,
    metavar="JSON",
    help="Color by a report: what profile, plan, cost, validate, compare, support "
    "or attribute prints with --json.",
)
@click.option("--open", "show", is_flag=True, help="Open the page in a browser.")
def command(
    file: str, output: str | None, against: str | None, overlays: tuple[str, ...], show: bool
) -> None:
    """Write a page that shows the graph of the IR in FILE.

    One file of HTML that opens offline: the module tree, the graph, every node with its source
    line; search, links and keys. Nothing in it is loaded from elsewhere.

    \b
    torch-ir view m.tir
    torch-ir view m.tir -o /tmp/m.html --open
    torch-ir profile m.tir --random --random-weights --json > time.json
    torch-ir view m.tir --overlay time.json
    torch-ir view m.tir --against lowered.tir
    torch-ir view m.tir --overlay time.json -o m.me-data.json
    """  # noqa: D301  # \b is a character that click reads
    from torch_ir.viz import view_html

    target = _own_name(file) if output is None else output
    if target.endswith(".me-data.json"):
        _write_node_data(file, target, overlays)
        return
    suffix = "" if target == STDIO else Path(target).suffix.lower()
    if suffix not in ("", ".html", ".htm"):
        raise click.UsageError(f"a page is .html, and node data .me-data.json, not {suffix}")
    other = None if against is None else read_ir(against)
    ir, reports = read_ir(file), [*map(read_report, overlays)]
    with progress("drawing"):
        page = view_html(ir, overlays=reports, against=other)
    write(page.encode(), target)
    if target == STDIO:
        return
    console.message(f"wrote {target}")
    if show:
        webbrowser.open(Path(target).absolute().as_uri())


def _write_node_data(file: str, target: str, overlays: tuple[str, ...]) -> None:
    """Write a file for each column of the reports, named after it where there are several."""
    from torch_ir.viz.bridges import node_data

    ir = read_ir(file)
    found = {k: v for each in overlays for k, v in node_data(ir, read_report(each)).items()}
    if not found:
        raise click.UsageError("give --overlay: node data are what a report says of nodes")
    for name, data in found.items():
        stem = target.removesuffix(".me-data.json")
        own = f"{stem}.{name.replace(' ', '-').replace('/', '-')}.me-data.json"
        path = own if len(found) > 1 else target
        write(json.dumps(data).encode(), path)
        console.message(f"wrote {path}")


def _own_name(file: str) -> str:
    """The name of a page beside the reader's other files; never that of a file of theirs."""
    name = "program.html" if file == STDIO else f"{Path(file).stem}.html"
    if Path(name).exists() and b'content="torch-ir' not in Path(name).read_bytes()[:1000]:
        raise click.UsageError(f"{name} is there and was not written by torch-ir; give -o PATH")
    return name
