"""Ways of running an IR, by name."""

from torch_ir.backends.door import compile
from torch_ir.backends.registry import (
    Backend,
    Options,
    known_backends,
    register_backend,
    unregister_backend,
)

__all__ = [
    "Backend",
    "Options",
    "compile",
    "known_backends",
    "register_backend",
    "unregister_backend",
]
