"""Programs without in-place operators: writes become new values."""

from torch_ir.passes.functionalization.shown_writes import (
    with_shown_results,
    with_shown_writes,
)
from torch_ir.passes.functionalization.walk import (
    Functionalize,
    functional_form,
    functionalize,
    without_writes,
)

__all__ = [
    "Functionalize",
    "functional_form",
    "functionalize",
    "with_shown_results",
    "with_shown_writes",
    "without_writes",
]
