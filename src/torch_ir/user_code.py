"""The user's code: found and imported, and what it raises said in one error. Imports no torch."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from torch_ir.errors import TorchIRError, closest_file, did_you_mean

T = TypeVar("T")
_FILES: dict[Path, tuple[int, ModuleType]] = {}
"""Files that were imported, each with the time of its last change."""
FORMS = "Give package.module:callable, path/to/file.py:callable, or a .pt2 file."
_MODULES = "Give the name of a module, or path/to/file.py."


class TargetError(TorchIRError):
    """The user's model cannot be found or built."""

    code = "target-error"


def require_place(spec: str) -> tuple[str, str]:
    """Require that a file or a module is where the user's code is said to be; import nothing.

    Returns:
        The file or module, and the name in it.

    Raises:
        TargetError: ``spec`` does not have the form ``package.module:name`` or
            ``path/to/file.py:name``, or there is no such file or package.
    """
    place, _, name = spec.rpartition(":")
    if not place or not name:
        raise TargetError(f"{spec!r} does not say what to call", remedy=FORMS)
    if _is_file(place):
        if not Path(place).is_file():
            raise TargetError(f"there is no file {place}", remedy=closest_file(place) or FORMS)
        return place, name
    _import_from(Path.cwd())
    if importlib.util.find_spec(place.partition(".")[0]) is None:
        raise _no_module(place)
    return place, name


def import_object(spec: str) -> object:
    """Import what ``package.module:name`` or ``path/to/file.py:name`` names, without a call of it.

    Raises:
        TargetError: ``spec`` does not have this form, it does not exist, or importing it fails.
    """
    place, name = require_place(spec)
    return _attribute(_module(place, spec), name, spec)


def import_module_of(place: str) -> ModuleType:
    """Import a module by its name, or that of a file.

    Raises:
        TargetError: It does not exist, or importing it fails.
    """
    if not place:
        raise TargetError("the name of a module is empty", remedy=_MODULES)
    return _module(place, place, _MODULES)


def _module(place: str, spec: str, forms: str = FORMS) -> ModuleType:
    if _is_file(place):
        file = Path(place)
        return run_user_code(lambda: _module_of_file(file, forms), f"importing {place}", spec)
    _import_from(Path.cwd())
    try:
        return run_user_code(lambda: importlib.import_module(place), f"importing {place}", spec)
    except TargetError as error:
        cause = error.__cause__
        if isinstance(cause, ModuleNotFoundError) and place.split(".")[0] == cause.name:
            raise _no_module(place, forms) from cause
        raise


def _is_file(place: str) -> bool:
    return place.endswith(".py") or os.sep in place


def _no_module(place: str, forms: str = FORMS) -> TargetError:
    return TargetError(
        f"there is no module {place!r}",
        remedy=f"It is looked for in {Path.cwd()} and among what is installed. {forms}",
    )


def _import_from(directory: Path) -> None:
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))


def _module_of_file(file: Path, forms: str) -> ModuleType:
    if not file.is_file():
        raise TargetError(f"there is no file {file}", remedy=closest_file(file) or forms)
    place, changed = file.resolve(), file.stat().st_mtime_ns
    known, module = _FILES.get(place, (0, None))
    if module is not None and known == changed:  # what it registers is registered once
        return module
    name = module.__name__ if module is not None else _free_name(place)
    if name in sys.modules and module is None:  # imported by other means
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise TargetError(f"{file} is not a Python file", remedy=forms)
    _import_from(file.parent.resolve())
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and torch.export look the module up by name
    spec.loader.exec_module(module)
    _FILES[place] = changed, module
    return module


def _free_name(file: Path) -> str:
    """A name for the module of a file: its stem, or one of its own where that is another module.

    So a file ``json.py`` never stands in the place of the standard library's.
    """
    stem = file.stem.replace(".", "_")
    known = sys.modules.get(stem)
    origin = None if known is None else getattr(known, "__file__", None)
    if known is None:
        spec = importlib.util.find_spec(stem)
        if spec is None:
            return stem
        origin = spec.origin
    if origin is not None and Path(origin).resolve() == file:
        return stem
    return f"{stem}_{sha256(str(file).encode()).hexdigest()[:8]}"


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
