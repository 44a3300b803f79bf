"""The operator ``higher_order.autograd_function``: a function and the gradient that it defines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from torch_ir.torch_api import DelayedError, HigherOrderOperator

Function = Callable[..., Sequence[torch.Tensor]]


class Gradient(NamedTuple):
    """The gradient of a function.

    Attributes:
        bwd: Takes saved values, then cotangents; gives gradients of operands.
        saved: What it takes first, by position among the operands and, after them, the results.
        differentiable: The results whose cotangents it takes.
        wanted: The operands whose gradients it gives.
        once: Its gradients have no gradients.
    """

    bwd: Function
    saved: Sequence[int]
    differentiable: Sequence[int]
    wanted: Sequence[int]
    once: bool = False


class CallWithGradient(torch.autograd.Function):
    """Calls a function, with a gradient that may have gradients.

    Results that are saved alone are constant there, as values between are in eager.
    """

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]  # torch passes what apply is given
        ctx: Any, fwd: Function, gradient: Gradient, *operands: Any
    ) -> tuple[torch.Tensor, ...]:
        """Return what the function gives for the operands."""
        made = tuple(fwd(*operands))
        known = (*operands, *made)
        saved = [known[position] for position in gradient.saved]
        ctx.gradient, ctx.count = gradient, len(operands)
        ctx.save_for_backward(*[v if isinstance(v, torch.Tensor) else None for v in saved])
        ctx.numbers = [None if isinstance(v, torch.Tensor) else v for v in saved]
        constant = [t for i, t in enumerate(made) if i not in gradient.differentiable]
        ctx.mark_non_differentiable(*constant)
        return made

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> tuple[Any, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]  # as above
        """Return the gradients that ``bwd`` gives, None for other operands."""
        pairs = zip(ctx.saved_tensors, ctx.numbers, strict=True)
        saved = [number if tensor is None else tensor for tensor, number in pairs]
        bwd, _, differentiable, wanted, once = ctx.gradient

        values = [*saved, *[cotangents[position] for position in differentiable]]
        found = _once(bwd, values) if once else tuple(bwd(*values))
        gradients = dict(zip(wanted, found, strict=True))
        return (None, None, *[gradients.get(position) for position in range(ctx.count)])


def _once(function: Function, values: Sequence[Any]) -> tuple[torch.Tensor, ...]:
    """Call a function whose results raise where gradients of them are taken.

    In eager the error hides from gradients of chosen inputs, which pass it by.
    """
    with torch.no_grad():
        made = tuple(function(*values))
    tensors = [
        value for value in values if isinstance(value, torch.Tensor) and value.requires_grad
    ]
    if not (tensors and torch.is_grad_enabled()):
        return made
    refuse = DelayedError(
        "trying to differentiate twice a function whose gradient is given by "
        "@once_differentiable, or with gradients switched off",
        len(made) + len(tensors),
    )
    return refuse(*made, *tensors)[: len(made)]


class AutogradFunction(HigherOrderOperator):
    """Calls ``fwd`` on the operands; gradients that pass through the call are those of ``bwd``."""

    def __init__(self) -> None:
        super().__init__("autograd_function")

    def __call__(  # pyright: ignore[reportIncompatibleMethodOverride]  # as operators of torch do
        self,
        fwd: Function,
        bwd: Function,
        *args: Any,
        saved: Sequence[int],
        differentiable: Sequence[int],
        wanted: Sequence[int],
        once: bool = False,
    ) -> Sequence[torch.Tensor]:
        """Return what ``fwd`` gives."""
        if not torch.is_grad_enabled() or not any(args[i].requires_grad for i in wanted):
            return fwd(*args)
        gradient = Gradient(bwd, saved, differentiable, wanted, once)
        return CallWithGradient.apply(fwd, gradient, *args)


autograd_function = AutogradFunction()
