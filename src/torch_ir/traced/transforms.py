"""Tensors that the transforms of ``torch.func`` take by functions of which no mode is told."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias

import torch
from torch._functorch import eager_transforms, vmap  # where they are called by these names

from torch_ir.torch_modes import is_transforming

Replace: TypeAlias = Callable[[Any], Any]

_ENTRIES: tuple[tuple[Any, str], ...] = (
    (vmap, "_add_batch_dim"),
    (eager_transforms, "_wrap_for_grad"),
    (eager_transforms, "_wrap_functional_tensor"),
    (eager_transforms, "_assert_wrapped_functional"),
    (eager_transforms, "_propagate_functional_input_mutation"),
)
"""What wraps a tensor for a level of a transform, and what looks at it and its wrapper."""

_replace: ContextVar[Replace | None] = ContextVar("_replace", default=None)
_lock = threading.Lock()
_torch: list[Any] = [getattr(module, name) for module, name in _ENTRIES]
_watching = 0


def is_of_a_transform(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is the wrapper that a transform under way has for another one."""
    is_wrapper: Any = torch._C._functorch.is_functorch_wrapped_tensor  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]  # torch has no public name
    return is_transforming() and is_wrapper(tensor)


@contextmanager
def transforming(replace: Replace) -> Generator[None]:
    """Let transforms in a ``with`` block take ``replace(tensor)``; other threads are as ever."""
    token = _replace.set(replace)
    _watch(1)
    try:
        yield
    finally:
        _watch(-1)
        _replace.reset(token)


def _watch(change: int) -> None:
    global _watching  # torch's modules are one for all threads
    with _lock:
        _watching += change
        for (module, name), of_torch in zip(_ENTRIES, _torch, strict=True):
            setattr(module, name, _entered(of_torch) if _watching else of_torch)


def _entered(wrap: Callable[..., Any]) -> Callable[..., Any]:
    def enter(tensor: Any, *args: Any) -> Any:
        replace = _replace.get()
        return wrap(tensor if replace is None else replace(tensor), *args)

    return enter
