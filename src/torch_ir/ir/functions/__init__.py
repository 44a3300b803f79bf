"""Calls of functions: written out in place, and made of what repeats."""

from torch_ir.ir.functions.inlining import (
    CALLS,
    GRADIENT_SCOPES,
    MODULE,
    inline_scopes,
    map_locations,
    rerooted,
)
from torch_ir.ir.functions.outlining import (
    CALL,
    LayerRun,
    add_layer,
    call_layer,
    function_key,
    function_of,
    layer_path,
    merged_functions,
    outlined,
    written_out,
)

__all__ = [
    "CALL",
    "CALLS",
    "GRADIENT_SCOPES",
    "MODULE",
    "LayerRun",
    "add_layer",
    "call_layer",
    "function_key",
    "function_of",
    "inline_scopes",
    "layer_path",
    "map_locations",
    "merged_functions",
    "outlined",
    "rerooted",
    "written_out",
]
