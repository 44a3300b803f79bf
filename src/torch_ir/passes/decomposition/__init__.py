"""Programs in the core operator set: other operators become what they are made of."""

from torch_ir.passes.decomposition.decompose import (
    Decompose,
    decompose,
    decomposed,
    register_decomposition,
    unregister_decomposition,
)

__all__ = [
    "Decompose",
    "decompose",
    "decomposed",
    "register_decomposition",
    "unregister_decomposition",
]
