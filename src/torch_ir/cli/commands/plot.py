"""``torch-ir plot``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from torch_ir.cli.files import STDIO, read_report, write

KINDS = ("memory", "roofline", "treemap", "flame", "errors", "histogram")


@click.command
@click.argument("report")
@click.option("--kind", type=click.Choice(KINDS), help="Which plot [the first that REPORT has].")
@click.option(
    "-o",
    "--output",
    metavar="PATH",
    help="Where to write: a page (.html), a picture (.svg) or the data (.json) [stdout, a page].",
)
def command(report: str, kind: str | None, output: str | None) -> None:
    """Draw REPORT, what another command prints with --json.

    A plan as its arena over time, with the peak. A profile as a roofline, or a
    treemap or flame graph by module; a cost as a treemap. A validation as each
    value's part of what is allowed.

    \b
    torch-ir plan m.tir --json | torch-ir plot - -o memory.html
    torch-ir profile m.tir --random --random-weights --json > time.json
    torch-ir plot time.json --kind treemap -o time.svg
    """  # noqa: D301  # \b is a character that click reads
    from torch_ir.viz.plots import plot

    found = plot(read_report(report), kind)
    forms = {
        ".svg": lambda: found.svg,
        ".json": lambda: json.dumps(found.to_dict(), indent=1) + "\n",
    }
    suffix = "" if output in (None, STDIO) else Path(str(output)).suffix.lower()
    if suffix not in ("", ".html", *forms):
        raise click.UsageError(f"a plot is .html, .svg or .json, not {suffix}")
    write(forms.get(suffix, lambda: found.page().html)().encode(), output)
