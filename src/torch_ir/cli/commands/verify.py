"""``torch-ir verify``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from torch_ir.cli import console
from torch_ir.cli.call import backend_option
from torch_ir.cli.files import read_ir
from torch_ir.cli.options import (
    INPUT,
    SEED,
    TOLERANCE,
    finish,
    input_option,
    require_torch,
    target_place,
)
from torch_ir.cli.progress import progress

if TYPE_CHECKING:
    from torch_ir.cli.target import Target
    from torch_ir.cli.values import InputSpec


@click.command
@click.argument("file")
@click.argument("target", is_eager=True, callback=target_place)
@input_option
@click.option(
    "--weights", type=INPUT, metavar="PATH", help="Weights for both [what the callable made]."
)
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of random numbers.")
@click.option("--every-node", is_flag=True, help="Compare every node, and name the first wrong.")
@backend_option
@click.option("--rtol", type=TOLERANCE, default=0.0, help="Allowed relative difference [0].")
@click.option("--atol", type=TOLERANCE, default=0.0, help="Allowed absolute difference [0].")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("--trust", is_flag=True, help="Let torch unpickle what a .pt2 weights file holds.")
@click.option(
    "--allow-not-compared", is_flag=True, help="Exit status 0 though nodes were not compared."
)
def command(
    file: str,
    target: str,
    inputs: tuple[InputSpec, ...],
    weights: str | None,
    seed: int,
    every_node: bool,
    backend: str | None,
    rtol: float,
    atol: float,
    as_json: bool,
    trust: bool,
    allow_not_compared: bool,
) -> None:
    """Compare the IR in FILE with the model that TARGET names.

    Exit status 0: they are equal. 1: they differ. 3: with --every-node, eager does without some
    nodes' values, so that these were not compared. Eager runs with the fast path of
    nn.MultiheadAttention off, as it is exported; where that changes bits, the report says so.

    TARGET is as for extract, and is executed. Both run on the same inputs with the same weights.
    Random inputs and weights are made with the seed.

    \b
    torch-ir verify m.json model.py:build --every-node
    torch-ir verify m.json model.py:Net --input 1x3x8x8 --weights m.safetensors
    """  # noqa: D301  # \b is a character that click reads
    require_torch()
    ir = read_ir(file)
    with progress(f"building {target}"):
        built = _with_values(target, inputs, weights, seed, trust)
    from torch_ir.debug import verify

    with progress("comparing"):
        report = verify(
            ir,
            built.model,
            built.args,
            kwargs=built.kwargs,
            every_node=every_node,
            backend=backend,
            rtol=rtol,
            atol=atol,
        )
    console.show(report, as_json)
    finish(report.verdict, allow_not_compared)


def _with_values(
    target: str, inputs: tuple[InputSpec, ...], weights: str | None, seed: int, trust: bool
) -> Target:
    """The model with its weights, and arguments with values."""
    import torch

    from torch_ir.cli.user_model import materialized, prepared

    torch.manual_seed(seed)
    built = prepared(target, inputs, meta=False, seed=seed)
    loaded: Any = None
    if weights is not None:
        from torch_ir.weights import load_weights

        loaded = load_weights(weights, trust=trust)
    return materialized(built, target, loaded, seed)
