"""Options that several commands have. Nothing here imports torch before it is needed."""

from __future__ import annotations

import errno
import math
import os
import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from torch_ir.arguments import MAX_SECONDS
from torch_ir.cli import console
from torch_ir.cli.files import unreadable
from torch_ir.cli.values import input_of
from torch_ir.errors import SerializationError, did_you_mean
from torch_ir.lazy import without_torch
from torch_ir.user_code import FORMS, require_place

F = TypeVar("F", bound=Callable[..., Any])

if TYPE_CHECKING:
    from torch_ir.backends import DelegateBackend
    from torch_ir.debug.validation import Verdict

    _Type = click.ParamType[str, Any]
    _Choice = click.Choice[str]
else:  # older versions of click are not generic
    _Type, _Choice = click.ParamType, click.Choice


def names_of_list(_: click.Context, __: click.Parameter, value: str | None) -> list[str] | None:
    """Return the names of a list with commas; None where none is given."""
    return None if value is None else [part.strip() for part in value.split(",") if part.strip()]


def pattern_of(_: click.Context, __: click.Parameter, value: str | None) -> re.Pattern[str] | None:
    """Return the regular expression that an option gives; None where it is not given.

    Raises:
        BadParameter: It is none.
    """
    try:
        return None if value is None else re.compile(value)
    except re.error as error:
        raise click.BadParameter(f"{value!r} is no pattern: {error}") from None


input_option = click.option(
    "--input",
    "inputs",
    multiple=True,
    type=input_of,
    metavar="[NAME=]SHAPE[:DTYPE]",
    help="An input such as 2x3x224x224:float32, in order or by keyword; may be repeated.",
)


class CheckedText(_Type):
    """A text that is checked while the command line is read, before any work and without torch."""

    name = "path"

    def __init__(self, check: Callable[[str], object]) -> None:
        self.check = check

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        """Return the text, if it is not empty and the check does not raise."""
        if not value:
            self.fail("it is empty", param, ctx)
        with console.only_results():  # a package is imported for the name of its dialect
            self.check(str(value))
        return str(value)


def require_code(spec: str) -> None:
    """Require that the user's code can be where an option says; import nothing.

    Raises:
        UsageError: The option does not say where.
        TargetError: There is no such file or package.
    """
    if not all(spec.rpartition(":")):
        raise click.UsageError(f"{spec!r} does not say what to call. {FORMS}")
    require_place(spec)


def _require_writable(path: str) -> None:
    folder = Path(path).parent
    try:
        known = errno.EISDIR if Path(path).is_dir() else 0
    except (OSError, ValueError) as error:  # the name is too long
        known = getattr(error, "errno", errno.EINVAL)
    if known:
        raise SerializationError(f"{path}: cannot be written: {os.strerror(known)}")
    if path != "-" and not (folder.is_dir() and os.access(folder, os.W_OK)):
        known = errno.EACCES if folder.is_dir() else errno.ENOTDIR
        code = known if folder.exists() else errno.ENOENT
        raise SerializationError(f"{path}: cannot be written: {os.strerror(code)}")


def _named_as(*endings: str) -> Callable[[str], None]:
    """The check of a file that will be written, whose name says in which of some formats."""

    def check(path: str) -> None:
        if not path.endswith(endings):
            told = f"the name {path!r} does not end in {' or '.join(endings)}"
            raise click.UsageError(told)
        _require_writable(path)

    return check


def _require_folder(path: str) -> None:
    there = next(place for place in (Path(path), *Path(path).absolute().parents) if place.exists())
    if not there.is_dir():
        raise SerializationError(f"{path}: cannot be written: {os.strerror(errno.ENOTDIR)}")
    if not os.access(there, os.W_OK):
        raise SerializationError(f"{path}: cannot be written: {os.strerror(errno.EACCES)}")


def _require_file(path: str) -> None:
    from torch_ir.serde.files import path_text

    if not Path(path_text(path)).exists():
        raise unreadable(Path(path), FileNotFoundError(), "")


