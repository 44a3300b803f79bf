"""Options that several commands have. Nothing here imports torch before it is needed."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from torch_ir.errors import OptionalDependencyError, SerializationError, did_you_mean

F = TypeVar("F", bound=Callable[..., Any])

if TYPE_CHECKING:
    from torch_ir.debug.validation import Verdict

    _Type = click.ParamType[str, Any]
    _Choice = click.Choice[str]
else:  # older versions of click are not generic
    _Type, _Choice = click.ParamType, click.Choice


def _input_of(value: str) -> Any:
    require_torch()
    from torch_ir.cli.tensors import input_of

    return input_of(value)


def names_of_list(_: click.Context, __: click.Parameter, value: str | None) -> list[str] | None:
    """Return the names of a list with commas; None where none is given."""
    return None if value is None else [part.strip() for part in value.split(",") if part.strip()]


input_option = click.option(
    "--input",
    "inputs",
    multiple=True,
    type=_input_of,
    metavar="[NAME=]SHAPE[:DTYPE]",
    help="An input such as 2x3x224x224:float32, in order or by keyword; may be repeated.",
)


class OutputPath(_Type):
    """The name of a file that will be written: whether it can be is found before any work."""

    name = "path"

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        """Require that the folder is there and can be written to.

        Raises:
            SerializationError: It is not.
        """
        path, folder = str(value), Path(value).parent
        if path != "-" and not (folder.is_dir() and os.access(folder, os.W_OK)):
            known = errno.EACCES if folder.is_dir() else errno.ENOTDIR
            code = known if folder.exists() else errno.ENOENT
            raise SerializationError(f"{path}: cannot be written: {os.strerror(code)}")
        return path


OUTPUT = OutputPath()


class ClosestChoice(_Choice):
    """A choice whose error names the closest."""

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        """Return the choice of that name."""
        if value not in self.choices and (hint := did_you_mean(str(value), self.choices)):
            self.fail(f"there is no {str(value)!r:.60}. {hint}", param, ctx)
        return super().convert(value, param, ctx)


allow_option = click.option(
    "--allow",
    multiple=True,
    metavar="OPERATOR",
    help="Let the program call this overload, or every operator of NAMESPACE.*, although the "
    "rules refuse it: only if you trust the program; may be repeated.",
)


def partition_options(command: F) -> F:
    """Add the options that say which backend takes what: ``--backend`` and ``--min-nodes``."""
    backend = click.option(
        "--backend",
        required=True,
        metavar="NAME",
        help="A registered backend, or package.module:NAME or file.py:NAME of one.",
    )
    min_nodes = click.option(
        "--min-nodes",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help="Leave smaller subgraphs to torch.",
    )
    return backend(min_nodes(command))


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


def finish(verdict: Verdict, allow_not_compared: bool = False) -> None:
    """End a command that compares, with the exit status of its verdict.

    Args:
        verdict: What the comparison comes to.
        allow_not_compared: Whether it is enough that nothing disagrees.

    Raises:
        Exit: The status is not 0.
    """
    from torch_ir.debug.validation import EXIT_STATUS

    status = EXIT_STATUS[verdict]
    if status and not (allow_not_compared and verdict == "not compared"):
        raise click.exceptions.Exit(status)
