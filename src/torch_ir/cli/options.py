"""Options that several commands have. Nothing here imports torch before it is needed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import click

from torch_ir.errors import OptionalDependencyError


def _input_of(value: str) -> Any:
    require_torch()
    from torch_ir.cli.tensors import input_of

    return input_of(value)


input_option = click.option(
    "--input",
    "inputs",
    multiple=True,
    type=_input_of,
    metavar="[NAME=]SHAPE[:DTYPE]",
    help="An input such as 2x3x224x224:float32, in order or by keyword; may be repeated.",
)


def require_torch() -> None:
    """Say which extra to install where torch is missing.

    Raises:
        OptionalDependencyError: It is.
    """
    if find_spec("torch") is None:
        raise OptionalDependencyError(
            "this command needs PyTorch, which is not installed",
            remedy="Install it with: pip install 'torch-ir[torch]'",
        )
