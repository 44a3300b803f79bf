"""Comparing what runs with what was meant."""

from torch_ir.debug.compare import Difference, compare_tensors
from torch_ir.debug.nodes import NodeDifference, NodeReport
from torch_ir.debug.verify import (
    VerificationReport,
    verify,
    verify_ir,
    verify_ir_with_state_dict,
)

__all__ = [
    "Difference",
    "NodeDifference",
    "NodeReport",
    "VerificationReport",
    "compare_tensors",
    "verify",
    "verify_ir",
    "verify_ir_with_state_dict",
]
