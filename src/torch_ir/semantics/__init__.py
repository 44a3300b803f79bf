"""What operators mean: plain NumPy, written from their definitions, without torch."""

from torch_ir.semantics.registry import (
    Denotation,
    denotation,
    denoted_operators,
    denotes,
    has_denotation,
)

__all__ = ["Denotation", "denotation", "denoted_operators", "denotes", "has_denotation"]
