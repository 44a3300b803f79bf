"""Calls of functions: written out in place, and made of what repeats."""

from torch_ir.ir.functions.inlining import CALLS, GRADIENT_SCOPES, MODULE, inline_scopes
from torch_ir.ir.functions.outlining import CALL, layer_path, merged_functions, outlined

__all__ = [
    "CALL",
    "CALLS",
    "GRADIENT_SCOPES",
    "MODULE",
    "inline_scopes",
    "layer_path",
    "merged_functions",
    "outlined",
]
