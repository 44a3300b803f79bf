"""The walk from a function to everything that it may read."""

from __future__ import annotations

import builtins
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
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

from torch_ir.traced.arguments import Same, Token, tensor_token, value_token
from torch_ir.traced.guards.captured_names import IMPORTED, captured_names, is_library
from torch_ir.traced.guards.guard import MISSING, ClosureGuard

_SEQUENCES = (list, tuple, deque, set, frozenset)
_NOISE = frozenset({"__dict__", "__weakref__", "__doc__", "__module__", "__annotations__"})
_SAVING = frozenset(
    {"_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks"}
    | {"_load_state_dict_post_hooks"}
)
"""Attributes of a module that say how it is saved, not what it computes."""


class Collector:
    """Visits everything that functions and objects may read, once.

    Args:
        roots: The functions and objects, each with a name for people.

    Attributes:
        tokens: What was found, each with where it is.
        tensors: The distinct tensors among it, in order.
        paths: Where each tensor is.
        positions: The position of each tensor, by identity.
        generators: The generators of random numbers among it.
        seen: The number of each other object, by identity, with the object, which thus stays.
        guard: The containers that were visited.
    """

    def __init__(self, roots: Iterable[tuple[str, Any]]):
        self.tokens: list[tuple[str, Token]] = []
        self.tensors: list[torch.Tensor] = []
        self.paths: list[str] = []
        self.positions: dict[int, int] = {}
        self.generators: list[torch.Generator] = []
        self.guard = ClosureGuard()
        self.seen: dict[int, tuple[int, Any]] = {}
        self._todo = [*roots][::-1]
        while self._todo:
            self._visit(*self._todo.pop())

    def _note(self, path: str, *token: Token) -> None:
        self.tokens.append((path, token))

    def _later(self, path: str, value: Any) -> None:
        self._todo.append((path, value))

    def _visit(self, path: str, value: Any) -> None:
        if (token := value_token(value)) is not None:
            self._note(path, *token)
        elif isinstance(value, torch.Tensor):
            self._tensor(path, value)
        elif id(value) in self.seen:
            self._note(path, "same", self.seen[id(value)][0])
        else:
            self.seen[id(value)] = len(self.seen), value
            self._object(path, value)

    def _tensor(self, path: str, tensor: torch.Tensor) -> None:
        known = self.positions.setdefault(id(tensor), len(self.tensors))
        if known < len(self.tensors):
            self._note(path, "same tensor", known)
        else:
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
                self.guard.add_array(value, value.tobytes())
                self._note(path, "array", str(value.dtype), value.shape, value.tobytes())
            case _:
                self._instance(path, value)

    def _function(self, path: str, function: FunctionType) -> None:
        self.guard.add_function(function)
        code = function.__code__
        self._note(path, "function", code)
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            self._later(name, cell)
        self._later(f"a default of {path}", function.__defaults__)
        self._later(f"a default of {path}", function.__kwdefaults__)
        if vars(function):
            self._later(path, vars(function))
        if not is_library(code.co_filename):
            for names in captured_names(code):
                self._global(function.__globals__, names)

    def _global(self, namespace: Mapping[str, Any], names: tuple[str, ...]) -> None:
        """What a chain of names reads: as far as it leads from module to module."""
        first, *rest = names
        if first == IMPORTED:
            namespace, first, *rest = sys.modules, *rest
        path = first
        while True:
            if first not in namespace and hasattr(builtins, first):
                return
            value: Any = self.guard.add_name(namespace, first)
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

    def _cell(self, path: str, cell: CellType) -> None:
        try:
            content = cell.cell_contents
        except ValueError:  # nothing has been bound yet
            self._note(path, "missing")
            return
        self.guard.add_cell(cell)
        self._later(path, content)

    def _method(self, path: str, method: MethodType) -> None:
        self._note(path, "method")
        self._later(path, method.__func__)
        self._later(path.rpartition(".")[0] or path, method.__self__)

    def _partial(self, path: str, value: partial[Any]) -> None:
        self._note(path, "partial")
        for name in ("args", "keywords", "func"):
            self._later(f"{path}.{name}", getattr(value, name))

    def _mapping(self, path: str, value: Mapping[Any, Any]) -> None:
        self.guard.add(value)
        self._note(path, type(value), *[_key(key) for key in value])
        for key, item in value.items():
            self._later(f"{path}[{key!r:.40}]", item)

    def _sequence(self, path: str, value: Sequence[Any]) -> None:
        if not isinstance(value, tuple):
            self.guard.add(value)
        self._note(path, type(value), len(value))
        for position, item in enumerate(value):
            self._later(f"{path}[{position}]", item)

    def _class(self, path: str, kind: type[Any]) -> None:
        self._note(path, "class", Same(kind))
        for base in _own_bases(kind):
            self.guard.add(vars(base))
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
        attributes = _attributes_of(value)
        if attributes is None:
            self._slots(path, value)
            return
        if (wrapped := attributes.get("__wrapped__")) is not None and _is_ours(kind):
            self._note(path, "traced")
            self._later(path, wrapped)
            return
        self.guard.add_instance(value)
        self.guard.add(attributes)
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
        self.guard.add(members)
        self._note(path, type(members), *members)
        for name, item in members.items():
            self._later(f"{path}.{name}", item)

    def _slots(self, path: str, value: Any) -> None:
        """An object without a dictionary: what its slots hold; itself, if it has none."""
        self._note(path, "object", Same(value))
        if isinstance(value, torch.Generator):
            self.generators.append(value)
        for name in _bound_slots(value):
            self.guard.add_slot(value, name)
            self._later(f"{path}.{name}", getattr(value, name))


def _key(key: Any) -> Token:
    token = value_token(key)
    return Same(key) if token is None else token


def _own_bases(kind: type[Any]) -> Iterator[type[Any]]:
    """Yield a class and its bases, without those of libraries."""
    for base in kind.__mro__:
        file = getattr(sys.modules.get(base.__module__), "__file__", None)
        is_main = base.__module__ == "__main__"
        if base is not object and (is_main or not is_library(file or "<frozen")):
            yield base


def _attributes_of(value: Any) -> dict[str, Any] | None:
    """Return the dictionary of an object, or None if it is read by its slots alone."""
    state = getattr(value, "__dict__", None)
    return cast(Any, state) if isinstance(state, dict) and not _is_opaque(type(value)) else None


def _bound_slots(value: Any) -> Iterator[str]:
    """Yield the slots of an object that hold something."""
    for base in type(value).__mro__ if not _is_opaque(type(value)) else ():
        names: Any = base.__dict__.get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            if hasattr(value, name):
                yield name


def _is_ours(kind: type[Any]) -> bool:
    return kind.__module__.startswith("torch_ir.")


def _is_opaque(kind: type[Any]) -> bool:
    """Whether objects of a class are what they are: those of Python's own library."""
    if kind is SimpleNamespace:
        return False
    return kind.__module__.partition(".")[0] in sys.stdlib_module_names
