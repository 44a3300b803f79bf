"""The C library's allocator, told to keep what is freed."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

from torch_ir.errors import ExecutionError

_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1
_LARGEST_MMAP, _LARGEST_TRIM = 1 << 30, (1 << 31) - 1


def keep_memory() -> None:
    """Let freed memory stay mapped, so that the next run does not pay for page faults.

    It is a setting of glibc for the whole process, for good; a second call changes nothing.
    Memory that a run needs at its peak stays with the process.

    Raises:
        ExecutionError: The C library is not glibc, which alone has this setting.
    """
    libc: Any = ctypes.CDLL(None) if sys.platform == "linux" else object()
    if not hasattr(libc, "gnu_get_libc_version"):
        raise ExecutionError(
            "keep_memory is a setting of glibc's allocator, and this process has another",
            remedy="Leave the option out, or preload an allocator that keeps memory.",
        )
    settings = ((_MMAP_THRESHOLD, _LARGEST_MMAP), (_TRIM_THRESHOLD, _LARGEST_TRIM))
    if not all(libc.mallopt(*setting) == 1 for setting in settings):
        raise ExecutionError("glibc refuses to keep freed memory")
