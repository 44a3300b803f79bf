"""Hooks on gradients of values, which a model's forward registers, as calls in a trace."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, cast

import torch

from torch_ir.frontend.gradients.recording import Recording, replaced_by
from torch_ir.frozen import Same
from torch_ir.torch_api import is_alike, version_of

Hook = Callable[[torch.Tensor], Any]
_DYNAMOS = "torch._higher_order_ops.register_hook"
"""The module of the hooks in what Dynamo captures."""


@dataclass(frozen=True)
class RecordedHook:
    """A hook whose formula is in a trace, and what it depends on.

    Attributes:
        tensor: The value.
        hook: The hook.
        names: The values of its free names as they were when it was traced.
    """

    tensor: torch.Tensor
    hook: FunctionType
    names: tuple[Any, ...]

    def is_unchanged(self) -> bool:
        """Return whether the free names of the hook still have those values."""
        return _free_names(self.hook) == self.names


def record_hook(tensor: torch.Tensor, hook: Hook) -> RecordedHook | None:
    """Let gradients of a traced value pass through a hook; return None where that is impossible.

    A hook runs long after it is registered: it has to be a function whose free names hold numbers,
    tensors and what torch has. Nothing may have used the value yet, whose gradient is of all uses.
    """
    names = _free_names(hook)
    recording = Recording(_hooked(hook), (tensor,), everywhere=True)
    if names is None or not replaced_by(recording, tensor):
        return None
    return RecordedHook(tensor, cast("FunctionType", hook), names)


def _hooked(hook: Hook) -> Any:
    """The autograd function that gives its argument, and gradients through the hook."""

    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        made = hook(gradient)
        if not isinstance(made, torch.Tensor) or made is gradient or not is_alike(made, gradient):
            raise TypeError("a hook that gives no other gradient")
        return made

    def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
        return value

    members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type("hook", (torch.autograd.Function,), members)


def _free_names(hook: Hook) -> tuple[Any, ...] | None:
    """What the free names of a function stand for; None if it may depend on something else."""
    if type(hook) is not FunctionType or hook.__defaults__ or hook.__kwdefaults__:
        return None
    if any(isinstance(held, CodeType) for held in hook.__code__.co_consts):
        return None
    found = inspect.getclosurevars(hook)
    if hook.__module__ == _DYNAMOS:  # a graph, and the tensors that it takes
        return (_token(found.nonlocals["freevars"]),)
    tokens = [
        (name, _token(v)) for name, v in sorted({**found.globals, **found.nonlocals}.items())
    ]
    return None if any(token is None for _, token in tokens) else tuple(tokens)


def _token(value: Any) -> tuple[Any, ...] | None:
    """What tells that a value is another one, or has been written to; None if nothing does."""
    if value is None or type(value) in (bool, int, float, str):
        return (type(value), repr(value))
    if isinstance(value, torch.Tensor):
        return (Same(value), version_of(value))
    if isinstance(value, tuple):
        tokens = tuple([_token(item) for item in cast("tuple[Any, ...]", value)])
        return None if None in tokens else tokens
    is_module = isinstance(value, ModuleType)
    place = value.__name__ if is_module else getattr(value, "__module__", None)
    is_callable = isinstance(value, (FunctionType, BuiltinFunctionType))
    is_torch = (place or "").partition(".")[0] in ("torch", "math")
    return (Same(value),) if is_torch and (is_module or is_callable) else None
