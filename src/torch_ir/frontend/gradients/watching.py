"""Gradients that a model defines itself: torch.export keeps the operators of the forward alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from torch_ir.frontend.gradients.recording import Recording
from torch_ir.ir import IR
from torch_ir.ir.queries import CUSTOM_GRADIENTS
from torch_ir.torch_api import SingleLevelFunction

_found: ContextVar[tuple[bool, dict[str, None]] | None] = ContextVar("_found", default=None)
_lock = threading.Lock()
_watching = 0
_torch_register_hook: Any = torch.Tensor.register_hook


def with_custom_gradients(trace: Callable[[], IR]) -> IR:
    """Return the program that ``trace`` makes.

    Autograd functions are calls in it, of their forward and their backward. Its metadata name
    those for which that is impossible.
    """
    with recorded_functions(everywhere=True) as lost:
        ir = trace()
    return ir.replace(metadata={**ir.metadata, CUSTOM_GRADIENTS: [*lost]}) if lost else ir


@contextmanager
def recorded_functions(*, everywhere: bool) -> Generator[dict[str, None]]:
    """Trace autograd functions in a ``with`` block as calls; give the names of others, in order.

    Hooks are named too. A function that is applied where nothing is traced is part of an operator
    that is traced as one, such as the formula of a custom operator, and is not lost. Other threads
    are not watched.

    Args:
        everywhere: Gradients are wanted of what does not require them while it is traced.
    """
    found: dict[str, None] = {}
    token = _found.set((everywhere, found))
    _watch(1)
    try:
        yield found
    finally:
        _watch(-1)
        _found.reset(token)


def _watch(change: int) -> None:
    """Watch calls while somebody wants it.

    ``Function.apply`` calls that of the class above by its name, even where a model keeps
    ``MyFunction.apply`` itself.
    """
    global _watching  # torch's class is one for all threads
    with _lock:
        _watching += change
        if change > 0 and _watching == 1:
            SingleLevelFunction.apply = classmethod(_apply)
            torch.Tensor.register_hook = _register_hook
        elif _watching == 0:
            del SingleLevelFunction.apply
            torch.Tensor.register_hook = _torch_register_hook


def _register_hook(self: torch.Tensor, hook: Callable[[torch.Tensor], Any]) -> Any:
    found = _found.get()
    if found is not None and get_proxy_mode() is not None:
        found[1].setdefault("torch.Tensor.register_hook")
    return _torch_register_hook(self, hook)


def _apply(cls: Any, *args: Any) -> Any:
    found = _found.get()
    if found is None or get_proxy_mode() is None:
        return super(SingleLevelFunction, cls).apply(*args)
    recording = Recording(cls, args, everywhere=found[0])
    result = recording.run()
    if recording.reason is not None:
        found[1].setdefault(_name(cls))
    return result


def _name(cls: type) -> str:
    """The name of a function; torch's bytecode tracer hides it behind a template."""
    is_template = cls.__qualname__ == "AutogradFunctionApply.__call__.<locals>.ApplyTemplate"
    return "torch.autograd.Function" if is_template else f"{cls.__module__}.{cls.__qualname__}"
