"""Backends by name: our own, those that a program registers, and those of installed packages.

A package offers a backend by an entry point of the group ``torch_ir.backends``, whose name is that
of the backend and whose value is the function that :func:`register_backend` would take.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from inspect import Parameter, isabstract, signature
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, cast

from torch_ir.arguments import public, require_seconds, require_tolerance
from torch_ir.backends.protocol import DelegateBackend
from torch_ir.errors import ExecutionError, attempt, closest_file, did_you_mean
from torch_ir.ir import IR
from torch_ir.lazy import without_package
from torch_ir.ops.extensions import Registry, load_with_operators, require_name
from torch_ir.serde.storage import IR_SUFFIXES
from torch_ir.user_code import import_object

if TYPE_CHECKING:
    import torch

    from torch_ir.executor.placement import Placement

GROUP = "torch_ir.backends"


@dataclass(frozen=True, slots=True)
class Options:
    """What is asked of a compiled program.

    Attributes:
        grad: That results can be differentiated by torch's autograd.
        verify: Whether delegates of runtimes are verified before they are used; or tuples of
            arguments to verify them on, in addition to a random set.
        tolerance: The relative error that is allowed; None for what rounding in the recorded
            element types explains.
        settings: Options of the backend itself.
        cache: The folder of compiled blobs; None for none.
        seconds: How long may be looked for what a runtime refuses, and for the fastest backend.
        placement: Where what runs, for the backend ``"aten"``.
    """

    grad: bool = False
    verify: bool | Sequence[Sequence[Any]] = True
    tolerance: float | None = None
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    cache: str | PathLike[str] | None = None
    seconds: float = 60.0
    placement: Placement | None = None

    def __post_init__(self) -> None:
        require_seconds(self.seconds)
        require_tolerance(self.tolerance)


Runner: TypeAlias = Callable[..., Any]
"""Takes the model's own arguments and gives results in its own structure."""


class Backend(Protocol):
    """Makes a program ready to run.

    It raises :class:`~torch_ir.errors.CompileError` for a program that it cannot run, and
    :class:`~torch_ir.errors.ExecutionError` for an option that it does not have.
    """

    def __call__(
        self, ir: IR, weights: Mapping[str, torch.Tensor] | None, options: Options
    ) -> Runner:
        """The program with its weights, by ``state_dict`` key, as a function."""
        ...


B = TypeVar("B", bound="Backend | type")

_OWN = {
    "aten": ("torch_ir.backends.aten", "compile_aten"),
    "auto": ("torch_ir.backends.native.auto", "AUTO"),
    "executorch": ("torch_ir.backends.runtimes.executorch", "EXECUTORCH"),
    "inductor": ("torch_ir.backends.torch.inductor", "INDUCTOR"),
    "onnxruntime": ("torch_ir.backends.runtimes.onnxruntime", "ONNXRUNTIME"),
    "openvino": ("torch_ir.backends.runtimes.openvino", "OPENVINO"),
    "reference": ("torch_ir.backends.reference", "compile_reference"),
    "tuned": ("torch_ir.backends.torch.tuned", "TUNED"),
}
_RUNTIMES = ("executorch", "onnxruntime", "openvino")
"""Our own that need a package of their name, which the extra of that name brings."""
_BACKENDS = Registry[Backend](GROUP, "backend", _OWN, load_with_operators, ExecutionError)


def register_backend(name: str) -> Callable[[B], B]:
    """Let :func:`torch_ir.compile` find the decorated backend under a name.

    Raises:
        ExecutionError: There is a backend of that name, or nothing can ask for it.

    Example:
        >>> @register_backend("constant")
        ... def constant(ir, weights, options):
        ...     return lambda *args: 42
        >>> known_backends()
        ('aten', 'auto', 'constant', 'executorch', 'inductor', 'onnxruntime', 'openvino', \
'reference', 'tuned')
        >>> unregister_backend("constant")
    """
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # a user may decorate with the function itself
        raise ExecutionError(
            f"a backend is registered under a name, not {name!r:.60}",
            remedy='Write @register_backend("NAME") above it.',
        )
    require_name(GROUP, "backend", name, ExecutionError)

    def decorate(backend: B) -> B:
        if _is_known(name):
            raise ExecutionError(
                f"there is a backend {name!r} already",
                remedy=f"Remove it with unregister_backend({name!r}) first."
                if name in _BACKENDS.added
                else "Choose another name.",
            )
        _BACKENDS.add(name, cast(Backend, backend))
        return backend

    return decorate


@public
def unregister_backend(name: str) -> None:
    """Remove a backend that was registered; nothing happens if there is none."""
    _BACKENDS.unregister(name)


