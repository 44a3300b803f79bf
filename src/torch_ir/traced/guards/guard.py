"""The guard of a closure: whether every container still holds the very same objects."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from functools import partial
from itertools import chain, repeat
from operator import attrgetter, is_, methodcaller
from types import CellType, FunctionType
from typing import Any, cast

import numpy as np
import torch

from torch_ir.frozen import Same
from torch_ir.torch_api import dict_versions, tensor_guard
from torch_ir.traced.guards.cached_results import cached_results
from torch_ir.traced.guards.held import held, put_back

MISSING = object()
"""What a name or slot holds that is not bound."""

_values = methodcaller("values")
_contents = attrgetter("cell_contents")
_bases = attrgetter("__mro__")
_parts = attrgetter("__code__", "__defaults__", "__kwdefaults__", "__closure__")


def _bytes(value: Any) -> Any:
    """The memory of an array or buffer as NumPy sees it."""
    is_array = isinstance(value, np.ndarray | np.generic)
    return value if is_array else np.asarray(memoryview(value))


def _results(cached: Any) -> list[Same]:
    return [*map(Same, cached_results(cached))]


class ClosureGuard:
    """Checks at each call that what a function closes over has not changed.

    Containers are added while the closure is collected; :meth:`seal` then records what they hold.
    A list or dictionary that a program may change is copied with :meth:`contents`.
    """

    def __init__(self) -> None:
        self._mappings: list[Mapping[Any, Any]] = []
        self._dicts: list[dict[Any, Any]] = []
        self._versions: list[int] = []
        self._empty: list[Sized] = []
        self._lists: list[list[Any]] = []
        self._tables: list[Mapping[Any, Any]] = []
        self._sequences: list[Any] = []
        self._cells: list[CellType] = []
        self._functions: list[FunctionType] = []
        self._instances: list[Any] = []
        self._classes: list[type[Any]] = []
        self._names: dict[int, tuple[Mapping[str, Any], list[str]]] = {}
        self._arrays: list[tuple[Any, bytes]] = []
        self._memories: list[Any] = []
        self._caches: list[Any] = []
        self._probes: dict[Callable[[], Any], Any] = {}
        self._types: list[type[Any]] = []
        self._looks: list[Callable[[], Iterable[Any]]] = []
        self._found: list[Any] = []
        self._fits: Callable[[], bool] = bool

    # -- adding -----------------------------------------------------------------------------------

    def add(self, container: Any) -> None:
        """Add a mapping or sequence, to be looked at in the way that costs least."""
        if isinstance(container, Mapping):
            self._mappings.append(cast(Any, container))
        elif isinstance(container, list):
            self._lists.append(cast(Any, container))
        content = held(container)
        if len(content) == 0:
            self._empty.append(content)
        elif type(container) is dict:
            self._dicts.append(cast(Any, container))
            self._versions += dict_versions([container])
        elif isinstance(container, Mapping):
            self._tables.append(content)
        else:
            self._sequences.append(content)

    def add_cell(self, cell: CellType) -> None:
        """Add a cell that is bound."""
        self._cells.append(cell)

    def add_function(self, function: FunctionType) -> None:
        """Add a function: its code, defaults and closure."""
        self._functions.append(function)

    def add_instance(self, value: Any) -> None:
        """Add an object whose class may be another one later."""
        self._instances.append(value)

    def add_class(self, kind: type[Any]) -> None:
        """Add a class whose bases may be others later."""
        self._classes.append(kind)

    def add_array(self, value: Any, content: bytes) -> None:
        """Add a NumPy array with its bytes."""
        self._arrays.append((value, content))
        self.add_memory(value)

    def add_cache(self, cached: Any) -> None:
        """Add a function of ``functools.cache`` with the results that it holds."""
        self._caches.append(cached)
        self.add_probe(partial(_results, cached))

    def add_memory(self, value: Any) -> None:
        """Add an array or a buffer, whose memory tensors may show."""
        self._memories.append(value)

    def shows(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor has the memory of an array or buffer that was added."""
        if not self._memories or tensor.device.type != "cpu":
            return False
        whole = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage()).numpy()  # pyright: ignore[reportArgumentType]  # torch's stub lacks this overload
        return any(np.may_share_memory(whole, memory) for memory in map(_bytes, self._memories))

    def add_slot(self, value: Any, name: str) -> None:
        """Add a slot of an object."""
        self._sequences.append(_Slot(value, name))

    def add_name(self, namespace: Mapping[str, Any], name: str) -> Any:
        """Add a name of a namespace, and return what it is bound to, or :data:`MISSING`."""
        names = self._names.setdefault(id(namespace), (namespace, []))[1]
        if name not in names:
            names.append(name)
        return namespace.get(name, MISSING)

    def add_probe(self, probe: Callable[[], Any]) -> Any:
        """Add what reads state that is in no container, and return what it reads now."""
        return self._probes.setdefault(probe, probe())

    def seal(self, tensors: list[torch.Tensor]) -> None:
        """Record what every container holds.

        Args:
            tensors: The tensors whose types must stay as they are.
        """
        self._types = list(map(type, self._instances))
        self._looks = self._make_looks()
        self._found = list(self._look())
        self._fits = tensor_guard(tensors)

    # -- checking ---------------------------------------------------------------------------------

    def holds(self) -> bool:
        """Return whether every container holds the very same objects, and tensors their types."""
        expected = self._found
        try:
            found = list(self._look())
        except (ValueError, RuntimeError):  # a cell is empty; a container changes as it is read
            return False
        return (
            dict_versions(self._dicts) == self._versions
            and not any(self._empty)
            and len(found) == len(expected)
            and all(map(is_, found, expected))
            and (not self._instances or list(map(type, self._instances)) == self._types)
            and self._fits()
            and (not self._arrays or all(a.tobytes() == content for a, content in self._arrays))
            and (not self._probes or all(p() == value for p, value in self._probes.items()))
        )

    def contents(self) -> Contents:
        """Return what the containers hold now, to be put back."""
        return Contents(
            [
                (m, dict(held(m)))
                for m in (*self._mappings, *self._namespaces())
                if isinstance(m, dict)
            ],
            [(s, list(held(s))) for s in self._lists],
            [(cell, cell.cell_contents) for cell in self._cells],
            [(cached, _results(cached)) for cached in self._caches],
        )

    def _namespaces(self) -> list[Mapping[str, Any]]:
        return [namespace for namespace, _ in self._names.values() if namespace is not sys.modules]

    def _look(self) -> Iterator[Any]:
        """Every object that a container holds, and every key."""
        return chain.from_iterable([look() for look in self._looks])

    def _make_looks(self) -> list[Callable[[], Iterable[Any]]]:
        """What :meth:`_look` looks at: the kinds of containers of which there are some."""
        mappings, sequences, cells = self._tables, self._sequences, self._cells
        functions, classes = self._functions, self._classes
        looks: list[Callable[[], Iterable[Any]]] = []
        if mappings:
            looks.append(lambda: chain.from_iterable(mappings))
            looks.append(lambda: chain.from_iterable(map(_values, mappings)))
        if sequences:
            looks.append(lambda: chain.from_iterable(sequences))
            looks.append(lambda: map(len, sequences))
        if cells:
            looks.append(lambda: map(_contents, cells))
        if classes:
            looks.append(lambda: map(_bases, classes))
        if functions:
            looks.append(lambda: chain.from_iterable(map(_parts, functions)))
        for namespace, names in self._names.values():
            looks.append(partial(map, cast(Any, namespace.get), names, repeat(MISSING)))
        return looks


@dataclass(frozen=True)
class Contents:
    """What dictionaries, lists, cells and caches of functions held."""

    mappings: list[tuple[dict[Any, Any], dict[Any, Any]]]
    lists: list[tuple[list[Any], list[Any]]]
    cells: list[tuple[CellType, Any]]
    caches: list[tuple[Any, list[Same]]]

    def restore(self) -> None:
        """Put it back, where it is not there any more; a cache that holds more is emptied."""
        for cached, results in self.caches:
            if _results(cached) != results:
                cached.cache_clear()
        for mapping, before in self.mappings:
            now = held(mapping)
            if len(now) != len(before) or not all(map(is_, now.values(), before.values())):
                put_back(mapping, before)
        for sequence, items in self.lists:
            put_back(sequence, items)
        for cell, content in self.cells:
            cell.cell_contents = content


class _Slot(Sequence[Any]):
    """A slot of an object as a sequence of what it holds."""

    def __init__(self, value: Any, name: str):
        self._value = value
        self._name = name

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: Any) -> Any:
        if index != 0:
            raise IndexError(index)
        return getattr(self._value, self._name, MISSING)
