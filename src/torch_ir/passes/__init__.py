"""Passes: programs in, programs out; each keeps what the program computes."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from torch_ir.passes.base import Pass, PassResult, run_passes
from torch_ir.passes.casts import CleanCasts, clean_casts
from torch_ir.passes.common_subexpressions import (
    EliminateCommonSubexpressions,
    common_subexpressions,
)
from torch_ir.passes.dead_code import EliminateDeadCode, eliminate_dead_code
from torch_ir.passes.functionalization import Functionalize, functionalize
from torch_ir.passes.inline_functions import InlineFunctions, inline_functions
from torch_ir.passes.materialize_symbols import MaterialiseSymbols, materialise_symbols
from torch_ir.passes.no_ops import RemoveNoOps, remove_no_ops
from torch_ir.passes.registry import (
    pass_named,
    pass_names,
    passes_named,
    register_pass,
    unregister_pass,
)

if TYPE_CHECKING:
    from torch_ir.passes.batch_norm_folding import FoldedProgram, fold_batch_norm
    from torch_ir.passes.constant_folding import FoldConstants, fold_constants
    from torch_ir.passes.decomposition import Decompose, decompose
    from torch_ir.passes.quantized.fusion import FuseQuantised, fuse_quantised

__all__ = [
    "CleanCasts",
    "Decompose",
    "EliminateCommonSubexpressions",
    "EliminateDeadCode",
    "FoldConstants",
    "FoldedProgram",
    "Functionalize",
    "FuseQuantised",
    "InlineFunctions",
    "MaterialiseSymbols",
    "Pass",
    "PassResult",
    "RemoveNoOps",
    "clean_casts",
    "common_subexpressions",
    "decompose",
    "eliminate_dead_code",
    "fold_batch_norm",
    "fold_constants",
    "functionalize",
    "fuse_quantised",
    "inline_functions",
    "materialise_symbols",
    "pass_named",
    "pass_names",
    "passes_named",
    "register_pass",
    "remove_no_ops",
    "run_passes",
    "unregister_pass",
]

_NEEDS_TORCH = {
    "Decompose": "decomposition",
    "decompose": "decomposition",
    "FoldConstants": "constant_folding",
    "FoldedProgram": "batch_norm_folding",
    "fold_batch_norm": "batch_norm_folding",
    "fold_constants": "constant_folding",
    "FuseQuantised": "quantized.fusion",
    "fuse_quantised": "quantized.fusion",
}


def __getattr__(name: str) -> object:
    """What needs torch is imported when it is first used."""
    if name not in _NEEDS_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"torch_ir.passes.{_NEEDS_TORCH[name]}"), name)
    globals()[name] = value
    return value
