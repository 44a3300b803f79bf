"""Functions that generated code calls besides torch: checks of results and symbols."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torch_ir.errors import ExecutionError, counted
from torch_ir.infer.engine import flatten
from torch_ir.ir import SymbolRange
from torch_ir.ir.expressions import Number, solve_linear
from torch_ir.torch_api import SYMBOLIC_TYPES, storage_of
from torch_ir.torch_modes import is_in_forward_level


class NoTensorError(ExecutionError):
    """An operator makes no tensor as a result; the message is a sentence without its subject."""


def results(made: Any, positions: Sequence[int]) -> list[torch.Tensor]:
    """Return the tensors at some positions among the results of an operator, flattened.

    Raises:
        NoTensorError: There is none at one of them.

    Example:
        >>> results((torch.ones(1), [torch.zeros(1)]), (1,))
        [tensor([0.])]
    """
    flat = list(flatten(made))
    for position in positions:
        if position >= len(flat) or not isinstance(flat[position], torch.Tensor):
            raise NoTensorError(f"made no tensor as result {position}")
    return [flat[position] for position in positions]  # pyright: ignore[reportReturnType]  # they are tensors: the loop before says so


def number(made: Any, position: int) -> Number:
    """Return the number at a position among an operator's flattened results; a bool as 0 or 1."""
    value = list(flatten(made))[position]
    return int(value) if isinstance(value, bool) else value  # pyright: ignore[reportReturnType]  # operators that bind a symbol give numbers


def require_in_range(
    symbol: str, value: Number, lower: int | None, upper: int | None, place: str = ""
) -> None:
    """Refuse the value of a symbol outside its range.

    Args:
        symbol: The symbol.
        value: Its value.
        lower: The end of its range, if there is one.
        upper: The other end.
        place: The dimension that it is the size of.

    Raises:
        ExecutionError: It is outside.
    """
    if isinstance(value, SYMBOLIC_TYPES):
        return  # somebody traces the run: no values are known
    if (lower is not None and value < lower) or (upper is not None and value > upper):
        allowed = SymbolRange(lower, upper)
        subject = f"{symbol}, {place}," if place else symbol
        raise ExecutionError(
            f"the value of {subject} is {value}, which is outside its range {allowed}"
        )


def hand_over(buffer: torch.Tensor, value: torch.Tensor) -> None:
    """Give a buffer a value that nothing else has: its memory, where that lies as the buffer's.

    Example:
        >>> buffer, value = torch.zeros(2), torch.ones(2)
        >>> hand_over(buffer, value)
        >>> buffer, buffer.data_ptr() == value.data_ptr()
        (tensor([1., 1.]), True)
    """
    if not (value.requires_grad or buffer.requires_grad) and _lies_as(value, buffer):
        buffer.set_(value)  # pyright: ignore[reportArgumentType]  # torch's stub lacks this overload
    else:
        buffer.copy_(value)


def renew(buffer: torch.Tensor, value: torch.Tensor) -> None:
    """Give a buffer a value that nothing else has, in other memory than it had.

    What has saved the buffer for a gradient by an alias (``buffer.data``) finds its old value.

    Example:
        >>> buffer, value = torch.zeros(2), torch.ones(2, requires_grad=True)
        >>> saved = buffer.data
        >>> renew(buffer, value)
        >>> buffer, saved
        (tensor([1., 1.]), tensor([0., 0.]))
    """
    value = value.detach()
    if not _lies_as(value, buffer):
        value = torch.empty_like(buffer, requires_grad=False).copy_(value)
    buffer.detach_().set_(value)  # pyright: ignore[reportArgumentType]  # torch's stub lacks this overload


def _lies_as(value: torch.Tensor, buffer: torch.Tensor) -> bool:
    """Whether a plain tensor is of a buffer's type, with its strides, on its device."""
    return (
        value.__class__ is torch.Tensor
        and value.dtype is buffer.dtype
        and value.shape == buffer.shape
        and value.stride() == buffer.stride()
        and value.device == buffer.device
    )


def tensors_among(args: Sequence[Any], count: int) -> list[torch.Tensor]:
    """Return the tensors among the arguments of a function.

    Raises:
        ExecutionError: They are not as many as it takes.
    """
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    if len(tensors) != count:
        raise ExecutionError(f"the function takes {counted(count, 'tensor')}, got {len(tensors)}")
    return tensors


def solved(dimension: str, size: int) -> int:
    """Solve a dimension of that size for its one symbol.

    Raises:
        ExecutionError: No value gives that size.
    """
    found = solve_linear(dimension, size)
    if found is None:
        raise ExecutionError(f"a dimension is {size}, which is not {dimension} for any value")
    return found[1]


def in_copied_storage(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return each tensor at its place in a copy of its storage, of which there is one for all.

    What gradients or tangents are taken of, and what has no plain storage, is copied by itself.

    Example:
        >>> buffer = torch.arange(6.0).reshape(2, 3)
        >>> row, turned = in_copied_storage([buffer[1], buffer.t()])
        >>> row.fill_(0.0), turned
        (tensor([0., 0., 0.]), tensor([[0., 0.],
                [1., 0.],
                [2., 0.]]))
    """
    copies: dict[int, torch.Tensor] = {}
    return [_in_copied_storage(tensor, copies) for tensor in tensors]


def _in_copied_storage(tensor: torch.Tensor, copies: dict[int, torch.Tensor]) -> torch.Tensor:
    if not _has_plain_storage(tensor):
        return tensor.clone()
    storage = storage_of(tensor)
    if storage not in copies:
        size = tensor.untyped_storage().nbytes() // tensor.element_size()
        copies[storage] = tensor.as_strided((size,), (1,), 0).clone()
    copy = copies[storage]
    if copy.dtype != tensor.dtype:
        copy = copy.view(tensor.dtype)
    return copy.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def _has_plain_storage(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is no more than its place in a storage."""
    is_marked = tensor.is_conj() or tensor.is_neg() or tensor.is_quantized
    size = tensor.untyped_storage().nbytes() if tensor.layout is torch.strided else 0
    return not (
        type(tensor) is not torch.Tensor
        or tensor.layout is not torch.strided
        or is_marked
        or tensor.requires_grad
        or is_in_forward_level()
        or size % tensor.element_size()
        or (tensor.numel() and not size)  # a device that keeps its data elsewhere
    )
