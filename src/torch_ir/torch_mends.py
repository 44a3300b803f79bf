"""Faults of older versions of torch that would give programs wrong types: mended where they are.

A trace takes torch's word for the types of results, and goes on with them. So nothing behind it
could mend a program, and a fault is mended for whatever runs in the process.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch._decomp.decompositions

State = tuple[torch.Tensor, torch.Tensor]


def mend_torch(version: str) -> None:
    """Mend what is wrong in a version of torch.

    Args:
        version: What torch says of itself, such as ``"2.11.0+cpu"``.

    Example:
        >>> mend_torch("2.13.0+cpu")
    """
    if tuple(map(int, version.split(".")[:2])) < (2, 13):
        found: Any = torch._decomp.decompositions
        found.one_layer_lstm = _with_states_of_two_dimensions(found.one_layer_lstm)


def _with_states_of_two_dimensions(
    layer: Callable[..., tuple[torch.Tensor, State]],
) -> Callable[..., tuple[torch.Tensor, State]]:
    """One layer of an LSTM whose states keep no dimension of steps, whatever the batch size."""

    @wraps(layer)
    def mended(*args: Any, **kwargs: Any) -> tuple[torch.Tensor, State]:
        out, (hidden, cell) = layer(*args, **kwargs)
        return out, (hidden.view(hidden.shape[-2:]), cell.view(cell.shape[-2:]))

    return mended
