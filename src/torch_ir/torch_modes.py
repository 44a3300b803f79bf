"""The modes of a thread: what traces, watches or transforms its calls, and how to step out."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.utils._device import DeviceContext


def is_tracing_fakes() -> bool:
    """Return whether calls are traced on fake tensors now, as torch.export and inductor do."""
    fake = torch._C._TorchDispatchModeKey.FAKE  # pyright: ignore[reportPrivateUsage]  # torch has no public name
    return torch._C._get_dispatch_mode(fake) is not None  # pyright: ignore[reportPrivateUsage]  # torch has no public name


def is_functionalizing() -> bool:
    """Return whether calls on functional tensors are understood now."""
    functional = torch._C._TorchDispatchModeKey.FUNCTIONAL  # pyright: ignore[reportPrivateUsage]  # torch has no public name
    return torch._C._get_dispatch_mode(functional) is not None  # pyright: ignore[reportPrivateUsage]  # torch has no public name


def is_transforming() -> bool:
    """Return whether a transform of ``torch.func`` is under way in this thread."""
    return torch._C._functorch.peek_interpreter_stack() is not None  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]  # torch has no public name


def is_in_forward_level() -> bool:
    """Return whether tensors may carry tangents now."""
    return forward_ad._current_level >= 0  # pyright: ignore[reportPrivateUsage]  # torch has no public name


def has_modes() -> bool:
    """Return whether modes watch the operators or functions that are called in this thread.

    One that only says on which device new tensors lie does not count.
    """
    if torch._C._len_torch_dispatch_stack():  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]  # torch has no public name
        return True
    count: int = torch._C._len_torch_function_stack()  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]  # as above
    return count > 0 and any(
        not isinstance(torch._C._get_function_stack_at(i), DeviceContext)  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]  # as above
        for i in range(count)
    )


def has_function_modes() -> bool:
    """Return whether modes watch the functions that are called in this thread."""
    return bool(torch._C._len_torch_function_stack())  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]  # torch has no public name


is_any_autocast_enabled: Callable[[], bool] = torch._C._is_any_autocast_enabled  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]  # torch has no public name
"""Whether autocast is on in this thread, for whatever device."""


@contextmanager
def plain_tensors() -> Generator[None]:
    """Run calls on tensors with values in a ``with`` block, whatever the caller traces."""
    from torch.utils._python_dispatch import _disable_current_modes as disabled  # pyright: ignore[reportPrivateUsage, reportUnknownVariableType]  # torch has no public name

    with disabled(), torch.device("cpu"):
        yield


def without_torch_functions() -> AbstractContextManager[None]:
    """Let no mode and no class see calls of torch in a ``with`` block, such as reads of sizes."""
    return torch._C.DisableTorchFunction()  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue, reportUnknownVariableType, reportUnknownMemberType]  # torch has no public name


@contextmanager
def outside_of_traces() -> Generator[None]:
    """Run calls in a ``with`` block as if nothing traced or watched them."""
    from torch.utils._python_dispatch import _disable_current_modes as disabled  # pyright: ignore[reportPrivateUsage, reportUnknownVariableType]  # torch has no public name

    dispatcher: Any = torch._C._DisablePythonDispatcher()  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]  # as above
    with disabled(), without_torch_functions(), dispatcher:
        yield


beneath_traces: Callable[[], AbstractContextManager[Any]] = torch._C._DisableTorchDispatch  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]  # torch has no public name
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
