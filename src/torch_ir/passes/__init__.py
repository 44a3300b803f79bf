"""Passes: programs in, programs out; each keeps what the program computes."""

from torch_ir.passes.base import Pass, PassResult, run_passes
from torch_ir.passes.dead_code import EliminateDeadCode, eliminate_dead_code
from torch_ir.passes.functionalize import Functionalize, functionalize

__all__ = [
    "EliminateDeadCode",
    "Functionalize",
    "Pass",
    "PassResult",
    "eliminate_dead_code",
    "functionalize",
    "run_passes",
]
