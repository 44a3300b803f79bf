"""The modes of a thread: what traces, watches or transforms its calls, and how to step out."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

import torch
from torch.autograd import forward_ad
from torch.utils._device import DeviceContext

C = TypeVar("C", bound=Callable[..., Any])

_C: Any = torch._C  # pyright: ignore[reportPrivateUsage]  # what modes there are, torch says nowhere else
_functorch: Any = _C._functorch


def is_tracing_fakes() -> bool:
    """Return whether calls are traced on fake tensors now, as torch.export and inductor do."""
    fake = _C._TorchDispatchModeKey.FAKE
    return _C._get_dispatch_mode(fake) is not None


def is_functionalizing() -> bool:
    """Return whether calls on functional tensors are understood now."""
    functional = _C._TorchDispatchModeKey.FUNCTIONAL
    return _C._get_dispatch_mode(functional) is not None


def is_transforming() -> bool:
    """Return whether a transform of ``torch.func`` is under way in this thread."""
    return _functorch.peek_interpreter_stack() is not None


def is_transformed(values: Iterable[Any]) -> bool:
    """Return whether transforms under way have wrapped some values, or these have tangents."""
    if _interpreter() is None and forward_ad._current_level < 0:  # pyright: ignore[reportPrivateUsage]  # torch has no public name
        return False
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    return any(map(_functorch.is_functorch_wrapped_tensor, tensors)) or (
        is_in_forward_level()
        and any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors)
    )


def derivatives_under_way() -> tuple[bool, bool]:
    """Return whether derivatives are taken backward in this thread, and whether forward."""
    kinds = {level.key() for level in _functorch.get_interpreter_stack() or ()}
    of_torch = _functorch.TransformType
    return of_torch.Grad in kinds, of_torch.Jvp in kinds or is_in_forward_level()


def outside_of_transforms() -> AbstractContextManager[Any]:
    """Run calls in a ``with`` block as if no transform of ``torch.func`` were under way."""
    from torch._functorch import pyfunctorch

    return pyfunctorch.temporarily_clear_interpreter_stack()


def is_in_forward_level() -> bool:
    """Return whether tensors may carry tangents now."""
    return forward_ad._current_level >= 0  # pyright: ignore[reportPrivateUsage]  # torch has no public name


def has_modes() -> bool:
    """Return whether modes watch the operators or functions that are called in this thread.

    One that only says on which device new tensors lie does not count.
    """
    if _C._len_torch_dispatch_stack():
        return True
    count: int = _C._len_torch_function_stack()
    return count > 0 and any(
        not isinstance(_C._get_function_stack_at(i), DeviceContext) for i in range(count)
    )


_interpreter: Callable[[], Any] = _functorch.peek_interpreter_stack
_tracing_state: Callable[[], Any] = _C._get_tracing_state
_count_modes: Callable[[], int] = _C._len_torch_dispatch_stack


def is_watched() -> bool:
    """Return whether the operators that this thread calls are transformed or traced.

    ``torch.func``, forward derivatives, ``torch.jit.trace`` and the modes of ``make_fx`` and
    ``torch.export`` see torch's operators alone: what runs beside torch is a constant to them.
    """
    return (
        _interpreter() is not None
        or forward_ad._current_level >= 0  # pyright: ignore[reportPrivateUsage]  # torch has no public name
        or (_count_modes() > 0 and _traces())
        or _tracing_state() is not None
        or _C._dispatch_tls_is_dispatch_key_included(_BEFORE_DISPATCH)
    )


def has_modes_beside_keys() -> bool:
    """Return whether calls are watched by what no dispatch key shows: tangents, and some modes."""
    return forward_ad._current_level >= 0 or _count_modes() > 0  # pyright: ignore[reportPrivateUsage]  # torch has no public name


_BEFORE_DISPATCH = _C.DispatchKey.PreDispatch
"""The key by which ``make_fx(pre_dispatch=True)`` is told of operators."""


def _traces() -> bool:
    keys: Any = _C._TorchDispatchModeKey
    kinds = keys.FAKE, keys.FUNCTIONAL, keys.PROXY
    return any(_C._get_dispatch_mode(kind) is not None for kind in kinds)


def untraced(function: C) -> C:
    """Let ``torch.compile`` leave a function, and all that it calls, as it is.

    Its graph ends there. ``torch.compiler.disable`` does the same, but costs each call more than
    a small program takes.
    """
    described: Any = function
    described._torchdynamo_disable = True
    described._torchdynamo_disable_msg = "torch_ir runs the kernels of its programs itself"
    frames: Any = _C._dynamo.eval_frame
    skip = frames._FrameAction.SKIP
    frames.set_code_exec_strategy(described.__code__, frames._FrameExecStrategy(skip, skip))
    return function


def has_function_modes() -> bool:
    """Return whether modes watch the functions that are called in this thread."""
    return bool(_C._len_torch_function_stack())


is_any_autocast_enabled: Callable[[], bool] = _C._is_any_autocast_enabled
"""Whether autocast is on in this thread, for whatever device."""


@contextmanager
def plain_tensors() -> Generator[None]:
    """Run calls on tensors with values in a ``with`` block, whatever the caller traces."""
    from torch.utils._python_dispatch import _disable_current_modes as disabled  # pyright: ignore[reportPrivateUsage, reportUnknownVariableType]  # torch has no public name

    with disabled(), torch.device("cpu"):
        yield


def without_torch_functions() -> AbstractContextManager[None]:
    """Let no mode and no class see calls of torch in a ``with`` block, such as reads of sizes."""
    return _C.DisableTorchFunction()


@contextmanager
def outside_of_traces() -> Generator[None]:
    """Run calls in a ``with`` block as if nothing traced, transformed or watched them."""
    from torch.utils._python_dispatch import _disable_current_modes as disabled  # pyright: ignore[reportPrivateUsage, reportUnknownVariableType]  # torch has no public name

    dispatcher: Any = _C._DisablePythonDispatcher()
    state = _tracing_state()
    _C._set_tracing_state(None)
    try:
        with disabled(), without_torch_functions(), dispatcher, outside_of_transforms():
            yield
    finally:
        _C._set_tracing_state(state)


beneath_traces: Callable[[], AbstractContextManager[Any]] = _C._DisableTorchDispatch
"""Run calls within a ``with`` block in C++ alone: those on fake tensors give meta tensors."""


@contextmanager
def tracing_for_export() -> Generator[None]:
    """Let ``torch.compiler.is_exporting()`` say yes within a ``with`` block."""
    flags = torch.compiler._is_compiling_flag, torch.compiler._is_exporting_flag  # pyright: ignore[reportPrivateUsage]  # as torch.export sets them
    torch.compiler._is_compiling_flag = torch.compiler._is_exporting_flag = True  # pyright: ignore[reportPrivateUsage]  # as above
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag, torch.compiler._is_exporting_flag = flags  # pyright: ignore[reportPrivateUsage]  # as above
