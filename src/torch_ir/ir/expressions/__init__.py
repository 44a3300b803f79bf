"""The language of symbolic expressions: read, spelled in one canonical way, evaluated, solved."""

from torch_ir.ir.expressions.evaluation import evaluate_expression
from torch_ir.ir.expressions.language import FUNCTIONS, Algebra, Number, fold, renamed, symbols_of
from torch_ir.ir.expressions.normal_form import canonical, expressions_of, kind_of, solve_linear

__all__ = [
    "FUNCTIONS",
    "Algebra",
    "Number",
    "canonical",
    "evaluate_expression",
    "expressions_of",
    "fold",
    "kind_of",
    "renamed",
    "solve_linear",
    "symbols_of",
]
