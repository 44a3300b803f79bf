"""The user's model: found by name and built. Only here does the command run user code."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast

import click
import torch
from torch import nn

from torch_ir.errors import TorchIRError, did_you_mean

T = TypeVar("T")
FORMS = "Give package.module:callable, path/to/file.py:callable, or a .pt2 file."


class TargetError(TorchIRError):
    """The user's model cannot be found or built."""

    code = "target-error"


@dataclass(frozen=True, slots=True)
class Target:
    """What the user's callable gave.

    Attributes:
        model: The module.
        args: Positional arguments to call it with.
        kwargs: Keyword arguments.
    """

    model: nn.Module
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])


def build(spec: str, *, meta: bool = False) -> Target:
    """Import what ``spec`` names, and call it.

    Args:
        spec: ``package.module:callable`` or ``path/to/file.py:callable``. The callable is a module
            class without arguments to give, or a function that returns a module, or ``(module,
            inputs)``, or ``(module, inputs, kwargs)``; or the name is of a module instance.
        meta: Build under ``torch.device("meta")``.

    Raises:
        UsageError: ``spec`` has not this form.
        TargetError: It does not exist, fails, or gives something else.
    """
    place, separator, name = spec.rpartition(":")
    if not separator or not place or not name:
        raise click.UsageError(f"{spec!r} does not say what to call. {FORMS}")
    found = _attribute(_module(place, spec), name, spec)
    if isinstance(found, nn.Module):
        return Target(found)
    if not callable(found):
        raise TargetError(
            f"{spec} is no model but of type {type(found).__name__}",
            remedy="Name a callable. " + _RETURNS,
        )
    return _target(_call(cast(Callable[[], Any], found), spec, meta), spec)


def import_object(spec: str) -> object:
    """Import what ``package.module:name`` or ``path/to/file.py:name`` names, without a call of it.

    Raises:
        UsageError: ``spec`` has not this form.
        TargetError: It does not exist, or importing it fails.
    """
    place, separator, name = spec.rpartition(":")
    if not separator or not place or not name:
        raise click.UsageError(f"{spec!r} does not say what to take. {FORMS}")
    return _attribute(_module(place, spec), name, spec)


def import_module_of(place: str) -> ModuleType:
    """Import a module by its name, or that of a file.

    Raises:
        TargetError: It does not exist, or importing it fails.
    """
    return _module(place, place)


_RETURNS = (
    "It is a torch.nn.Module class, or a function without arguments that returns a module, "
    "(module, inputs) or (module, inputs, kwargs)."
)


def _module(place: str, spec: str) -> ModuleType:
    if place.endswith(".py") or os.sep in place:
        return _run_user_code(lambda: _module_of_file(Path(place)), f"importing {place}", spec)
    _import_from(Path.cwd())
    try:
        return _run_user_code(lambda: importlib.import_module(place), f"importing {place}", spec)
    except TargetError as error:
        cause = error.__cause__
        if isinstance(cause, ModuleNotFoundError) and place.split(".")[0] == cause.name:
            raise TargetError(
                f"there is no module {place!r}",
                remedy=f"It is looked for in {Path.cwd()} and among what is installed. {FORMS}",
            ) from cause
        raise


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


def _call(function: Callable[[], Any], spec: str, meta: bool) -> Any:
    def call() -> Any:
        if not meta:
            return function()
        with torch.device("meta"):
            return function()

    return _run_user_code(call, f"calling {spec}", spec)


def _target(made: object, spec: str) -> Target:
    parts = list(cast(tuple[Any, ...], made)) if isinstance(made, tuple | list) else [made]
    if not 1 <= len(parts) <= 3 or not isinstance(parts[0], nn.Module):
        raise TargetError(f"{spec} gave {_described(made)}, not a module", remedy=_RETURNS)
    args: Any = parts[1] if len(parts) > 1 else ()
    kwargs: Any = parts[2] if len(parts) > 2 else {}
    if isinstance(args, torch.Tensor):
        args = (args,)
    if not isinstance(args, tuple | list) or not isinstance(kwargs, Mapping):
        raise TargetError(
            f"{spec} gave {_described(args)} as inputs and {_described(kwargs)} as keyword inputs",
            remedy="Inputs are a tuple, keyword inputs a dict.",
        )
    return Target(parts[0], tuple(cast(list[Any], args)), cast(Mapping[str, Any], kwargs))


def _described(value: object) -> str:
    if isinstance(value, tuple | list):
        inside = ", ".join(type(item).__name__ for item in cast(list[object], value))
        return f"a {type(value).__name__} of ({inside})"
    return "nothing" if value is None else f"a {type(value).__name__}"


def _run_user_code(function: Callable[[], T], doing: str, spec: str) -> T:
    """The result; whatever the user's code raises becomes one error that names its line."""
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
