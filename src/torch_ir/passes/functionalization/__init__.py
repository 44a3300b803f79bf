"""Programs without in-place operators: writes become new values."""

from torch_ir.passes.functionalization.walk import Functionalize, functionalize, without_writes

__all__ = ["Functionalize", "functionalize", "without_writes"]
