"""``torch-ir run``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from torch_ir.cli.files import STDIO, has_weights, read_ir, write_json
from torch_ir.cli.options import require_torch
from torch_ir.cli.progress import progress
from torch_ir.cli.values import names_of_outputs, summary_table
from torch_ir.errors import MissingWeightsError

if TYPE_CHECKING:
    import torch

    from torch_ir.ir import IR


def symbol_of(value: str) -> tuple[str, int]:
    """``NAME=VALUE``, taken apart.

    Raises:
        BadParameter: It has another form.
    """  # \b is a character that click reads
    name, _, size = value.partition("=")
    if not name or not size.isdecimal():
        raise click.BadParameter(f"{value!r} is not NAME=VALUE, such as s0=16")
    return name, int(size)


@click.command
@click.argument("file")
@click.option("--inputs", metavar="PATH", help="Inputs by name, from .safetensors or .npz.")
@click.option("--random", "random", is_flag=True, help="Random inputs; integers are 0 or 1.")
@click.option(
    "--symbol",
    "symbols",
    type=symbol_of,
    multiple=True,
    metavar="NAME=VALUE",
    help="Size of a symbolic dimension, for --random [2]; may be repeated.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of random numbers.")
@click.option(
    "--weights", metavar="PATH", help="Weights, from .safetensors, .pt, .pt2, .tir, ... [FILE]."
)
@click.option("--random-weights", is_flag=True, help="Random weights, for a quick try.")
@click.option(
    "--constants",
    metavar="PATH",
    help="Values that no state_dict has, by key, from .safetensors or .npz.",
)
@click.option("-o", "--output", metavar="PATH", help="Write to a .safetensors or .npz file.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
@click.option("--trust", is_flag=True, help="Let torch unpickle what a .pt2 weights file holds.")
@click.option(
    "--reference",
    is_flag=True,
    help="Run the denotation, in NumPy: no torch is needed. The IR is in core ATen.",
)
def command(
    file: str,
    inputs: str | None,
    random: bool,
    symbols: tuple[tuple[str, int], ...],
    seed: int,
    weights: str | None,
    random_weights: bool,
    constants: str | None,
    output: str | None,
    as_json: bool,
    trust: bool,
    reference: bool,
) -> None:
    """Run the IR in FILE and summarise what comes out.

    \b
    torch-ir run m.json --weights m.safetensors --inputs x.npz -o y.npz
    torch-ir run m.json --random-weights --random --seed 1
    torch-ir run m.tir --reference --random
    """  # noqa: D301  # \b is a character that click reads
    _check_usage(inputs, random, weights, random_weights, output)
    if not reference:
        require_torch()
    ir = read_ir(file)
    _require_inputs(ir, inputs, random)
    if weights is None and not random_weights and file != STDIO and has_weights(file):
        weights = file
    if reference:
        facts = _run_reference(ir, output, inputs, weights, constants)
    else:
        facts = _run_compiled(ir, output, inputs, weights, constants)
    if as_json:
        write_json(facts)
    else:
        click.echo(summary_table(facts))


def _run_reference(
    ir: IR, output: str | None, inputs: str | None, weights: str | None, constants: str | None
) -> list[dict[str, Any]]:
    from torch_ir.cli.reference import run_reference, summaries_of_arrays, write_arrays

    options = click.get_current_context().params
    results = run_reference(
        ir,
        inputs,
        weights,
        constants,
        random_weights=options["random_weights"],
        seed=options["seed"],
        symbols=dict(options["symbols"]),
    )
    if output:
        write_arrays(results, output)
    return summaries_of_arrays(results)


def _run_compiled(
    ir: IR, output: str | None, inputs: str | None, weights: str | None, constants: str | None
) -> list[dict[str, Any]]:
    from torch_ir.cli.tensors import random_inputs, read_inputs, summaries, write_tensors

    options = click.get_current_context().params
    seed: int = options["seed"]
    tensors = (
        read_inputs(ir, inputs) if inputs else random_inputs(ir, seed, dict(options["symbols"]))
    )
    results = _run(ir, tensors, _weights(ir, weights, options), constants)
    if output:
        write_tensors(results, output)
    return summaries(results)


def _check_usage(
    inputs: str | None, random: bool, weights: str | None, random_weights: bool, output: str | None
) -> None:
    if inputs and random:
        raise click.UsageError("--inputs and --random exclude each other")
    if weights and random_weights:
        raise click.UsageError("--weights and --random-weights exclude each other")
    if output and not output.endswith((".npz", ".safetensors")):
        raise click.UsageError(f"the name {output!r} ends neither in .safetensors nor in .npz")


def _require_inputs(ir: IR, path: str | None, random: bool) -> None:
    if ir.graph_inputs and not path and not random:
        names = ", ".join(str(meta) for meta in ir.graph_inputs)
        raise click.UsageError(f"give --inputs or --random; the inputs are {names}")


def _weights(ir: IR, path: str | None, options: dict[str, Any]) -> Any:
    """The weights asked for; None where there are none."""
    from torch_ir.cli.tensors import random_weights
    from torch_ir.weights import load_weights

    if options["random_weights"]:
        return random_weights(ir, options["seed"])
    return None if path is None else load_weights(path, trust=options["trust"])


def _run(
    ir: IR, inputs: list[torch.Tensor], weights: Any, constants: str | None
) -> dict[str, torch.Tensor]:
    from torch_ir.cli.tensors import read_tensors
    from torch_ir.executor import IRExecutor

    values = read_tensors(constants) if constants else None
    try:
        with progress("running"):
            results = IRExecutor(ir, weights, values).execute(tuple(inputs))
    except MissingWeightsError as error:
        raise MissingWeightsError(
            error.message, remedy="Give --weights PATH, or --random-weights for a quick try."
        ) from None
    return dict(zip(names_of_outputs(ir), results, strict=True))
