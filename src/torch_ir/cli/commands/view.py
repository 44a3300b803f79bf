"""``torch-ir view``."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import click

from torch_ir.cli import console
from torch_ir.cli.files import STDIO, read_ir, read_report, write
from torch_ir.cli.options import OUTPUT


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
    help="Color by a report: what profile, plan, validate or support prints with --json.",
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
    """  # noqa: D301  # \b is a character that click reads
    from torch_ir.viz import view_html

    target = _own_name(file) if output is None else output
    other = None if against is None else read_ir(against)
    page = view_html(read_ir(file), overlays=[*map(read_report, overlays)], against=other)
    write(page.encode(), target)
    if target == STDIO:
        return
    console.message(f"wrote {target}")
    if show:
        webbrowser.open(Path(target).absolute().as_uri())


def _own_name(file: str) -> str:
    """The name of a page beside the reader's other files; never that of a file of theirs."""
    name = "program.html" if file == STDIO else f"{Path(file).stem}.html"
    if Path(name).exists() and b'content="torch-ir' not in Path(name).read_bytes()[:1000]:
        raise click.UsageError(f"{name} is there and was not written by torch-ir; give -o PATH")
    return name
