"""Inference of what a call gives: arguments bound, and operators run without data."""

from typing import TYPE_CHECKING

from torch_ir.lazy import lazy_names

if TYPE_CHECKING:
    from torch_ir.infer.binder import bind
    from torch_ir.infer.fake import call_on
    from torch_ir.infer.types import Outcome, TensorType

__all__ = ["Outcome", "TensorType", "bind", "call_on"]

__getattr__ = lazy_names(
    __name__,
    {
        "torch_ir.infer.types": ("Outcome", "TensorType"),
        "torch_ir.infer.binder": ("bind",),
        "torch_ir.infer.fake": ("call_on",),
    },
)
