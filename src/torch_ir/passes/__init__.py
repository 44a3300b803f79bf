"""Passes: programs in, programs out; each keeps what the program computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch_ir.lazy import lazy_names
from torch_ir.passes.base import Pass, PassResult, run_passes
from torch_ir.passes.casts import CleanCasts, clean_casts
from torch_ir.passes.common_subexpressions import (
    EliminateCommonSubexpressions,
    common_subexpressions,
)
from torch_ir.passes.dead_code import EliminateDeadCode, eliminate_dead_code
from torch_ir.passes.inline import InlineFunctions, inline_functions
from torch_ir.passes.materialize_symbols import MaterializeSymbols, materialize_symbols
from torch_ir.passes.no_ops import RemoveNoOps, remove_no_ops
from torch_ir.passes.outline import Outline, outline
from torch_ir.passes.pass_registry import (
    pass_named,
    pass_names,
    passes_named,
    register_pass,
    unregister_pass,
)

if TYPE_CHECKING:
    from torch_ir.passes.batch_norm_folding import fold_batch_norm
    from torch_ir.passes.constant_folding import FoldConstants, fold_constants
    from torch_ir.passes.decomposition import Decompose, decompose
    from torch_ir.passes.functionalization import Functionalize, functionalize
    from torch_ir.passes.quantized.fusion import FuseQuantized, fuse_quantized
    from torch_ir.passes.weight_folding import FoldedProgram, fold_weights

__all__ = [
    "CleanCasts",
    "Decompose",
    "EliminateCommonSubexpressions",
    "EliminateDeadCode",
    "FoldConstants",
    "FoldedProgram",
    "Functionalize",
    "FuseQuantized",
    "InlineFunctions",
    "MaterializeSymbols",
    "Outline",
    "Pass",
    "PassResult",
    "RemoveNoOps",
    "clean_casts",
    "common_subexpressions",
    "decompose",
    "eliminate_dead_code",
    "fold_batch_norm",
    "fold_weights",
    "fold_constants",
    "functionalize",
    "fuse_quantized",
    "inline_functions",
    "materialize_symbols",
    "outline",
    "pass_named",
    "pass_names",
    "passes_named",
    "register_pass",
    "remove_no_ops",
    "run_passes",
    "unregister_pass",
]

__getattr__ = lazy_names(
    __name__,
    {
        "torch_ir.passes.decomposition": ("Decompose", "decompose"),
        "torch_ir.passes.functionalization": ("Functionalize", "functionalize"),
        "torch_ir.passes.constant_folding": ("FoldConstants", "fold_constants"),
        "torch_ir.passes.weight_folding": ("FoldedProgram", "fold_weights"),
        "torch_ir.passes.batch_norm_folding": ("fold_batch_norm",),
        "torch_ir.passes.quantized.fusion": ("FuseQuantized", "fuse_quantized"),
    },
    renamed={
        "FuseQuantised": "FuseQuantized",
        "fuse_quantised": "fuse_quantized",
        "MaterialiseSymbols": "MaterializeSymbols",
        "materialise_symbols": "materialize_symbols",
    },
)
