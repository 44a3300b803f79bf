"""``torch-ir convert``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from torch_ir.cli import console
from torch_ir.cli.files import (
    FORMATS,
    OR_TO,
    STDIO,
    format_of,
    has_weights,
    read_ir,
    require_other_place,
    write,
    write_ir,
)
from torch_ir.cli.options import INPUT, OUTPUT, require_torch
from torch_ir.errors import did_you_mean
from torch_ir.ir import IR, Constant
from torch_ir.ir.builder import with_weights_as_inputs
from torch_ir.ir.edit import with_defaults
from torch_ir.viz.viewers import VIEWERS

PROGRAMS = ("pt2", "onnx")
"""Formats of other tools, which torch writes."""


def _known_format(_: click.Context, __: click.Parameter, name: str | None) -> str | None:
    known = (*FORMATS, *PROGRAMS, *VIEWERS.names())
    if name is not None and name not in known:
        hint = did_you_mean(name, known) or f"They are {', '.join(known)}."
        raise click.BadParameter(f"there is no format {name!r}. {hint}")
    return name


@click.command
@click.argument("file")
@click.argument("output", required=False, type=OUTPUT)
@click.option("-o", "--output", "output_option", type=OUTPUT, help="Where to write [stdout].")
@click.option(
    "--to", metavar="FORMAT", callback=_known_format, help="Format [as the name of OUTPUT says]."
)
@click.option("--weights", type=INPUT, metavar="PATH", help="Weights for .pt2 and .onnx.")
@click.option("--defaults", is_flag=True, help="Write out attributes that have their default.")
def command(
    file: str,
    output: str | None,
    output_option: str | None,
    to: str | None,
    weights: str | None,
    defaults: bool,
) -> None:
    """Write the IR in FILE to OUTPUT in another format.

    JSON (.json) and archives (.tir) hold everything. Text (.ir, .txt) names large constants by
    their hash only. Pages and diagrams (.html, .mmd, .dot, and .me.json for
    Model Explorer) are for looking at, as are those that packages add. Other tools
    read an exported program of torch (.pt2) and ONNX (.onnx), with the weights of FILE or of
    --weights; without any, the program takes its weights as arguments.
    """
    if output is not None and output_option is not None:
        raise click.UsageError("the output is given twice")
    target = output_option if output is None else output
    if target is None and to is None:
        raise click.UsageError("give a file to write, or --to and it goes to stdout")
    suffix = "" if target is None else Path(target).suffix.lower().lstrip(".")
    program = to or suffix
    if program in PROGRAMS:
        write(_program(read_ir(file), program, _weight_file(file, weights)), target)
        return
    if weights is not None:
        raise click.UsageError("--weights is for .pt2 and .onnx")
    kind = to or format_of(target, "json", others=[f".{name}" for name in PROGRAMS], advice=OR_TO)
    if kind != "tir":
        require_other_place(file, target)
    ir = with_defaults(read_ir(file)) if defaults else read_ir(file)
    write_ir(ir, target, kind, _weights(file, kind))


def _weight_file(file: str, weights: str | None) -> str | None:
    is_own = weights is None and file != STDIO and has_weights(file)
    return file if is_own else weights


def _program(ir: IR, kind: str, weights: str | None) -> bytes:
    """The bytes of a program that other tools read."""
    require_torch()
    from torch_ir.backends.torch.exported_program import pt2_bytes, to_exported_program
    from torch_ir.weights import load_weights

    if ir.weights and weights is None:
        console.note("no weights are given: the program takes them as arguments")
        ir = with_weights_as_inputs(ir)
    to_bytes = pt2_bytes
    if kind == "onnx":
        from torch_ir.backends.runtimes.onnx_model import onnx_bytes, plain_for_onnx

        ir, notes = plain_for_onnx(ir)
        for text in notes:
            console.note(text)
        to_bytes = onnx_bytes
    return to_bytes(to_exported_program(ir, {} if weights is None else load_weights(weights)))


def _weights(file: str, kind: str) -> Mapping[str, Constant] | None:
    """The weights in an archive, if they can go along."""
    if not has_weights(file):
        return None
    if kind != "tir":
        console.note(f"the weights in {file} are left out; only an archive holds weights")
        return None
    from torch_ir.serde import read_archive_weights

    return read_archive_weights(file)
