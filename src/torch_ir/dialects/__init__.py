"""The dialects that a program goes through, and what each allows."""

from torch_ir.dialects.registry import (
    Dialect,
    dialect,
    dialect_names,
    register_dialect,
    verify,
    with_rules,
)
from torch_ir.ir.diagnostics import Violation
from torch_ir.ops.spec import OpSpec, spec_of

__all__ = [
    "Dialect",
    "OpSpec",
    "Violation",
    "dialect",
    "dialect_names",
    "register_dialect",
    "spec_of",
    "verify",
    "with_rules",
]
