"""Passes: programs in, programs out; each keeps what the program computes."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from torch_ir.passes.base import Pass, PassResult, run_passes
from torch_ir.passes.dead_code import EliminateDeadCode, eliminate_dead_code
from torch_ir.passes.functionalization import Functionalize, functionalize

if TYPE_CHECKING:
    from torch_ir.passes.decomposition import Decompose, decompose

__all__ = [
    "Decompose",
    "EliminateDeadCode",
    "Functionalize",
    "Pass",
    "PassResult",
    "decompose",
    "eliminate_dead_code",
    "functionalize",
    "run_passes",
]


def __getattr__(name: str) -> object:
    """What needs torch is imported when it is first used."""
    if name not in ("Decompose", "decompose"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module("torch_ir.passes.decomposition")
    globals().update(Decompose=module.Decompose, decompose=module.decompose)
    return globals()[name]
