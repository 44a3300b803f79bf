"""``torch-ir bench``."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from torch_ir.cli import console
from torch_ir.cli.call import Invocation, call_options
from torch_ir.cli.options import BACKENDS, SECONDS, pass_list, require_torch
from torch_ir.cli.progress import held_back, progress
from torch_ir.cli.values import symbol_values
from torch_ir.errors import TorchIRError
from torch_ir.tables import table

if TYPE_CHECKING:
    from torch_ir.backends.native.verdict import Verdict


@click.command
@click.argument("file")
@call_options
@click.option(
    "--backends",
    type=BACKENDS,
    metavar="NAMES",
    default="all",
    show_default=True,
    help="Names with commas between; all is every runtime that is installed.",
)
@click.option(
    "--seconds",
    type=SECONDS,
    default=60.0,
    show_default=True,
    help="Time for each to be compiled.",
)
@click.option("--details", is_flag=True, help="Print the verdict on each delegate.")
def command(file: str, backends: str, seconds: float, details: bool, **options: Any) -> None:
    """Time the IR in FILE on backends, each beside torch's kernels, in turns.

    Delegates of runtimes are verified before they are used; a backend of yours is not. Times are
    the least of many calls.

    \b
    torch-ir bench m.tir --random
    torch-ir bench m.tir --random --backends onnxruntime,openvino --details
    """  # noqa: D301  # \b is a character that click reads
    call = Invocation(**options)
    call.check_usage()
    call.refuse_constants("--backends")
    ir = call.read(file)
    require_torch()
    if ir.signature is not None:  # the classes of its containers may be registered nowhere here
        ir = ir.replace(signature=ir.signature.flat())

    from torch_ir.backends import compile as compile_program
    from torch_ir.backends.native.auto import TimedCall, installed_runtimes

    inputs = call.tensors(ir)
    weights = call.weight_tensors(ir, file)
    timed = TimedCall(ir, inputs, {**symbol_values(ir, dict(call.symbols))})
    names = installed_runtimes() if backends == "all" else pass_list(backends)
    aten = compile_program(ir, weights)
    rows = [("backend", "us", "of torch", "nodes", "")]
    reports: list[str] = []
    for name in names:
        try:
            with progress(f"compiling for {name}"), held_back():
                run: Any = compile_program(ir, weights, backend=name, seconds=seconds)
            us, other = timed.times((run, aten))
        except TorchIRError as error:
            rows.append((name, "", "", "", error.message))
            continue
        found = getattr(run, "assignment", None)
        taken = "" if found is None else f"{len(found.takers)}/{len(found.nodes)}"
        worst = _worst(run.verdicts) if hasattr(run, "verdicts") else ""
        if found is not None and not hasattr(run, "verdicts"):
            worst = "not verified: torch-ir compare is for that"
        rows.append((name, f"{us:.1f}", f"{us / other:.2f}", taken, worst))
        reports += [run.report()] if details and hasattr(run, "report") else []
    console.result("\n\n".join([table(rows), *reports]))


def _worst(verdicts: Iterable[Verdict]) -> str:
    """The greatest part of what is allowed by which a delegate that is used is off."""
    parts = [found.part for found in verdicts if found.used and not math.isnan(found.part)]
    return f"worst part {max(parts):.2g}" if parts else ""