def known_backends() -> tuple[str, ...]:
    """Return the names of all backends, in order."""
    return tuple(sorted({*_OWN, *_BACKENDS.names()}))


def _is_known(name: str) -> bool:
    """Whether there is a backend; what is installed is read for names of others alone."""
    return name in _OWN or name in _BACKENDS.added or name in _BACKENDS.names()


def registered_backends() -> tuple[str, ...]:
    """Return the names of those that this process registered, in order."""
    return tuple(sorted(_BACKENDS.added))


def has_package(name: str) -> bool:
    """Return whether the package that a backend of ours needs, if any, is installed."""
    return name not in _RUNTIMES or find_spec(name) is not None


def require_backend(name: str) -> None:
    """Refuse the name of a backend that is not there, without loading those that are.

    Raises:
        ExecutionError: There is none.
        OptionalDependencyError: The package that it needs is not installed.
    """
    if not _is_known(name):
        raise _no_backend(str(name))
    if not has_package(name):
        raise without_package(name, f"the backend {name!r}", name)


def _no_backend(name: str) -> ExecutionError:
    """The error for a name that is none of a backend, which may be meant as that of a file."""
    known, path = known_backends(), Path(name)
    if attempt(path.exists) is True:
        kind = "a directory" if path.is_dir() else "a file"
        place = f"{name}:NAME names one in it. " if path.suffix == ".py" else ""
        listed = f"{place}Known backends: {', '.join(known)}."
        return ExecutionError(f"{name!r} is {kind}, and no backend", remedy=listed)
    is_path = len(path.parts) > 1 or path.suffix in _ENDINGS
    hint = closest_file(name) if is_path else did_you_mean(name, known)
    also = ", nor a file of that name" if is_path else ""
    listed = f"Known backends: {', '.join(known)}.{' ' if hint else ''}{hint}"
    return ExecutionError(f"there is no backend {name!r}{also}", remedy=listed)


_ENDINGS = (*IR_SUFFIXES, ".npz", ".onnx", ".pt", ".pt2", ".py", ".safetensors")
"""How the names of files end that are given where a backend is asked for."""


def find_backend(name: str) -> Backend:
    """Look up the backend of a name, or of its place: ``package.module:NAME``, ``FILE.py:NAME``.

    Raises:
        ExecutionError: There is none, the package that offers it cannot be imported, or it is a
            class that takes arguments.
        OptionalDependencyError: The package that it needs is not installed.
        TargetError: There is nothing in that place, or importing it fails.
    """
    if ":" in name:
        return _require_backend(instance_of(import_object(name), name), name)
    require_backend(name)
    if name in _OWN:
        module, function = _OWN[name]
        return getattr(import_module(module), function)
    if name in _BACKENDS.added:
        return instance_of(_BACKENDS.added[name], f"the backend {name!r}")
    found = _BACKENDS.loaded(name)
    return _require_backend(instance_of(found, f"the backend {name!r}"), f"the backend {name!r}")


def instance_of(found: Any, name: str) -> Any:
    """Return a backend, made without arguments where a class of delegate backends stands for it.

    Raises:
        ExecutionError: The class takes arguments, or the backend has no name.
    """
    if not (isinstance(found, type) and issubclass(found, DelegateBackend)):
        called = getattr(found, "name", None)
        if isinstance(found, DelegateBackend) and not isinstance(called, str):
            raise ExecutionError(
                f"{name}: the backend {type(found).__name__} has no name",
                remedy=f"Give the class {type(found).__name__} an attribute name, a text.",
            )
        return found
    needed = [
        p
        for p in signature(found).parameters.values()
        if p.default is Parameter.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if needed or isabstract(found):
        why = "is abstract" if not needed else f"takes {', '.join([p.name for p in needed])}"
        raise ExecutionError(
            f"{name} is the class {found.__name__}, which {why}",
            remedy=f"Register an instance of {found.__name__}.",
        )
    return instance_of(found(), name)


def as_backend(thing: object) -> Backend:
    """Return the backend that something is.

    Args:
        thing: The name of one, an instance, a class that is made without arguments, or a function
            as :class:`Backend` describes it.

    Raises:
        ExecutionError: It is none of these, there is no such backend, or the class cannot be made.

    Example:
        >>> as_backend("aten") is as_backend(as_backend("aten"))
        True
    """
    if isinstance(thing, str):
        return find_backend(thing)
    return _require_backend(instance_of(thing, "backend="))


def _require_backend(made: object, named: str = "") -> Backend:
    if not callable(made) or isinstance(made, type):
        raise ExecutionError(
            f"{named}{': ' if named else ''}{made!r:.60} is no backend",
            remedy="A backend is a name, an instance or a class of DelegateBackend, or a function "
            "of a program, its weights and options.",
        )
    return cast(Backend, made)
