"""Values that names read: globals, attributes of modules, and modules that are found by a name."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Mapping
from types import FunctionType, ModuleType
from typing import Any

from torch_ir.frozen import Same
from torch_ir.traced.call_key import Token
from torch_ir.traced.guards.captured_names import FREE, IMPORTED, is_library_module
from torch_ir.traced.guards.guard import MISSING, ClosureGuard
from torch_ir.traced.guards.probes import probe_of

_NAMESPACES = frozenset({"globals", "eval", "exec"})
"""Builtins that read names which are computed."""
_MODULES = frozenset({("sys", "modules"), ("importlib", "import_module")})
"""What gives a module by a name that is computed."""
_SAID = frozenset({"__annotations__", "__doc__", "__module__", "__name__", "__qualname__"})
"""What is said of functions and classes; hardly any code reads it, so it is guarded where some
does."""


class NamedValues:
    """Follows names to what they read, which is visited later.

    Args:
        roots: The functions and objects that are visited, each with a name for people.

    Attributes:
        tokens: What was found, each with where it is.
        guard: The containers that were visited.
        todo: What is still to be visited.
        is_wide: Whether whole namespaces are visited, much of which nothing reads.
    """

    def __init__(self, roots: list[tuple[str, Any]]):
        self.tokens: list[tuple[str, Token]] = []
        self.guard = ClosureGuard()
        self.todo = roots
        self.is_wide = False

    def note(self, path: str, *token: Token) -> None:
        """Note what is found at a place."""
        self.tokens.append((path, token))

    def later(self, path: str, value: Any) -> None:
        """Have something visited."""
        self.todo.append((path, value))

    def read_name(self, function: FunctionType, names: tuple[str, ...]) -> None:
        """Note what a chain of names reads, as far as it leads from module to module."""
        namespace: Mapping[str, Any] = function.__globals__
        first, *rest = names
        if first == IMPORTED:
            namespace, first, *rest = sys.modules, *rest
        elif first == FREE:
            namespace, first, *rest = _read_by_name(function), *rest
            if first not in namespace or not rest:
                return
            if not isinstance(namespace[first], ModuleType) and rest[0] not in _SAID:
                return  # its cell is looked at anyway
        path, whole = first, namespace
        while True:
            if first not in namespace and hasattr(builtins, first):
                if first in _NAMESPACES:
                    self.is_wide = True
                    self.later("its globals", whole)
                elif first == "__import__":
                    self._all_modules()
                return
            value: Any = self.guard.add_name(namespace, first)
            if not isinstance(value, ModuleType) or not rest:
                break
            if (value.__name__, rest[0]) in _MODULES:
                self._all_modules()
            elif (probe := probe_of(value.__name__, rest)) is not None:
                self.note(path, "state", self.guard.add_probe(probe))
            elif not is_library_module(value):
                self._module_hooks(path, value)
                namespace, first, *rest = vars(value), *rest
                path = f"{path}.{first}"
                continue
            self.note(path, "constant", Same(value))
            return
        if value is MISSING:
            self.note(path, "missing")
            return
        if isinstance(value, FunctionType | type) and rest and rest[0] in _SAID:
            self.guard.add_slot(value, rest[0])
            self.later(f"{path}.{rest[0]}", getattr(value, rest[0], MISSING))
        self.later(path, value)

    def _all_modules(self) -> None:
        """All modules that are no library's: code looks one up by a name that is computed."""
        self.is_wide = True
        for name, module in [*sys.modules.items()]:
            if _is_module(module) and not is_library_module(module):
                self.later(name, module)

    def add_module(self, path: str, module: ModuleType) -> None:
        """Note a module, and what is in one that is no library's."""
        self.note(path, "constant", Same(module))
        if not is_library_module(module):
            self._module_hooks(path, module)
            self.later(path, vars(module))

    def _module_hooks(self, path: str, module: ModuleType) -> None:
        """What computes the attributes of a module that are not in its dictionary."""
        if type(module) is not ModuleType:
            self.later(f"{path}.__class__", type(module))
        if (hook := vars(module).get("__getattr__")) is not None:
            self.later(f"{path}.__getattr__", hook)


def _is_module(value: object) -> bool:
    """Whether something that stands among the modules is one."""
    return isinstance(value, ModuleType)


def _read_by_name(function: FunctionType) -> dict[str, Any]:
    """The variables of a closure that hold modules, functions and classes."""
    found: dict[str, Any] = {}
    pairs = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    for name, cell in pairs:
        try:
            content = cell.cell_contents
        except ValueError:  # nothing has been bound yet
            continue
        if isinstance(content, ModuleType | FunctionType | type):
            found[name] = content
    return found
