"""Rewrites by pattern: traced Python functions say what to look for and what to put there."""

from torch_ir.passes.patterns.apply import NearMiss, RewritePatterns, near_misses, rewrite_patterns
from torch_ir.passes.patterns.bind import bind_pattern_to_op, fusion
from torch_ir.passes.patterns.elements import Match
from torch_ir.passes.patterns.rewrite import Rewrite

__all__ = [
    "Match",
    "NearMiss",
    "Rewrite",
    "RewritePatterns",
    "bind_pattern_to_op",
    "fusion",
    "near_misses",
    "rewrite_patterns",
]
