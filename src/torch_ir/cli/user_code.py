"""The user's code: found and imported, and what it raises said in one error. Imports no torch."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import click

from torch_ir.cli.options import require_torch
from torch_ir.errors import TorchIRError, did_you_mean

if TYPE_CHECKING:
    from torch_ir.backends import DelegateBackend

T = TypeVar("T")
FORMS = "Give package.module:callable, path/to/file.py:callable, or a .pt2 file."


class TargetError(TorchIRError):
    """The user's model cannot be found or built."""

    code = "target-error"


def require_place(spec: str) -> None:
    """Require that a file or a module is where the user's code is said to be; import nothing.

    Raises:
        UsageError: ``spec`` has not the form ``package.module:name`` or ``path/to/file.py:name``.
        TargetError: There is no such file, or no such package.
    """
    place, separator, name = spec.rpartition(":")
    if not separator or not place or not name:
        raise click.UsageError(f"{spec!r} does not say what to call. {FORMS}")
    if _is_file(place):
        if not Path(place).is_file():
            raise TargetError(f"there is no file {place}", remedy=FORMS)
        return
    _import_from(Path.cwd())
    if importlib.util.find_spec(place.partition(".")[0]) is None:
        raise _no_module(place)


def target_place(_: click.Context, __: click.Parameter, target: str | None) -> str | None:
    """Require that what a TARGET names can be there, before torch is imported.

    Raises:
        UsageError: It names nothing to call.
        TargetError: There is no such file or package.
    """
    if target and not target.endswith(".pt2"):
        require_place(target)
    return target


def import_object(spec: str) -> object:
    """Import what ``package.module:name`` or ``path/to/file.py:name`` names, without a call of it.

    Raises:
        UsageError: ``spec`` has not this form.
        TargetError: It does not exist, or importing it fails.
    """
    require_place(spec)
    place, _, name = spec.rpartition(":")
    return _attribute(_module(place, spec), name, spec)


def named_backend(name: str) -> Any:
    """Return a backend's name, or the object that ``package.module:NAME`` or ``file.py:NAME`` is.

    Raises:
        TargetError: It does not exist, or importing it fails.
    """
    return import_object(name) if ":" in name else name


def delegate_named(name: str) -> DelegateBackend:
    """Return the backend of a name, as :func:`named_backend`, which takes parts of programs.

    Raises:
        OptionalDependencyError: There is no torch.
        ExecutionError: There is no such backend, or it takes whole programs.
    """
    require_torch()
    from torch_ir.backends.support_report import require_delegate

    return require_delegate(named_backend(name), name if ":" in name else f"the backend {name!r}")


def import_module_of(place: str) -> ModuleType:
    """Import a module by its name, or that of a file.

    Raises:
        TargetError: It does not exist, or importing it fails.
    """
    return _module(place, place)


def _module(place: str, spec: str) -> ModuleType:
    if _is_file(place):
        return run_user_code(lambda: _module_of_file(Path(place)), f"importing {place}", spec)
    _import_from(Path.cwd())
    try:
        return run_user_code(lambda: importlib.import_module(place), f"importing {place}", spec)
    except TargetError as error:
        cause = error.__cause__
        if isinstance(cause, ModuleNotFoundError) and place.split(".")[0] == cause.name:
            raise _no_module(place) from cause
        raise


def _is_file(place: str) -> bool:
    return place.endswith(".py") or os.sep in place


def _no_module(place: str) -> TargetError:
    return TargetError(
        f"there is no module {place!r}",
        remedy=f"It is looked for in {Path.cwd()} and among what is installed. {FORMS}",
    )


def _import_from(directory: Path) -> None:
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))


def _module_of_file(file: Path) -> ModuleType:
    if not file.is_file():
        raise TargetError(f"there is no file {file}", remedy=FORMS)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise TargetError(f"{file} is not a Python file", remedy=FORMS)
    _import_from(file.parent.resolve())
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module  # dataclasses and torch.export look the module up by name
    spec.loader.exec_module(module)
    return module


def _attribute(module: ModuleType, name: str, spec: str) -> object:
    found: object = module
    for part in name.split("."):
        if not hasattr(found, part):
            hint = did_you_mean(part, [n for n in dir(found) if not n.startswith("_")])
            raise TargetError(f"{spec}: there is no {part!r}", remedy=hint or None)
        found = getattr(found, part)
    return found


def run_user_code(function: Callable[[], T], doing: str, spec: str) -> T:
    """Return what the user's code gives; what it raises becomes one error that names its line."""
    try:
        return function()
    except (TorchIRError, KeyboardInterrupt):
        raise
    except BaseException as error:  # the user's code may raise anything, SystemExit too
        raise TargetError(
            f"{doing} failed: {type(error).__name__}: {error}".rstrip(": "),
            picture=_where(error, spec),
            remedy="The fault is in the code that is called; --traceback shows all of it.",
        ) from error


def _where(error: BaseException, spec: str) -> str | None:
    """The innermost line of the user's own code, or the innermost of all."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<frozen") and frame.filename != __file__
    ]
    place = spec.rpartition(":")[0].replace(".py", "").rpartition(".")[2]
    own = [frame for frame in frames if Path(frame.filename).stem == Path(place).stem]
    if not frames:
        return None
    frame = (own or frames)[-1]
    return f"{frame.filename}:{frame.lineno}: {frame.line}"
