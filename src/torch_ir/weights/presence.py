"""The refusal to run a program with weights without any, before torch is loaded."""

from __future__ import annotations

from torch_ir.errors import MissingWeightsError, counted
from torch_ir.ir.graph import IR


def require_weights(ir: IR, weights: object, remedy: str = "") -> None:
    """Refuse to go on without weights.

    Args:
        ir: The program.
        weights: What was given; None for nothing.
        remedy: How they are given, if not as a state dict.

    Raises:
        MissingWeightsError: The program has weights and none were given.
    """
    if ir.weights and weights is None:
        raise MissingWeightsError(
            f"the program has {counted(len(ir.weights), 'weight')} and none were given",
            remedy=remedy or "Give weights, such as model.state_dict().",
        )
