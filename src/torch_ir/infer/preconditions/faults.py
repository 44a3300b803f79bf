"""Faults of calls: tensors of the wrong shape, and numbers out of range."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import torch

Arguments: TypeAlias = Mapping[str, Any]
"""The arguments of a call by name; tensors are tensors, or types that have a shape."""

Faults: TypeAlias = Iterator[str]
"""What does not fit in a call, as clauses of a sentence."""


def unlike(name: str, value: Any, shape: Sequence[int]) -> Faults:
    """Yield a fault where a tensor lacks the shape that others ask for."""
    if tuple(value.shape) != tuple(shape):
        yield f"{name} is {[*value.shape]}, and has to be {[*shape]}"


def of_rank(name: str, value: Any, *ranks: int) -> Faults:
    """Yield a fault where a tensor has another number of dimensions."""
    if len(value.shape) not in ranks:
        allowed = " or ".join(map(str, ranks))
        yield f"{name} is {[*value.shape]}, and has to have {allowed} dimensions"


def of_type(name: str, value: torch.Tensor, dtype: torch.dtype) -> Faults:
    """Yield a fault for another element type than a kernel takes."""
    if value.dtype != dtype:
        yield f"{name} is {value.dtype}, and has to be {dtype}"


def outside(name: str, value: int, low: int, high: int) -> Faults:
    """Yield a fault where a number is not from ``low`` to ``high``, which is among them."""
    if not low <= value <= high:
        yield f"{name} is {value}, which is outside of {low} to {high}"


def holds_outside(name: str, tensor: torch.Tensor, low: int, high: int) -> Faults:
    """Yield a fault where an element is not from ``low`` to ``high``, which is among them."""
    if not tensor.numel():
        return
    for found in torch.aminmax(tensor):
        value = int(found)
        if not low <= value <= high:
            yield f"{name} holds {value}, which is outside of {low} to {high}"


def falls(name: str, tensor: torch.Tensor) -> Faults:
    """Yield a fault where an element along the last dimension is less than the one before."""
    if bool((tensor[..., 1:] < tensor[..., :-1]).any()):
        yield f"{name} falls, and has to rise or stay"


def _strides(
    fit: Callable[[Any], bool], wanted: str
) -> Callable[..., Callable[[Arguments], Faults]]:
    """The rule of named tensors whose strides have to fit, in words; one may be absent."""

    def of(*names: str) -> Callable[[Arguments], Faults]:
        def rule(call: Arguments) -> Faults:
            for name in names:
                value = call.get(name)
                if value is not None and not fit(value):
                    yield f"{name} has strides {[*value.stride()]}, and has to {wanted}"

        return rule

    return of


def _repeats(value: torch.Tensor) -> bool:
    pairs = zip(value.stride(), value.shape, strict=True)
    return any(step == 0 and size > 1 for step, size in pairs)


not_dense = _strides(lambda value: value.is_contiguous(), "be contiguous")
"""Tensors lie in row-major order: a kernel reads them as if they did."""
not_matrices = _strides(
    lambda value: value.is_contiguous() or (value.dim() > 1 and value.mT.is_contiguous()),
    "hold dense matrices",
)
"""Tensors are dense, matrices row by row or column by column."""
repeated = _strides(lambda value: not _repeats(value), "repeat no element")
"""No element of some tensors stands for a whole dimension."""
strided_rows = _strides(
    lambda value: value.shape[-1] <= 1 or value.stride(-1) == 1,
    "end with 1",
)
"""Elements of the last dimension lie side by side."""
