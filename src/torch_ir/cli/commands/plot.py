"""``torch-ir plot``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from torch_ir.cli.files import STDIO, read_report, write
from torch_ir.cli.options import require_torch

KINDS = ("memory", "roofline", "treemap", "flame", "errors", "quantization", "histogram")


@click.command
@click.argument("report")
@click.option("--kind", type=click.Choice(KINDS), help="Which plot [the first that REPORT has].")
@click.option(
    "--value",
    "values",
    multiple=True,
    metavar="PATTERN",
    help="Of captured tensors, only those of these names, such as 'relu*'; may be repeated.",
)
@click.option(
    "-o",
    "--output",
    metavar="PATH",
    help="Where to write: a page (.html), a picture (.svg), the data (.json) or Vega-Lite "
    "(.vl.json) [stdout, a page].",
)
def command(report: str, kind: str | None, values: tuple[str, ...], output: str | None) -> None:
    """Draw REPORT, what another command prints with --json, or captured tensors.

    A plan as its arena over time, with the peak. A profile as a roofline, or a
    treemap or flame graph by module; a cost as a treemap. A validation as each
    value's part of what is allowed. An attribution as what each quantized value
    costs. Tensors in a .safetensors or .npz file as histograms.

    \b
    torch-ir plan m.tir --json | torch-ir plot - -o memory.html
    torch-ir profile m.tir --random --random-weights --json > time.json
    torch-ir plot time.json --kind treemap -o time.svg
    torch-ir run m.tir --random --capture golden.safetensors
    torch-ir plot golden.safetensors --value 'relu*' -o values.html
    """  # noqa: D301  # \b is a character that click reads
    is_tensors = report.endswith((".safetensors", ".npz"))
    if values and not is_tensors:
        raise click.UsageError("--value is for tensors in a .safetensors or .npz file")
    data = _counted(report, values) if is_tensors else read_report(report)
    from torch_ir.viz.plots import plot

    found = plot(data, kind)
    is_vega = str(output).lower().endswith(".vl.json")
    forms = {
        ".svg": lambda: found.svg,
        ".json": lambda: (
            json.dumps(found.vega_lite() if is_vega else found.to_dict(), indent=1) + "\n"
        ),
    }
    suffix = "" if output in (None, STDIO) else Path(str(output)).suffix.lower()
    if suffix not in ("", ".html", *forms):
        raise click.UsageError(f"a plot is .html, .svg, .json or .vl.json, not {suffix}")
    write(forms.get(suffix, lambda: found.page().html)().encode(), output)


def _counted(path: str, values: tuple[str, ...]) -> dict[str, Any]:
    """The tensors of a file, as histograms."""
    require_torch()
    from torch_ir.cli.tensors import read_tensors
    from torch_ir.debug.capture import histograms

    return {"values": histograms(read_tensors(path), values)}
