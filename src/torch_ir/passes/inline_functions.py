"""Functions that are called without condition, written out where they are called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch_ir.ir import IR
from torch_ir.passes.base import Pass, PassResult
from torch_ir.passes.inline import GRADIENT_SCOPES, inline_scopes

CALLS = GRADIENT_SCOPES | {
    "higher_order.invoke_subgraph",
    "higher_order.tag_activation_checkpoint",
}
"""Operators that call a function once, and do nothing else that changes a value."""


@dataclass(frozen=True)
class InlineFunctions(Pass):
    """Writes functions out where they are called; see :func:`inline_functions`."""

    name: ClassVar[str] = "inline-functions"

    def call(self, ir: IR) -> PassResult:
        """Inline the functions that are called without condition."""
        result = inline_functions(ir)
        return PassResult(result, result is not ir)


def inline_functions(ir: IR) -> IR:
    """Inline each function that is called without condition.

    Those are repeated blocks, checkpoints of activations, and scopes that switch the recording of
    gradients. Branches, loops and regions under autocast stay. The nodes have the locations that
    they have in the function. The same object if there is nothing to do.
    """
    return inline_scopes(ir, CALLS)
