"""The closure of a function, and the guard that it is unchanged.

One walk from the function reaches its closure, defaults, the globals and attributes that its code
names, the classes and functions that it calls, and the state of every module and object. What was
found is compared in two ways: at each call, whether every container holds the very same objects;
where one may not, by a walk that is made anew, whether the values are equal.
"""

from __future__ import annotations

import builtins
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from functools import partial
from itertools import chain, repeat
from operator import attrgetter, is_, methodcaller
from types import (
    BuiltinFunctionType,
    CellType,
    FunctionType,
    MappingProxyType,
    MethodType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any, cast

import torch

from torch_ir.torch_api import FakeTensor, dict_versions, tensor_guard
from torch_ir.traced.arguments import Same, Token, tensor_token, value_token
from torch_ir.traced.guards.captured_names import IMPORTED, global_reads, is_library

MISSING = object()

_values = methodcaller("values")
_contents = attrgetter("cell_contents")
_parts = attrgetter("__code__", "__defaults__", "__kwdefaults__", "__closure__")
_SEQUENCES = (list, tuple, deque, set, frozenset)
_NOISE = frozenset({"__dict__", "__weakref__", "__doc__", "__module__", "__annotations__"})
_SAVING = frozenset(
    {"_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks"}
    | {"_load_state_dict_post_hooks"}
)
"""Attributes of a module that say how it is saved, not what it computes."""


class Environment:
    """Everything that functions and objects may read, as it was when this was made.

    Args:
        roots: The functions and objects, each with a name for people.

    Attributes:
        tokens: What was found, each with where it is.
        tensors: The distinct tensors among it, in order.
        paths: Where each tensor is.
        generators: The generators of random numbers among it.
    """

    def __init__(self, roots: Iterable[tuple[str, Any]]):
        self.tokens: list[tuple[str, Token]] = []
        self.tensors: list[torch.Tensor] = []
        self.paths: list[str] = []
        self.generators: list[torch.Generator] = []
        self.mappings: list[Mapping[Any, Any]] = []
        self._dicts: list[dict[Any, Any]] = []
        self._versions: list[int] = []
        self._empty: list[Sized] = []
        self.lists: list[list[Any]] = []
        self._tables: list[Mapping[Any, Any]] = []
        self._sequences: list[Any] = []
        self.cells: list[CellType] = []
        self._functions: list[FunctionType] = []
        self._instances: list[Any] = []
        self._names: dict[int, tuple[Mapping[str, Any], list[str]]] = {}
        self._arrays: list[tuple[Any, bytes]] = []
        self._kept: list[Any] = []
        self._seen: dict[int, int] = {}
        self._positions: dict[int, int] = {}
        self._roots = list(roots)
        self._todo = self._roots[::-1]
        while self._todo:
            self._visit(*self._todo.pop())
        self._types = list(map(type, self._instances))
        self._looks = self._make_looks()
        self.found = list(self._look())
        self._guard = tensor_guard(self.tensors)

    # -- comparing --------------------------------------------------------------------------------

    def is_unchanged(self) -> bool:
        """Return whether all containers hold the very same objects, and tensors their types."""
        expected = self.found
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
            and self._guard()
            and (not self._arrays or all(a.tobytes() == content for a, content in self._arrays))
        )

    def is_alike(self, other: Environment) -> bool:
        """Return whether another walk found the same, whichever objects hold it."""
        return self.tokens == other.tokens

    def position_of(self, tensor: torch.Tensor) -> int | None:
        """Return the position of a tensor among :attr:`tensors`."""
        return self._positions.get(id(tensor))

    def copy(self) -> Contents:
        """Copy what the containers hold now, to be put back."""
        return Contents(
            [(m, dict(m)) for m in (*self.mappings, *self._namespaces()) if isinstance(m, dict)],
            [(s, list(s)) for s in self.lists],
            [(cell, cell.cell_contents) for cell in self.cells],
        )

    def _namespaces(self) -> list[Mapping[str, Any]]:
        return [namespace for namespace, _ in self._names.values() if namespace is not sys.modules]

    def traced_tensors(self) -> list[str]:
        """Return the places that keep tensors which are being traced."""
        if self.is_unchanged():
            return []
        now = Environment(self._roots)
        found = zip(now.tensors, now.paths, strict=True)
        return [path for tensor, path in found if isinstance(tensor, FakeTensor)]

    def _look(self) -> Iterator[Any]:
        """Every object that a container holds, and every key."""
        return chain.from_iterable([look() for look in self._looks])

    def _make_looks(self) -> list[Callable[[], Iterable[Any]]]:
        """What :meth:`_look` looks at: the kinds of containers of which there are some."""
        mappings, sequences, cells = self._tables, self._sequences, self.cells
        functions = self._functions
        looks: list[Callable[[], Iterable[Any]]] = []
        if mappings:
            looks.append(lambda: chain.from_iterable(mappings))
            looks.append(lambda: chain.from_iterable(map(_values, mappings)))
        if sequences:
            looks.append(lambda: chain.from_iterable(sequences))
            looks.append(lambda: map(len, sequences))
        if cells:
            looks.append(lambda: map(_contents, cells))
        if functions:
            looks.append(lambda: chain.from_iterable(map(_parts, functions)))
        for namespace, names in self._names.values():
            looks.append(partial(map, cast(Any, namespace.get), names, repeat(MISSING)))
        return looks

    # -- walking ----------------------------------------------------------------------------------

    def _note(self, path: str, *token: Token) -> None:
        self.tokens.append((path, token))

    def _later(self, path: str, value: Any) -> None:
        self._todo.append((path, value))

    def _watch(self, value: Any) -> None:
        """Let a container be looked at on each call, in the way that costs least."""
        if isinstance(value, Mapping):
            self.mappings.append(cast(Any, value))
        elif isinstance(value, list):
            self.lists.append(cast(Any, value))
        if len(value) == 0:
            self._empty.append(value)
        elif type(value) is dict:
            self._dicts.append(cast(Any, value))
            self._versions += dict_versions([value])
        elif isinstance(value, Mapping):
            self._tables.append(cast(Any, value))
        else:
            self._sequences.append(value)

    def _visit(self, path: str, value: Any) -> None:
        if (token := value_token(value)) is not None:
            self._note(path, *token)
        elif isinstance(value, torch.Tensor):
            self._tensor(path, value)
        elif id(value) in self._seen:
            self._note(path, "same", self._seen[id(value)])
        else:
            self._seen[id(value)] = len(self._seen)
            self._kept.append(value)
            self._object(path, value)

    def _tensor(self, path: str, tensor: torch.Tensor) -> None:
        known = self._positions.setdefault(id(tensor), len(self.tensors))
        if known < len(self.tensors):
            self._note(path, "same tensor", known)
            return
        self.tensors.append(tensor)
        self.paths.append(path)
        self._note(path, "tensor", tensor_token(tensor))

    def _object(self, path: str, value: Any) -> None:
        match value:
            case FunctionType():
                self._function(path, value)
            case CellType():
                self._cell(path, value)
            case MethodType():
                self._method(path, value)
            case partial():
                self._partial(path, cast(Any, value))
            case dict() | MappingProxyType():
                self._mapping(path, cast(Any, value))
            case list() | tuple() | deque() | set() | frozenset():
                self._sequence(path, cast(Any, value))
            case property() | staticmethod() | classmethod():
                self._descriptor(path, cast(Any, value))
            case type():
                self._class(path, cast(Any, value))
            case ModuleType() | BuiltinFunctionType():
                self._note(path, "constant", Same(value))
            case _ if type(value).__module__ == "numpy" and hasattr(value, "tobytes"):
                self._arrays.append((value, value.tobytes()))
                self._note(path, "array", str(value.dtype), value.shape, value.tobytes())
            case _:
                self._instance(path, value)

    def _function(self, path: str, function: FunctionType) -> None:
        self._functions.append(function)
        code = function.__code__
        self._note(path, "function", code)
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            self._later(name, cell)
        self._later(f"a default of {path}", function.__defaults__)
        self._later(f"a default of {path}", function.__kwdefaults__)
        if vars(function):
            self._later(path, vars(function))
        if not is_library(code.co_filename):
            for names in global_reads(code):
                self._global(function.__globals__, names)

    def _global(self, namespace: Mapping[str, Any], names: tuple[str, ...]) -> None:
        """What a chain of names reads: as far as it leads from module to module."""
        first, *rest = names
        path = first
        if first == IMPORTED:
            namespace, first, *rest = sys.modules, *rest
            path = first
        while True:
            if first not in namespace and hasattr(builtins, first):
                return
            value: Any = self._name(namespace, first)
            if not isinstance(value, ModuleType) or not rest:
                break
            if is_library(getattr(value, "__file__", None) or "<frozen"):
                self._note(path, "constant", Same(value))
                return
            namespace, first, *rest = vars(value), *rest
            path = f"{path}.{first}"
        if value is MISSING:
            self._note(path, "missing")
        else:
            self._later(path, value)

    def _name(self, namespace: Mapping[str, Any], name: str) -> Any:
        names = self._names.setdefault(id(namespace), (namespace, []))[1]
        if name not in names:
            names.append(name)
        return namespace.get(name, MISSING)

    def _cell(self, path: str, cell: CellType) -> None:
        try:
            content = cell.cell_contents
        except ValueError:  # nothing has been bound yet
            self._note(path, "missing")
            return
        self.cells.append(cell)
        self._later(path, content)

    def _method(self, path: str, method: MethodType) -> None:
        self._note(path, "method")
        self._later(path, method.__func__)
        self._later(path.rpartition(".")[0] or path, method.__self__)

    def _partial(self, path: str, value: partial[Any]) -> None:
        self._note(path, "partial")
        self._later(f"{path}.args", value.args)
        self._later(f"{path}.keywords", value.keywords)
        self._later(f"{path}.func", value.func)

    def _mapping(self, path: str, value: Mapping[Any, Any]) -> None:
        self._watch(value)
        self._note(path, type(value), *[_key(key) for key in value])
        for key, item in value.items():
            self._later(f"{path}[{key!r:.40}]", item)

    def _sequence(self, path: str, value: Sequence[Any]) -> None:
        if not isinstance(value, tuple):
            self._watch(value)
        self._note(path, type(value), len(value))
        for position, item in enumerate(value):
            self._later(f"{path}[{position}]", item)

    def _class(self, path: str, kind: type[Any]) -> None:
        self._note(path, "class", Same(kind))
        for base in kind.__mro__:
            file = getattr(sys.modules.get(base.__module__), "__file__", None)
            is_main = base.__module__ == "__main__"
            if base is object or (is_library(file or "<frozen") and not is_main):
                continue
            self._watch(vars(base))
            for name, item in vars(base).items():
                if name not in _NOISE:
                    self._later(f"{path}.{name}", item)

    def _descriptor(self, path: str, value: Any) -> None:
        self._note(path, type(value))
        for name in ("__func__", "fget", "func"):
            if (function := getattr(value, name, None)) is not None:
                self._later(path, function)

    def _instance(self, path: str, value: Any) -> None:
        kind = type(value)
        state = getattr(value, "__dict__", None)
        if not isinstance(state, dict) or _is_opaque(kind):
            self._slots(path, value)
            return
        attributes = cast(dict[str, Any], state)
        if (wrapped := attributes.get("__wrapped__")) is not None and _is_ours(kind):
            self._note(path, "traced")
            self._later(path, wrapped)
            return
        self._instances.append(value)
        self._watch(attributes)
        self._note(path, "instance", Same(kind), *attributes)
        self._later(kind.__name__, kind)
        is_module = isinstance(value, torch.nn.Module)
        for name, item in attributes.items():
            if is_module and name in ("_parameters", "_buffers", "_modules"):
                self._members(path, item)
            elif not (is_module and name in _SAVING):
                self._later(f"{path}.{name}", item)
        if isinstance(value, _SEQUENCES):
            self._sequence(path, cast(Any, value))

    def _members(self, path: str, members: dict[str, Any]) -> None:
        """Parameters, buffers or modules of a module, under the names that people know."""
        self._watch(members)
        self._note(path, type(members), *members)
        for name, item in members.items():
            self._later(f"{path}.{name}", item)

    def _slots(self, path: str, value: Any) -> None:
        """An object without a dictionary: what its slots hold; itself, if it has none."""
        self._note(path, "object", Same(value))
        if isinstance(value, torch.Generator):
            self.generators.append(value)
        for base in type(value).__mro__ if not _is_opaque(type(value)) else ():
            names: Any = base.__dict__.get("__slots__", ())
            for name in (names,) if isinstance(names, str) else names:
                if hasattr(value, name):
                    self._sequences.append(_Slot(value, name))
                    self._later(f"{path}.{name}", getattr(value, name))


@dataclass(frozen=True)
class Contents:
    """What dictionaries, lists and cells held."""

    mappings: list[tuple[dict[Any, Any], dict[Any, Any]]]
    lists: list[tuple[list[Any], list[Any]]]
    cells: list[tuple[CellType, Any]]

    def restore(self) -> None:
        """Put it back, where it is not there any more."""
        for mapping, held in self.mappings:
            if len(mapping) != len(held) or not all(map(is_, mapping.values(), held.values())):
                mapping.clear()
                mapping.update(held)
        for sequence, items in self.lists:
            sequence[:] = items
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


def _key(key: Any) -> Token:
    token = value_token(key)
    return Same(key) if token is None else token


def _is_ours(kind: type[Any]) -> bool:
    return kind.__module__.startswith("torch_ir.")


def _is_opaque(kind: type[Any]) -> bool:
    """Whether objects of a class are what they are: those of Python's own library."""
    if kind is SimpleNamespace:
        return False
    return kind.__module__.partition(".")[0] in sys.stdlib_module_names
