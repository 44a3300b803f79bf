"""Denotations of operators and programs: plain NumPy, written from definitions, without torch."""

from torch_ir.semantics.denote import Evaluation, denote, denote_all
from torch_ir.semantics.draws import Draws
from torch_ir.semantics.ranks import denote_ranks
from torch_ir.semantics.registry import (
    Denotation,
    denotation,
    denoted_operators,
    denotes,
    has_denotation,
)

__all__ = [
    "Denotation",
    "Draws",
    "Evaluation",
    "denotation",
    "denote",
    "denote_all",
    "denote_ranks",
    "denoted_operators",
    "denotes",
    "has_denotation",
]
