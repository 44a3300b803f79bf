"""Tensors by name, and kernels that a user registers for an operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch

from torch_ir.arguments import public
from torch_ir.errors import ExecutionError, counted, did_you_mean
from torch_ir.ir import Attribute
from torch_ir.ops.extensions import forget_extension, note_extension
from torch_ir.ops.rules import forget_registered, note_registered, require_overload


class TensorRegistry:
    """A mapping from names to tensors.

    Example:
        >>> registry = TensorRegistry()
        >>> registry.register("x", torch.ones(2))
        >>> registry.has("x"), registry.get("y") is None, registry["x"]
        (True, True, tensor([1., 1.]))
    """

    def __init__(self) -> None:
        self._tensors: dict[str, torch.Tensor] = {}

    def register(self, name: str, tensor: torch.Tensor) -> None:
        """Store a tensor under a name; an earlier one of that name is replaced."""
        self._tensors[name] = tensor

    def get(self, name: str) -> torch.Tensor | None:
        """Return the tensor of that name, or None."""
        return self._tensors.get(name)

    def has(self, name: str) -> bool:
        """Return whether there is a tensor of that name."""
        return name in self._tensors

    def clear(self) -> None:
        """Forget every tensor."""
        self._tensors.clear()

    def __getitem__(self, name: str) -> torch.Tensor:
        if name not in self._tensors:
            raise ExecutionError(
                f"there is no tensor {name!r}", remedy=did_you_mean(name, self._tensors)
            )
        return self._tensors[name]

    def __setitem__(self, name: str, tensor: torch.Tensor) -> None:
        self._tensors[name] = tensor

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def __len__(self) -> int:
        return len(self._tensors)

    def __repr__(self) -> str:
        return f"TensorRegistry({counted(len(self._tensors), 'tensor')})"


Kernel: TypeAlias = Callable[[list[torch.Tensor], Mapping[str, Attribute]], list[torch.Tensor]]
"""Computes an operator from its tensors, in the order of ``OpNode.inputs``, and its attributes."""


@dataclass(frozen=True, slots=True)
class DirectKernel:
    """A kernel that generated code calls with its operands themselves, which costs less.

    Attributes:
        call: Takes the node's tensors, then the values of its attribute ``sizes``; gives one
            tensor for each of the node's outputs.
        is_pure: Whether it writes to nothing, and each result has memory of its own; but for
            those of ``in_place``.
        in_place: The position of the tensor that it writes by that of the result, which is that
            tensor.
        on_plain: Takes the tensors as one tuple, where each lies in order in memory of its own
            and nothing watches; gives None where it has more to see to. None if it always has.
    """

    call: Callable[..., Sequence[torch.Tensor]]
    is_pure: bool = False
    in_place: Mapping[int, int] = field(default_factory=dict[int, int], hash=False)
    on_plain: Callable[[tuple[torch.Tensor, ...]], Sequence[torch.Tensor] | None] | None = None

    def __call__(
        self, inputs: list[torch.Tensor], attrs: Mapping[str, Attribute]
    ) -> list[torch.Tensor]:
        """Compute as every other kernel does."""
        sizes: Any = attrs["sizes"]
        return list(self.call(*inputs, *sizes))


_KERNELS: dict[str, Kernel] = {}


@public
def register_executor(op_type: str) -> Callable[[Kernel], Kernel]:
    """Register a function to run one exact operator instead of torch's kernel, as a decorator.

    Args:
        op_type: The exact overload, such as ``"mylib.gather_rows.default"``; nothing is matched by
            prefix.

    Raises:
        ExecutionError: The operator already has a registered kernel.
        InvalidIRError: The name is no exact overload: nothing would run with the kernel.

    Example:
        >>> @register_executor("mylib.double.default")
        ... def double(inputs, attrs):
        ...     return [inputs[0] * 2]
        >>> unregister_executor("mylib.double.default")
    """
    require_overload(op_type)

    def decorate(function: Kernel) -> Kernel:
        if op_type in _KERNELS:
            raise ExecutionError(
                f"{op_type} already runs with {_KERNELS[op_type].__qualname__}",
                remedy=f"Remove it with unregister_executor({op_type!r}) first.",
            )
        _KERNELS[op_type] = function
        note_registered(op_type)
        note_extension("kernel", op_type, function)
        return function

    return decorate


@public
def unregister_executor(op_type: str) -> None:
    """Remove the registered kernel of an operator; nothing happens if it has none."""
    _KERNELS.pop(op_type, None)
    forget_registered(op_type)
    forget_extension("kernel", op_type)


def registered_kernel(op_type: str) -> Kernel | None:
    """Return the kernel that a user registered for this exact operator, or None."""
    return _KERNELS.get(op_type)
