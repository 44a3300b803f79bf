"""Executors of traced programs: names and backends, checked before anything is traced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from torch_ir.backends import known_backends
from torch_ir.backends.backend_registry import Backend, find_backend
from torch_ir.backends.protocol import DelegateBackend
from torch_ir.errors import InputError, did_you_mean


@dataclass(frozen=True, eq=False, slots=True)
class Executor:
    """Something that runs programs, or parts of them.

    Attributes:
        name: Its name.
        dialect: The dialect that it is given; empty for what the traced function says.
        backend: Runs a whole program; None for torch itself.
        parts: Takes the nodes that it supports; None for what runs whole programs alone.
    """

    name: str
    dialect: str = ""
    backend: Backend | None = None
    parts: DelegateBackend | None = None

    def __hash__(self) -> int:
        return hash((self.name, id(self.backend)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Executor):
            return False
        return self is other or (self.name == other.name and self.backend is other.backend)

    @property
    def is_torch(self) -> bool:
        """Whether torch's own kernels run whatever there is."""
        return self.backend is None


ATEN = Executor("aten")
PRIMS = Executor("prims", "prims")
DEFAULT = (ATEN,)


def known_executors() -> tuple[str, ...]:
    """Return the names of everything that runs a program, torch's own first."""
    return tuple(dict.fromkeys([ATEN.name, PRIMS.name, *known_backends()]))


def executors_of(chosen: Any, parameters: Any = None) -> tuple[Executor, ...]:
    """Resolve the executors that were asked for, in order of preference.

    Args:
        chosen: A name, a backend that takes parts of programs, or several of them; None for
            torch's kernels.
        parameters: Parameters of the one executor that takes some.

    Raises:
        InputError: There is none of a name, or it takes no such parameters; the message lists
            those that there are.
        ExecutionError: The package that offers it cannot be imported.

    Example:
        >>> [executor.name for executor in executors_of(("reference", "aten"))]
        ['reference', 'aten']
    """
    if chosen is None:
        found = DEFAULT
    elif isinstance(chosen, str | DelegateBackend):
        found = (_executor(chosen),)
    elif isinstance(chosen, Iterable):
        found = tuple([_executor(item) for item in cast(Iterable[Any], chosen)])
    else:
        raise InputError(
            f"an executor is a name or a DelegateBackend, got {type(chosen).__name__}"
        )
    if not found:
        raise InputError(
            "no executor is given", remedy=f"There are {', '.join(known_executors())}."
        )
    names = [executor.name for executor in found]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"the executor {name!r} is given twice")
    return _with_parameters(found, parameters) if parameters else found


def _executor(item: Any) -> Executor:
    if isinstance(item, DelegateBackend):
        return Executor(item.name, "", item, item)
    for executor in (ATEN, PRIMS):
        if item == executor.name:
            return executor
    known = known_executors()
    if not isinstance(item, str) or item not in known:
        hint = did_you_mean(str(item), known)
        raise InputError(
            f"there is no executor {item!r:.60}",
            remedy=f"There are {', '.join(known)}.{' ' if hint else ''}{hint}",
        )
    backend: Any = find_backend(item)
    if item == "reference":
        from torch_ir.backends.reference import ReferenceParts

        return Executor(item, "core_aten", backend, ReferenceParts())
    parts = backend if isinstance(backend, DelegateBackend) else None
    return Executor(item, "aten" if item == "inductor" else "", backend, parts)


def _with_parameters(found: tuple[Executor, ...], parameters: Any) -> tuple[Executor, ...]:
    """The executors, with inductor's options."""
    if not isinstance(parameters, Mapping):
        raise InputError(
            f"parameters of an executor are a mapping, got {type(parameters).__name__}"
        )
    if all(executor.name != "inductor" for executor in found):
        names = ", ".join(map(str, cast(Mapping[Any, Any], parameters)))
        raise InputError(
            f"the executor {found[0].name!r} takes no parameters, got {names}",
            remedy="The executor 'inductor' takes its own options.",
        )
    from torch_ir.backends.torch.inductor import Inductor

    made = Inductor(dict(cast(Mapping[str, Any], parameters)))
    return tuple(
        [Executor(e.name, "aten", made, made) if e.name == made.name else e for e in found]
    )
