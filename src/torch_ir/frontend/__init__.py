"""From PyTorch to the IR: torch is first imported here."""

from torch_ir.frontend.conversions import NodeInfo, plain_conversion, register_op, unregister_op
from torch_ir.frontend.export import (
    export_model,
    extract_ir,
    get_model_name,
    load_exported_program,
)
from torch_ir.frontend.lifted_constants import constants_of
from torch_ir.frontend.models.without_weights import without_weights
from torch_ir.frontend.programs import convert_exported_program

__all__ = [
    "NodeInfo",
    "constants_of",
    "convert_exported_program",
    "export_model",
    "extract_ir",
    "get_model_name",
    "load_exported_program",
    "plain_conversion",
    "register_op",
    "unregister_op",
    "without_weights",
]
