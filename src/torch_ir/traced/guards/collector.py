"""The walk from a function to everything that it may read."""

from __future__ import annotations

import sys
import threading
from abc import ABCMeta, get_cache_token
from array import array
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import Context, ContextVar
from functools import lru_cache, partial
from types import (
    BuiltinFunctionType,
    CellType,
    FunctionType,
    GeneratorType,
    MappingProxyType,
    MethodType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any, cast
from weakref import ProxyTypes, ReferenceType

import torch
from torch.nn.parameter import is_lazy

from torch_ir.errors import TraceError
from torch_ir.frozen import Same
from torch_ir.torch_api import FakeTensor, global_module_hooks, has_hooks
from torch_ir.traced.call_key import key_token, plain_repr, tensor_token, value_token
from torch_ir.traced.guards.cached_results import cached_results
from torch_ir.traced.guards.captured_names import captured_names, is_library, is_library_module
from torch_ir.traced.guards.held import held
from torch_ir.traced.guards.named_values import NamedValues
from torch_ir.traced.guards.probes import probe_of_value
from torch_ir.traced.guards.random_numbers import is_foreign

_CACHED: Any = type(lru_cache(len))
_ITERATORS = (
    *map(type, map(iter, ((), [], {}, {}.items(), {}.values(), set(), "", range(0)))),
    *(zip, map, filter, enumerate, reversed, GeneratorType),
)
_NOISE = frozenset({"__dict__", "__weakref__", "__doc__", "__module__", "__annotations__"})
_SAVING = frozenset(
    {"_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks"}
    | {"_load_state_dict_post_hooks"}
)
"""Attributes of a module that say how it is saved, not what it computes."""
_LOOKED_INTO = frozenset(
    {"argparse", "collections", "configparser", "fractions", "functools", "queue", "statistics"}
    | {"string", "weakref"}
)
"""Modules of Python's library whose objects hold what programs put into them."""


class _Parts(NamedValues):
    """Notes things that are read by a few parts of theirs."""

    def _function(self, path: str, function: FunctionType) -> None:
        self.guard.add_function(function)
        code = function.__code__
        self.note(path, "function", code)
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            self.later(name, cell)
        self.later(f"a default of {path}", function.__defaults__)
        self.later(f"a default of {path}", function.__kwdefaults__)
        if vars(function):
            self.later(path, vars(function))
        if not is_library(code.co_filename):
            for names in captured_names(code):
                self.read_name(function, names)

    def _sequence(self, path: str, value: Sequence[Any]) -> None:
        if not isinstance(value, tuple):
            self.guard.add(value)
        content = held(value)
        self.note(path, type(value), len(content))
        for position, item in enumerate(content):
            self.later(f"{path}[{position}]", item)

    def _cell(self, path: str, cell: CellType) -> None:
        try:
            content = cell.cell_contents
        except ValueError:  # nothing has been bound yet
            self.note(path, "missing")
            return
        self.guard.add_cell(cell)
        self.later(path, content)

    def _method(self, path: str, method: MethodType) -> None:
        self.note(path, "method")
        self.later(path, method.__func__)
        self.later(path.rpartition(".")[0] or path, method.__self__)

    def _partial(self, path: str, value: partial[Any]) -> None:
        self.note(path, "partial")
        for name in ("args", "keywords", "func"):
            self.later(f"{path}.{name}", getattr(value, name))

    def _descriptor(self, path: str, value: Any) -> None:
        self.note(path, type(value))
        for name in ("__func__", "fget", "func"):
            if (function := getattr(value, name, None)) is not None:
                self.later(path, function)

    def _members(self, path: str, members: dict[str, Any]) -> None:
        """Parameters, buffers or modules of a module, under the names that people know."""
        self.guard.add(members)
        self.note(path, type(members), *members)
        for name, item in members.items():
            self.later(f"{path}.{name}", item)

    def _caching(self, path: str, cached: Any) -> None:
        """A function of ``functools.cache``: itself, and the results that it would give again."""
        self.later(path, cached.__wrapped__)
        code = getattr(cached.__wrapped__, "__code__", None)
        if code is None or is_library(code.co_filename):
            return
        self.guard.add_cache(cached)
        found = cached_results(cached)
        self.note(path, "cache", len(found))
        for item in found:
            self.later(f"the cache of {path}", item)

    def _weak(self, path: str, reference: ReferenceType[Any]) -> None:
        """An object that a weak reference names; tensors are found where they belong."""
        value = reference()
        self.note(path, "reference", value is None)
        if value is not None and not isinstance(value, torch.Tensor):
            self.later(path, value)


class Collector(_Parts):
    """Visits everything that functions and objects may read, once.

    Args:
        roots: The functions and objects, each with a name for people.

    Attributes:
        tokens: What was found, each with where it is.
        tensors: The distinct tensors among it, in order.
        paths: Where each tensor is.
        positions: The position of each tensor, by identity.
        generators: The generators of random numbers among it.
        foreign: Those of Python's and NumPy's.
        seen: The number of each other object, by identity, with the object, which thus stays.
        guard: The containers that were visited.
    """

    def __init__(self, roots: Iterable[tuple[str, Any]]):
        super().__init__([*roots][::-1])
        self.tensors: list[torch.Tensor] = []
        self.paths: list[str] = []
        self.positions: dict[int, int] = {}
        self.generators: list[torch.Generator] = []
        self.foreign: list[Any] = []
        self.seen: dict[int, tuple[int, Any]] = {}
        self._own: dict[int, bool] = {}
        while self.todo:
            self._visit(*self.todo.pop())

    def _is_own(self, kind: type[Any]) -> bool:
        """Whether a class, or a base of it, is no library's; asked for each of many values."""
        known = self._own.get(id(kind))
        if known is None:
            known = self._own[id(kind)] = any(_own_bases(kind))
        return known

    def _visit(self, path: str, value: Any) -> None:
        if (token := value_token(value)) is not None:
            self.note(path, *token)
            if self._is_own(type(value)):
                self.later(type(value).__name__, type(value))
                if (attributes := _attributes_of(value)) is not None:
                    self.guard.add(attributes)  # none so far, but of an enumeration's
        elif (refusal := _refusal(path, value)) is not None:
            if not self.is_wide:
                raise refusal
            self.note(path, "constant", Same(value))
        elif isinstance(value, torch.Tensor):
            self._tensor(path, value)
        elif id(value) in self.seen:
            self.note(path, "same", self.seen[id(value)][0])
        else:
            self.seen[id(value)] = len(self.seen), value
            self._object(path, value)

    def _tensor(self, path: str, tensor: torch.Tensor) -> None:
        known = self.positions.setdefault(id(tensor), len(self.tensors))
        if known < len(self.tensors):
            self.note(path, "same tensor", known)
        else:
            self.tensors.append(tensor)
            self.paths.append(path)
            self.note(path, "tensor", tensor_token(tensor))
            if has_hooks(tensor):
                self.note(path, "a hook on its gradient")
            if not isinstance(tensor, FakeTensor):  # what a trace knows is nobody's closure
                self._mapping(path, vars(tensor))

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
            case _ if type(value) in ProxyTypes:
                self.note(path, "proxy")
                self.later(path, value.__reduce_ex__.__self__)
            case dict() | MappingProxyType():
                self._mapping(path, cast(Any, value))
                if isinstance(value, defaultdict):
                    self.guard.add_slot(value, "default_factory")
                    self.later(f"{path}.default_factory", value.default_factory)
                self._own_state(path, value)
            case list() | tuple() | deque() | set() | frozenset():
                self._sequence(path, cast(Any, value))
                self._own_state(path, value)
            case str() | int() | float():
                self.note(path, type(value), plain_repr(value))
                self._own_state(path, value)
            case property() | staticmethod() | classmethod():
                self._descriptor(path, cast(Any, value))
            case type():
                self._class(path, cast(Any, value))
            case ModuleType():
                self.add_module(path, value)
            case BuiltinFunctionType():
                self.note(path, "constant", Same(value))
            case ContextVar():
                self.guard.add_probe(partial(_content, value))
                self.later(path, value.get(None))
            case Context():
                self.guard.add_probe(partial(_of_context, value))
                self.later(path, dict(value.items()))
            case threading.local():
                self.guard.add_probe(partial(_of_thread, value))
                self.later(path, dict(vars(value)))
            case ReferenceType():
                self._weak(path, cast(Any, value))
            case bytearray() | memoryview() | array():
                self.note(path, type(value), self.guard.add_probe(partial(bytes, value)))
                self.guard.add_memory(value)
            case _ if (probe := probe_of_value(value)) is not None:
                self.note(path, "state", self.guard.add_probe(probe))
            case _ if isinstance(value, _CACHED):
                self._caching(path, value)
            case _ if is_foreign(value):
                self.foreign.append(value)
                self.note(path, "generator", Same(value))
            case _ if type(value).__module__ == "numpy" and hasattr(value, "tobytes"):
                self.guard.add_array(value, value.tobytes())
                self.note(path, "array", str(value.dtype), value.shape, value.tobytes())
            case _:
                self._instance(path, value)

    def _mapping(self, path: str, value: Mapping[Any, Any]) -> None:
        self.guard.add(value)
        content: Mapping[Any, Any] = held(value)
        self.note(path, type(value), *map(key_token, content))
        for key, item in content.items():
            self.later(f"{path}[{key!r:.40}]", item)

    def _class(self, path: str, kind: type[Any]) -> None:
        self.note(path, "class", Same(kind))
        if type(kind) is not type:
            self.later(f"type({path})", type(kind))
        if self._is_own(kind):
            self.guard.add_class(kind)
            self.note(path, "bases", *map(Same, kind.__mro__))
        if isinstance(kind, ABCMeta):  # which classes are registered as its own
            self.note(path, "state", self.guard.add_probe(get_cache_token))
        for base in _own_bases(kind):
            self.guard.add(vars(base))
            for name, item in vars(base).items():
                if name not in _NOISE:
                    self.later(f"{path}.{name}", item)

    def _instance(self, path: str, value: Any) -> None:
        kind = type(value)
        attributes = _attributes_of(value)
        if attributes is None:
            self._slots(path, value)
            return
        if (wrapped := attributes.get("__wrapped__")) is not None and _is_ours(kind):
            self.note(path, "traced")
            self.later(path, wrapped)
            return
        self.guard.add_instance(value)
        self.guard.add(attributes)
        self.note(path, "instance", Same(kind), *attributes)
        self.later(kind.__name__, kind)
        is_module = isinstance(value, torch.nn.Module)
        if is_module:
            for hooks in global_module_hooks():
                self.later("hooks of all modules", hooks)
        for name, item in attributes.items():
            if is_module and name in ("_parameters", "_buffers", "_modules"):
                self._members(path, item)
            elif not (is_module and name in _SAVING):
                self.later(f"{path}.{name}", item)

    def _own_state(self, path: str, value: Any) -> None:
        """What an object of a class made of one of Python's holds besides its value."""
        kind = type(value)
        if not self._is_own(kind):
            return
        self.guard.add_instance(value)
        self.later(kind.__name__, kind)
        if (attributes := _attributes_of(value)) is not None:
            self._mapping(path, attributes)
        for name in _bound_slots(value):
            self.guard.add_slot(value, name)
            self.later(f"{path}.{name}", getattr(value, name))

    def _slots(self, path: str, value: Any) -> None:
        """An object without a dictionary: what its slots hold; itself, if it has none."""
        self.note(path, "object", Same(value))
        if isinstance(value, torch.Generator):
            self.generators.append(value)
        if self._is_own(type(value)):
            self.guard.add_instance(value)
            self.later(type(value).__name__, type(value))
        for name in _bound_slots(value):
            self.guard.add_slot(value, name)
            self.later(f"{path}.{name}", getattr(value, name))


def _refusal(path: str, value: Any) -> TraceError | None:
    """The refusal of what nothing can look into, or None."""
    kind = type(value)
    if kind in _ITERATORS or _module_name(kind) == "itertools":
        return TraceError(
            f"the function closes over an iterator ({kind.__name__} in {path}): how far it has "
            "come is not known",
            remedy="Give what it yields as an argument, or keep a list.",
        )
    if is_lazy(value):
        return TraceError(
            f"the function closes over a parameter that is not initialized ({path})",
            remedy="Call the module once, so that it knows its sizes.",
        )
    if isinstance(value, torch.jit.ScriptModule):
        return TraceError(
            f"the function closes over a module of TorchScript ({path}), which nothing traces",
            remedy="Use the module that it was made of.",
        )
    code = getattr(value, "__code__", None) if kind is FunctionType else None
    if code and "initial_seed" in code.co_names and not is_library(code.co_filename):
        return TraceError(
            f"the function reads the seed of random numbers (in {path})",
            remedy="Read it outside the traced function.",
        )
    return None


def _of_context(context: Context) -> dict[Any, Same]:
    return {variable: Same(value) for variable, value in context.items()}


def _content(variable: ContextVar[Any]) -> Same:
    return Same(variable.get(None))


def _of_thread(values: threading.local) -> dict[str, Same]:
    return {name: Same(value) for name, value in vars(values).items()}


def _own_bases(kind: type[Any]) -> Iterator[type[Any]]:
    """Yield a class and its bases, without those of libraries."""
    for base in kind.__mro__:
        name = _module_name(base)
        module = sys.modules.get(name)
        is_known = module is not None or name.split(".")[0] in sys.stdlib_module_names
        if not is_known or (module is not None and not is_library_module(module)):
            yield base


def _module_name(kind: type[Any]) -> str:
    """The name of a class's module; the class may have another thing under that name."""
    name: Any = vars(kind).get("__module__", kind.__module__)
    return name if type(name) is str else ""


def _attributes_of(value: Any) -> dict[str, Any] | None:
    """Return the dictionary of an object, or None if it is read by its slots alone."""
    try:  # a class may say itself what its attributes are
        state = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return cast(Any, state) if isinstance(state, dict) and not _is_opaque(type(value)) else None


def _bound_slots(value: Any) -> Iterator[str]:
    """Yield the slots of an object that hold something."""
    for base in type(value).__mro__ if not _is_opaque(type(value)) else ():
        names: Any = base.__dict__.get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            if hasattr(value, name):
                yield name


def _is_ours(kind: type[Any]) -> bool:
    return _module_name(kind).startswith("torch_ir.")


def _is_opaque(kind: type[Any]) -> bool:
    """Whether objects of a class are what they are: those of Python's own library."""
    name = _module_name(kind)
    if kind is SimpleNamespace or name in _LOOKED_INTO:
        return False
    return name.partition(".")[0] in sys.stdlib_module_names
