"""Names that a function's code reads from outside: globals, and attributes of modules."""

from __future__ import annotations

import dis
import sysconfig
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from types import CodeType

import torch

IMPORTED = "import"
"""The first part of a chain that begins with a module imported inside the function."""

_LOADS = ("LOAD_GLOBAL", "LOAD_NAME")
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
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


@lru_cache(maxsize=4096)
def captured_names(code: CodeType) -> tuple[tuple[str, ...], ...]:
    """Return the globals that code reads, each with the attributes read from it at once.

    Example:
        >>> captured_names((lambda x: torch.nn.functional.relu(x) + SCALE).__code__)
        (('torch', 'nn', 'functional', 'relu'), ('SCALE',))
    """
    return tuple(dict.fromkeys(_reads(code)))


def _reads(code: CodeType) -> Iterator[tuple[str, ...]]:
    chain: list[str] = []
    module = ""
    for instruction in dis.get_instructions(code):
        name = instruction.opname
        if chain and name in _ATTRIBUTES:
            chain.append(str(instruction.argval))
            continue
        if chain:
            yield tuple(chain)
            chain = []
        if name in _LOADS:
            chain = [str(instruction.argval)]
        elif name == "IMPORT_NAME":
            module = str(instruction.argval)
            chain = [IMPORTED, module]
        elif name == "IMPORT_FROM":
            yield IMPORTED, module, str(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _reads(constant)
