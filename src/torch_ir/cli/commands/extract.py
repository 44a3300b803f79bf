"""``torch-ir extract``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from torch_ir.cli import console
from torch_ir.cli.dynamic import DynamicSpec, dynamic_of, dynamic_shapes
from torch_ir.cli.files import FORMATS, OR_TO, STDIO, format_of, write_ir
from torch_ir.cli.options import INPUT, OUTPUT, input_option, require_torch, target_place
from torch_ir.cli.progress import held_back, progress
from torch_ir.errors import counted
from torch_ir.steps import uncollected

if TYPE_CHECKING:
    from torch_ir.cli.values import InputSpec
    from torch_ir.ir import IR


@click.command
@click.argument("target", required=False, is_eager=True, callback=target_place)
@click.option(
    "--transformers",
    "config",
    type=INPUT,
    metavar="CONFIG",
    help="Build the model of a config.json, or of a folder with one, without weights.",
)
@click.option(
    "--tokens", type=click.IntRange(1), metavar="N", help="The program takes input_ids i64[1, N]."
)
@click.option(
    "--decode",
    type=click.IntRange(1),
    metavar="M",
    help="The program takes input_ids i64[1, 1] and position i64[1], one token a call whatever "
    "--tokens says, and has a static cache of M positions as its state.",
)
@click.option("--dtype", help="Type of the parameters [that of CONFIG, else float32].")
@click.option(
    "--regions",
    metavar="auto|PATHS",
    help="Trace layers that do the same once: all, or modules by path, separated by commas.",
)
@input_option
@click.option(
    "--dynamic",
    "dynamic",
    type=dynamic_of,
    multiple=True,
    metavar="INPUT:DIM=NAME[:LOW..HIGH]",
    help="A dimension that may vary, such as x:0=batch:2..64: dimension 0 of the argument x of "
    "forward. Dimensions of one NAME have one size; may be repeated.",
)
@click.option("-o", "--output", type=OUTPUT, help="Where to write [stdout, as text].")
@click.option("--to", type=click.Choice(FORMATS), help="Format [as the name of the output says].")
@click.option("--meta", is_flag=True, help="Build the model on the meta device, without memory.")
@click.option("--train", is_flag=True, help="Extract in training mode, not in eval mode.")
@click.option("--name", help="Name of the model in the IR [its class].")
@click.option("--trust", is_flag=True, help="Let torch unpickle what a .pt2 file holds.")
def command(
    target: str | None,
    config: str | None,
    tokens: int | None,
    decode: int | None,
    dtype: str | None,
    regions: str | None,
    inputs: tuple[InputSpec, ...],
    dynamic: tuple[DynamicSpec, ...],
    output: str | None,
    to: str | None,
    meta: bool,
    train: bool,
    name: str | None,
    trust: bool,
) -> None:
    """Extract the IR of the model that TARGET names.

    TARGET is package.module:callable, path/to/file.py:callable, or a .pt2 file. The callable is a
    torch.nn.Module class, or a function without arguments that returns a module, (module, inputs)
    or (module, inputs, kwargs). It is executed, as is the code that it imports.

    \b
    torch-ir extract torchvision.models:resnet18 --input 1x3x224x224 --meta
    torch-ir extract model.py:build -o model.tir
    torch-ir extract model.py:Net --input 2x8 --dynamic x:0=batch:2..64 -o n.tir
    torch-ir extract program.pt2 --trust
    torch-ir extract --transformers config.json --tokens 128 -o model.tir
    torch-ir extract --transformers config.json --decode 4096 -o decode.tir
    """  # noqa: D301  # \b is a character that click reads
    if (target is None) == (config is None):
        raise click.UsageError("give a TARGET or --transformers CONFIG")
    sizes = tokens or decode
    if (config is None) != (sizes is None) or (config is None and dtype is not None):
        raise click.UsageError(
            "--transformers needs --tokens or --decode; these and --dtype are for it"
        )
    if dynamic and target is not None and target.endswith(".pt2"):
        raise click.UsageError("--dynamic is for a model; a .pt2 file has its dimensions")
    kind = to or format_of(output, "json" if output == STDIO else "text", advice=OR_TO)
    if target and target.endswith(".pt2"):
        INPUT.check(target)
    require_torch()
    wanted: Any = {"regions": regions if regions in (None, "auto") else regions.split(",")}
    wanted |= {} if name is None else {"model_name": name}
    if target is None:
        ir = _from_config(str(config), 1 if decode else tokens or 1, decode, dtype, wanted)
    elif target.endswith(".pt2"):
        ir = _from_program(target, name, trust)
    else:
        ir = _from_code(target, inputs, dynamic, wanted, meta=meta, train=train)
    write_ir(ir, output, kind)
    if output not in (None, STDIO):
        nodes, weights = counted(len(ir.nodes), "node"), counted(len(ir.weights), "weight")
        console.note(f"{output}: {nodes}, {weights} by name")


def _from_program(path: str, name: str | None, trust: bool) -> IR:
    from torch_ir.frontend import extract_ir

    with progress(f"reading {path}"):
        return extract_ir(path, model_name=name, trust=trust)


def _from_config(
    config: str, tokens: int, decode: int | None, dtype: str | None, options: dict[str, Any]
) -> IR:
    import torch

    with uncollected():  # imports of libraries above all
        from torch_ir.frontend import extract_ir
        from torch_ir.frontend.models.transformers import transformers_model

        with progress(f"building {config}"), held_back():
            model = transformers_model(config, dtype=dtype, decode=decode)
        shapes = [(1, tokens)] if decode is None else [(1, tokens), (1,)]
        given = tuple([torch.zeros(shape, dtype=torch.long, device="meta") for shape in shapes])
        with progress(f"extracting {config}"), held_back():
            return extract_ir(model, given, **options)


def _from_code(
    target: str,
    inputs: tuple[InputSpec, ...],
    dynamic: tuple[DynamicSpec, ...],
    options: dict[str, Any],
    *,
    meta: bool,
    train: bool,
) -> IR:
    from torch_ir.cli.user_model import prepared
    from torch_ir.frontend import extract_ir

    with progress(f"building {target}"):
        built = prepared(target, inputs, meta=meta, seed=0)
        built.model.train(train)
    shapes = dynamic_shapes(dynamic, built.model, built.args, built.kwargs)
    with progress(f"extracting {target}"), held_back():
        kwargs = dict(built.kwargs) or None
        return extract_ir(built.model, built.args, kwargs=kwargs, dynamic_shapes=shapes, **options)
