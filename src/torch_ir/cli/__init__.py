"""The command ``torch-ir``: one module per command, loaded when it is called.

Exit status: 0 done, 1 an error (or, for check, diff, verify and validate, a finding), 2 wrong
usage, 3 (of validate and compare) nothing disagrees, but not all was compared. Results go to
stdout, all else to stderr.
"""

from __future__ import annotations

import click

from torch_ir import __version__
from torch_ir.cli import console
from torch_ir.cli.group import CONTEXT_SETTINGS, TRACEBACK, LazyGroup
from torch_ir.torch_versions import TORCH_VERSIONS

COMMANDS = {
    "extract": "Extract the IR of a model.",
    "show": "Print an IR as text.",
    "view": "Write an IR as a page that shows its graph.",
    "browse": "Walk an IR in the terminal.",
    "plot": "Draw a report: memory over time, a roofline, a treemap, errors.",
    "info": "Count operators, parameters, inputs and outputs.",
    "check": "Find everything that is not well-formed.",
    "diff": "Compare two IRs by structure.",
    "fingerprint": "Hash what IRs compute, whatever their names.",
    "cost": "Count operations and bytes of an IR without a run.",
    "cut": "Cut a part out of an IR.",
    "shard": "Share the weights of an IR between ranks: a program for each.",
    "lower": "Lower an IR to functional or core ATen, or Edge.",
    "opt": "Run passes over an IR.",
    "run": "Run an IR on inputs.",
    "profile": "Run an IR and show where its time goes.",
    "bench": "Time an IR on backends, beside torch's kernels; runtimes are verified.",
    "plan": "Plan the memory of an IR.",
    "support": "Show what of an IR a backend runs, and why not the rest.",
    "partition": "Write an IR with a function for each part that a backend takes.",
    "verify": "Compare an IR with the model that it was extracted from.",
    "validate": "Compare every node with its meaning and with eager PyTorch.",
    "conform": "Try a backend with many calls, and print its score card.",
    "attribute": "Show which quantized values cost the outputs their accuracy.",
    "fuzz": "Try a backend with random programs, and make small what it gets wrong.",
    "cases": "Collect every distinct call of IRs as test cases.",
    "bisect": "Find the pass that breaks a program.",
    "reduce": "Make a failing program small.",
    "compare": "Compare a backend, a file or a lowered form with the meaning, node by node.",
    "convert": "Write an IR in another format.",
    "operators": "Print schemas and defaults of operators.",
    "extensions": "List what installed packages add.",
    "completion": "Print the line that turns on shell completion.",
}


START = """\
torch-ir: PyTorch programs as values to read, look at, check, lower and run

  torch-ir extract net.py:build -o net.tir   make a program of a model
  torch-ir show net.tir                      read it
  torch-ir view net.tir                      look at it in a browser
  torch-ir check net.tir                     find what is not well-formed
  torch-ir run net.tir --random --random-weights

torch-ir --help lists all commands, torch-ir show --help explains one."""


def print_version(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    """Print the versions of torch-ir and of torch, which is not imported, and end the command."""
    del parameter
    if not wanted:
        return
    from importlib import metadata

    try:
        torch = metadata.version("torch")
    except metadata.PackageNotFoundError:
        torch = "not installed"
    console.result(
        f"torch-ir {__version__} (torch {torch}; tested with {', '.join(TORCH_VERSIONS)})"
    )
    context.exit()


@click.group(
    name="torch-ir",
    cls=LazyGroup,
    invoke_without_command=True,
    commands_by_name=COMMANDS,
    params=[TRACEBACK],
    context_settings=CONTEXT_SETTINGS,
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=print_version,
    help="Show the versions of torch-ir and torch, and exit.",
)
@click.pass_context
def main(context: click.Context) -> None:
    """Extract, inspect, check, run and verify PyTorch programs.

    A file is an IR as JSON, as an archive (.tir) or as text; `-` is standard input or output.
    Code of yours is executed by `extract` and `verify`, and by `support` for a backend of yours.
    """
    if context.invoked_subcommand is None:
        console.result(START)


__all__ = ["main"]
