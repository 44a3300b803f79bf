"""Rewriting by pattern: Python functions, traced, say what to look for and what to put there."""

from torch_ir.passes.patterns.bind import bind_pattern_to_op, fusion
from torch_ir.passes.patterns.matcher import Match
from torch_ir.passes.patterns.rewrite import Rewrite, RewritePatterns, rewrite_patterns

__all__ = [
    "Match",
    "Rewrite",
    "RewritePatterns",
    "bind_pattern_to_op",
    "fusion",
    "rewrite_patterns",
]
