"""Ways of running an IR, by name, and backends that run a part of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch_ir.backends.backend_registry import (
    Backend,
    Options,
    as_backend,
    known_backends,
    register_backend,
    unregister_backend,
)
from torch_ir.backends.delegate import to_backend
from torch_ir.backends.partition import Partition, Partitioner
from torch_ir.backends.protocol import SUPPORTED, DelegateBackend, Support
from torch_ir.backends.support_report import SupportReport, support
from torch_ir.lazy import lazy_names

if TYPE_CHECKING:
    from torch_ir.backends.compilation import compile
    from torch_ir.backends.native.native_backend import NativeBackend
    from torch_ir.backends.native.verdict import Verdict
    from torch_ir.backends.torch.exported_program import body_program

__all__ = [
    "SUPPORTED",
    "Backend",
    "DelegateBackend",
    "NativeBackend",
    "Options",
    "Partition",
    "Partitioner",
    "Support",
    "SupportReport",
    "Verdict",
    "as_backend",
    "body_program",
    "compile",
    "known_backends",
    "register_backend",
    "support",
    "to_backend",
    "unregister_backend",
]

__getattr__ = lazy_names(
    __name__,
    {
        "torch_ir.backends.compilation": ("compile",),
        "torch_ir.backends.torch.exported_program": ("body_program",),
        "torch_ir.backends.native.native_backend": ("NativeBackend",),
        "torch_ir.backends.native.verdict": ("Verdict",),
    },
)
