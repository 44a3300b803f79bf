"""Calls of operators that torch has no gradient of, though it has of the operators they stand for.

``aten.copy`` is what functionalization makes of ``aten.copy_``, which has a gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch


def copy(target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """Return what ``aten.copy`` returns: the source with the shape, dtype and strides of a target.

    The gradient goes to the source; that of the target is zeros, as where it is written in place.

    Example:
        >>> target, source = torch.zeros(2, 2), torch.ones(2, requires_grad=True)
        >>> copy(target, source).sum().backward()
        >>> source.grad
        tensor([2., 2.])
    """
    made: torch.Tensor = torch.ops.aten.copy.default(target.detach(), source.detach())
    if target.requires_grad:
        made.copy_(target)
    # torch writes the tangent in the layout of the source's, which may not be written
    return made.copy_(source.contiguous(), non_blocking)


def normal_functional(mean: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Return what ``aten.normal_functional`` returns; it depends on no value of its argument."""
    return torch.ops.aten.normal_functional.default(mean.detach(), *args, **kwargs)


FORMULAS: Mapping[str, Callable[..., torch.Tensor]] = {
    "aten.copy.default": copy,
    "aten.normal_functional.default": normal_functional,
}
"""By operator: a function that gives the same and has a gradient."""
