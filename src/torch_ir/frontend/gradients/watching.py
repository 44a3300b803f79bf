"""Gradients that a model defines itself: torch.export keeps the operators of the forward alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import saved_tensors_hooks
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.overrides import handle_torch_function, has_torch_function, has_torch_function_unary

from torch_ir.frontend.gradients.hooks import RecordedHook, record_hook
from torch_ir.frontend.gradients.recording import Recording, applying, observed, observer
from torch_ir.ir import IR
from torch_ir.ir.queries import CUSTOM_GRADIENTS
from torch_ir.torch_api import APPLIED_IN_C, KEEPS_ARGUMENTS, SingleLevelFunction

_found: ContextVar[_Found | None] = ContextVar("_found", default=None)
_lock = threading.Lock()
_watching = 0
_autograd: Any = torch.autograd
_Function: Any = torch.autograd.Function
_InferenceMode: Any = torch._C._InferenceMode  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType, reportAttributeAccessIssue]  # what torch.inference_mode enters
_torch: dict[tuple[Any, str], Any] = {
    (owner, name): getattr(owner, name)
    for owner, name in (
        (torch.Tensor, "register_hook"),
        (torch.Tensor, "register_post_accumulate_grad_hook"),
        (saved_tensors_hooks, "__enter__"),
        (torch.autograd, "_engine_run_backward"),
        (torch._C, "_InferenceMode"),  # pyright: ignore[reportPrivateUsage]  # as above
    )
}
"""What registers hooks, and what switches gradients off where a trace does not see it."""
_apply_of_torch: Any = vars(_Function)["apply"]
_init_context: Any = BackwardCFunction.__init__
_register_node_hook: Any = SingleLevelFunction._register_hook
"""What autograd's engine, in C++, calls for each hook on a node of its graph."""

_OF_MODULES = "torch.utils.hooks"
"""Hooks from here are those of modules, whose class is named."""

_OF_BODIES = "torch._functorch._aot_autograd.logging_utils"
"""Hooks from here keep source lines while torch traces the backward of a body, and no gradient."""

BACKWARD_OF_A_BODY = "the backward of a body of control flow"
"""What is lost where torch traces it: results in the trace require no gradient."""

HOOKS = frozenset(
    (
        "torch.Tensor.register_hook",
        "torch.Tensor.register_post_accumulate_grad_hook",
        "torch.autograd.graph.Node.register_hook",
        "torch.autograd.graph.saved_tensors_hooks",
    )
)
"""The names by which hooks are lost that are not in a trace."""


@dataclass
class _Found:
    """What is found in one trace.

    Attributes:
        everywhere: Gradients are wanted of what does not require them while it is traced.
        lost: The names of what is not in the trace.
        hooks: Those that are.
    """

    everywhere: bool
    lost: dict[str, None] = field(default_factory=dict[str, None])
    hooks: list[RecordedHook] = field(default_factory=list[RecordedHook])


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

    Hooks on gradients are calls too, or are named. A function that is applied where nothing is
    traced is part of an operator that is traced as one, such as the formula of a custom operator,
    and is not lost. Other threads are not watched.

    Args:
        everywhere: Gradients are wanted of what does not require them while it is traced.
    """
    found = _Found(everywhere)
    token = _found.set(found)
    _watch(1)
    try:
        yield found.lost
        if not all(hook.is_unchanged() for hook in found.hooks):
            found.lost.setdefault("torch.Tensor.register_hook")
    finally:
        _watch(-1)
        _found.reset(token)


def _watch(change: int) -> None:
    """Watch calls while somebody wants it.

    ``Function.apply`` calls that of the class above by its name, even where a model keeps
    ``MyFunction.apply`` itself. Where it is C++ that one is seen by the context that it makes.
    """
    global _watching  # torch's class is one for all threads
    with _lock:
        _watching += change
        if change > 0 and _watching == 1:
            if APPLIED_IN_C:
                _Function.apply = classmethod(_apply_in_c)
                BackwardCFunction.__init__ = _on_context
            else:
                SingleLevelFunction.apply = classmethod(_apply)
            torch.Tensor.register_hook = _register_hook
            torch.Tensor.register_post_accumulate_grad_hook = _register_leaf_hook
            saved_tensors_hooks.__enter__ = _enter_saving
            SingleLevelFunction._register_hook = staticmethod(_on_node)
            _autograd._engine_run_backward = _run_backward
            torch._C._InferenceMode = _Inference  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]  # as above
        elif _watching == 0:
            if APPLIED_IN_C:
                _Function.apply = _apply_of_torch
                BackwardCFunction.__init__ = _init_context
            else:
                del SingleLevelFunction.apply
            del SingleLevelFunction._register_hook
            for (owner, name), value in _torch.items():
                setattr(owner, name, value)


def _watched() -> _Found | None:
    return None if get_proxy_mode() is None else _found.get()


def _register_hook(self: torch.Tensor, hook: Callable[[torch.Tensor], Any]) -> Any:
    handle = _torch[torch.Tensor, "register_hook"](self, hook)
    found = _watched()
    if found is None or has_torch_function_unary(self):  # it comes back here without its mode
        return handle
    is_first = all(known.tensor is not self for known in found.hooks)  # the others run before it
    recorded = record_hook(self, hook) if is_first else None
    remove = handle.remove

    def removed() -> None:
        found.lost.setdefault("torch.Tensor.register_hook")
        remove()

    if recorded is None:
        found.lost.setdefault("torch.Tensor.register_hook")
    else:
        found.hooks.append(recorded)
        handle.remove = removed
    return handle


def _register_leaf_hook(self: torch.Tensor, hook: Callable[[torch.Tensor], Any]) -> Any:
    if (found := _watched()) is not None:
        found.lost.setdefault("torch.Tensor.register_post_accumulate_grad_hook")
    return _torch[torch.Tensor, "register_post_accumulate_grad_hook"](self, hook)


def _on_node(hooks: Any, hook: Any) -> Any:
    found, origin = _watched(), getattr(hook, "__module__", None)
    if found is not None and origin == _OF_BODIES:
        if not found.everywhere:
            found.lost.setdefault(BACKWARD_OF_A_BODY)
    elif found is not None and origin != _OF_MODULES:
        found.lost.setdefault("torch.autograd.graph.Node.register_hook")
    return _register_node_hook(hooks, hook)


def _run_backward(
    outputs: Any, given: Any, keep: Any, create_graph: bool, *args: Any, **kwargs: Any
) -> Any:
    """Run autograd's engine, whose gradients are constant unless a graph of them is asked for."""
    run = _torch[torch.autograd, "_engine_run_backward"]
    made = run(outputs, given, keep, create_graph, *args, **kwargs)
    if _watched() is None or create_graph or kwargs.get("accumulate_grad"):
        return made
    return tuple([None if tensor is None else tensor.detach() for tensor in made])


