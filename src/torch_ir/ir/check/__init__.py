"""Structural checks of an IR, without torch: single nodes, the graph, and calls of functions."""

from torch_ir.ir.check.operators import forbidden, forbidden_calls
from torch_ir.ir.check.structure import Finding, check

__all__ = ["Finding", "check", "forbidden", "forbidden_calls"]