def _require_dialect(name: str) -> None:
    from torch_ir.dialects import dialect

    dialect(name)


def _require_backend(name: str) -> None:
    from torch_ir.backends.backend_registry import require_backend

    require_code(name) if ":" in name else require_backend(name)


def _require_backends(names: str) -> None:
    if not pass_list(names):
        raise click.UsageError("give one backend or more")
    for name in () if names == "all" else pass_list(names):
        _require_backend(name)


def _require_reader(name: str) -> None:
    from torch_ir.serde.storage import IR_SUFFIXES

    if name.endswith((".safetensors", *IR_SUFFIXES)):
        _require_file(name)
    elif name not in ("aten", "eager", "reference", "denotation") and not Path(name).exists():
        _require_backend(name)


def _require_passes(names: str) -> None:
    from torch_ir.passes.pass_registry import require_pass_name

    for name in pass_list(names):
        require_code(name) if ":" in name else require_pass_name(name)


def pass_list(names: str) -> list[str]:
    """Return the names in a list of passes or backends, separated by commas."""
    return [name.strip() for name in names.split(",") if name.strip()]


OUTPUT = CheckedText(_require_writable)
"""The name of a file that will be written."""
TENSORS_OUTPUT = CheckedText(_named_as(".safetensors", ".npz"))
"""The name of a file of tensors that will be written."""
TRACE_OUTPUT = CheckedText(_named_as(".json"))
"""The name of a trace that will be written."""
CARD_OUTPUT = CheckedText(_named_as(".json", ".md"))
"""The name of a score card that will be written."""
CAPTURE_OUTPUT = CheckedText(_named_as(".safetensors"))
"""The name of a file of captured values that will be written."""
DIALECT = CheckedText(_require_dialect)
"""The name of a dialect."""
SEED = click.IntRange(0, 2**63 - 1)
"""A seed of random numbers, which generators of PyTorch and of Python take."""
FOLDER = CheckedText(_require_folder)
"""The name of a folder that will be made or filled."""
INPUT = CheckedText(_require_file)
"""The name of a file or folder that will be read."""
BACKEND = CheckedText(_require_backend)
"""A backend: its name, ``package.module:NAME`` or ``file.py:NAME``."""
BACKENDS = CheckedText(_require_backends)
"""Backends with commas between, or ``all``."""
PASSES = CheckedText(_require_passes)
"""Names of passes, in order, separated by commas."""
READER = CheckedText(_require_reader)
"""What gives values to compare: a backend, a way to run, or a file."""


class Amount(click.FloatRange):
    """A number of a range, in which nan is not, other than in click's ranges."""

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """Return the number."""
        found: float = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"{value!r} is not a number", param, ctx)
        return found


SECONDS = Amount(0, MAX_SECONDS)
"""A limit of time."""
TOLERANCE = Amount(0)
"""How large a difference may be."""


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


by_option = click.option(
    "--by",
    type=click.Choice(["node", "operator", "module"]),
    default="operator",
    show_default=True,
    help="What a row of the table is.",
)
"""The groups of a report."""


def partition_options(command: F) -> F:
    """Add the options that say which backend takes what: ``--backend`` and ``--min-nodes``."""
    backend = click.option(
        "--backend",
        required=True,
        type=BACKEND,
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
        raise without_torch("this command")


def target_place(_: click.Context, __: click.Parameter, target: str | None) -> str | None:
    """Require that what a TARGET names can be there, before torch is imported.

    Raises:
        UsageError: It names nothing to call.
        TargetError: There is no such file or package.
    """
    if target and not target.endswith(".pt2"):
        require_code(target)
    return target


def delegate_named(name: str) -> DelegateBackend:
    """Return the backend of a name or a place, which has to take parts of programs.

    Raises:
        OptionalDependencyError: There is no torch.
        TargetError: There is nothing in that place, or importing it fails.
        ExecutionError: There is no such backend, or it takes whole programs.
    """
    require_torch()
    from torch_ir.backends.support_report import delegate_backend

    return delegate_backend(name)


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