class _Inference:
    """Enters inference mode, and lets a trace know whether gradients are on in it."""

    def __init__(self, mode: bool):
        self._before = torch.is_grad_enabled()
        self._mode = mode
        self._entered = _InferenceMode(mode)  # which enters it

    def __enter__(self) -> None:
        self._entered.__enter__()
        self._switched = _watched() is not None and self._before == self._mode
        if self._switched:
            torch._C._set_grad_enabled(not self._mode)  # pyright: ignore[reportPrivateUsage]  # what traces see

    def __exit__(self, *error: object) -> None:
        self._entered.__exit__(*error)
        if self._switched:
            torch._C._set_grad_enabled(self._before)  # pyright: ignore[reportPrivateUsage]  # as above


def _enter_saving(self: Any) -> Any:
    keeps_values = type(self) is not saved_tensors_hooks and type(self).__module__[:6] == "torch."
    found, hook = _watched(), self.pack_hook
    if found is not None and not keeps_values:
        found.lost.setdefault("torch.autograd.graph.saved_tensors_hooks")
    elif found is not None:
        self.pack_hook = _Untold(hook)
    try:
        return _torch[saved_tensors_hooks, "__enter__"](self)
    finally:
        self.pack_hook = hook  # which torch may set and delete attributes of


class _Untold:
    """A hook whose switches of gradients no trace is told of: autograd calls it with them off."""

    def __init__(self, hook: Callable[[Any], Any]):
        self._hook = hook

    def __call__(self, value: Any) -> Any:
        with torch._C.DisableTorchFunction():  # pyright: ignore[reportPrivateUsage]  # torch has no public name
            return self._hook(value)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._hook, name)


def _apply_in_c(cls: Any, *args: Any, **kwargs: Any) -> Any:
    """Apply a function as torch's own method does, which leaves nothing of it in Python."""
    if not torch._C._are_functorch_transforms_active():  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]  # torch has no public name
        if cls.setup_context is not SingleLevelFunction.setup_context:
            bound = signature(cls.forward).bind(*args, **kwargs)
            bound.apply_defaults()
            args, kwargs = bound.args, bound.kwargs
        if not kwargs:
            return _apply(cls, *args)
    return super(SingleLevelFunction, cls).apply(*args, **kwargs)


_apply_in_c.__name__ = "apply"  # the name that torch's bytecode tracer knows


def _on_context(self: Any, *args: Any, **kwargs: Any) -> None:
    """See a function that is applied by a method that was taken from its class before."""
    function = type(self)._forward_cls
    found = None if applying.get() is function else _watched()
    if found is not None:
        found.lost.setdefault(_name(function))
    _init_context(self, *args, **kwargs)


def _apply(cls: Any, *args: Any) -> Any:
    seen = observer.get()
    return _applied(cls, *args) if seen is None else seen.applied(cls, args, _applied)


def _applied(cls: Any, *args: Any) -> Any:
    found = _watched() if observer.get() is None else _found.get()
    if found is None or cls is KEEPS_ARGUMENTS:
        return super(SingleLevelFunction, cls).apply(*args)
    with observed(False):
        if has_torch_function(args):  # a mode puts traced tensors for others
            args = handle_torch_function(_given, args, *args)
        recording = Recording(cls, args, everywhere=found.everywhere)
        result = recording.run()
    if recording.reason is not None and _watched() is not None:
        found.lost.setdefault(_name(cls))
    return result


def _given(*args: Any) -> tuple[Any, ...]:
    return args


def _name(cls: type) -> str:
    """The name of a function; torch's bytecode tracer hides it behind a template."""
    is_template = cls.__qualname__ == "AutogradFunctionApply.__call__.<locals>.ApplyTemplate"
    return "torch.autograd.Function" if is_template else f"{cls.__module__}.{cls.__qualname__}"
