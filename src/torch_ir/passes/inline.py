"""Functions that are called without condition, written out where they are called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch_ir.arguments import public
from torch_ir.ir import IR
from torch_ir.ir.functions import CALLS, inline_scopes
from torch_ir.passes.base import Pass, PassResult


@dataclass(frozen=True)
class InlineFunctions(Pass):
    """Writes functions out where they are called; see :func:`inline_functions`."""

    name: ClassVar[str] = "inline-functions"

    def call(self, ir: IR) -> PassResult:
        """Write functions out where they are called."""
        return PassResult.of(ir, inline_functions(ir))


@public
def inline_functions(ir: IR) -> IR:
    """Write each function that is called without condition out in place of its call.

    Those are repeated blocks, checkpoints of activations, and scopes that switch the recording of
    gradients. Branches, loops and regions under autocast stay. The nodes have the locations that
    they have in the function; where it knows its module path, the path of the call stands in place
    of that. The same object if there is nothing to do.
    """
    return inline_scopes(ir, CALLS)
