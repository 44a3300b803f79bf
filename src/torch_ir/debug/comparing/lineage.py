"""Programs made of one another, compared in turn: the steps of a pipeline of passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from torch_ir.debug.comparing.compared import Pair
from torch_ir.debug.comparing.comparison import Comparison
from torch_ir.debug.comparing.keeping import Kept
from torch_ir.debug.comparing.sources import (
    Externals,
    LoweredSource,
    Reader,
    source_of,
)
from torch_ir.ir import IR


class Lineage:
    """Programs made of one another, compared in turn on the same inputs.

    What torch makes of a value is kept for the next comparison: that of the same program, or of
    the one made of it. A value that a pass makes anew is compared, and where that agrees, what
    reads it is fed the earlier one, which is in memory, for as long as it is laid out alike. So a
    call that no pass has changed is made once, and is never made to compare what follows it.

    Args:
        weights: Tensors by ``state_dict`` key.
        inputs: A tensor for each graph input.
        against: What makes the values that are right.
    """

    def __init__(
        self,
        weights: Mapping[str, torch.Tensor] | None,
        inputs: Sequence[torch.Tensor],
        against: Reader = "aten",
    ):
        self.externals = Externals(weights, None)
        self.inputs, self.against = tuple(inputs), against
        self.kept: list[tuple[IR, Kept]] = []

    def compare(self, before: IR, after: IR) -> Comparison:
        """Compare a program with one that it is made of, in isolation."""
        other = source_of(self.against)
        case = Pair(before, self.externals, source_of(after), other, "isolated")
        case.kept = next((kept for ir, kept in self.kept if ir is case.program), Kept())
        self.kept = []
        case.look_at((self.inputs,), {})
        (state,) = case.states
        programs = [
            case.program,
            *([lowered.ir] if isinstance(lowered := case.judged, LoweredSource) else []),
        ]
        self.kept = list(zip(programs, state.carry(), strict=False))
        return case.report()
