"""Names that a function's code reads from outside: globals, and attributes of modules."""

from __future__ import annotations

import dis
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import CodeType, MappingProxyType, ModuleType

import torch

IMPORTED = "import"
"""The first part of a chain that begins with a module imported inside the function."""

FREE = "free variable"
"""The first part of a chain that begins with a variable of the closure."""

_LOADS = ("LOAD_GLOBAL", "LOAD_NAME")
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
_LOCALS = ("LOAD_FAST", "LOAD_DEREF")
_HERE = Path(__file__).parents[2]
_LIBRARIES = tuple(
    {
        f"{folder}/"
        for folder in (
            *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
            Path(torch.__file__).parent,
            _HERE,
        )
    }
)


@lru_cache(maxsize=4096)
def is_library(file: str) -> bool:
    """Return whether a source file belongs to an installed package, Python or this package.

    What code there reads is taken to be constant.

    Example:
        >>> is_library(torch.__file__), is_library("/home/me/model.py")
        (True, False)
    """
    return file.startswith((*_LIBRARIES, "<frozen"))


def is_library_module(module: ModuleType) -> bool:
    """Return whether a module is of an installed package; one made at run time is not.

    Example:
        >>> is_library_module(torch), is_library_module(ModuleType("mine"))
        (True, False)
    """
    names = vars(module)  # its __getattr__ may give anything
    file, name = names.get("__file__"), str(names.get("__name__"))
    package = sys.modules.get(name.partition(".")[0])
    if "." in name and isinstance(package, ModuleType):  # one may have a name, and no file
        return is_library_module(package)
    if isinstance(file, str):
        return is_library(file)
    if name == "__main__":
        return False
    places = [f"{place}/" for place in names.get("__path__", ())]
    is_built_in = name.partition(".")[0] in sys.stdlib_module_names
    return is_built_in or (bool(places) and all(map(is_library, places)))


@lru_cache(maxsize=4096)
def captured_names(code: CodeType) -> tuple[tuple[str, ...], ...]:
    """Return the globals that code reads, each with the attributes read from it at once.

    Example:
        >>> captured_names((lambda x: torch.nn.functional.relu(x) + SCALE).__code__)
        (('torch', 'nn', 'functional', 'relu'), ('SCALE',))
    """
    return tuple(dict.fromkeys(_reads(code)))


def _reads(
    code: CodeType, bound: Mapping[str, tuple[str, ...]] = MappingProxyType({})
) -> Iterator[tuple[str, ...]]:
    """Yield what code reads; some of its variables are bound to modules already."""
    chain, modules = list[str](), dict(bound)
    given, module, binding = None, tuple[str, ...](), tuple[str, ...]()
    for instruction in dis.get_instructions(code):
        name, argument = instruction.opname, instruction.argval
        if chain and name in _ATTRIBUTES:
            chain.append(str(argument))
            continue
        if chain:
            yield tuple(chain)
            chain = []
        if name == "LOAD_CONST":
            given = argument
        elif name in _LOADS:
            chain = [str(argument)]
        elif name.startswith(_LOCALS):
            variable = argument[-1] if isinstance(argument, tuple) else argument
            chain = list(modules.get(variable, (FREE, variable) if "DEREF" in name else ()))
        elif name == "IMPORT_NAME":  # "import a.b" binds a, with "as" and "from" what they name
            module = (IMPORTED, str(argument))
            binding = module if given else (IMPORTED, module[1].partition(".")[0])
        elif name == "IMPORT_FROM":
            binding = (*module, str(argument)) if given else module
            yield binding
        elif name.startswith("STORE_") and binding:
            modules[str(argument)], binding = binding, ()
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from _reads(part, modules)
