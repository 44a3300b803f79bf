"""Programs as ONNX models, by torch's own exporter."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram

from torch_ir.backends.runtimes.onnx_quantized import add_translations
from torch_ir.backends.runtimes.rewrites import plain_attention, plain_writes
from torch_ir.errors import BackendError, first_line, raised_as
from torch_ir.lazy import optional_module
from torch_ir.quiet import quietly
from torch_ir.torch_api import onnx_model, onnx_registry, overload_name


def onnx_bytes(exported: ExportedProgram) -> bytes:
    """Convert a program to the bytes of an ONNX model, with its weights inside.

    Raises:
        OptionalDependencyError: A package that torch's exporter needs is not installed.
        BackendError: The exporter refuses the program, or it is larger than one file may be.
    """
    for package in ("onnx", "onnxscript"):
        optional_module(package, "ONNX", "onnxruntime")
    refused = raised_as(
        lambda error: BackendError(f"torch.onnx.export refuses the program: {_why(error):.300}")
    )
    with refused, quietly():
        plain = plain_writes(plain_attention(exported, is_grouped=True))
        return onnx_model(plain, _registry()).SerializeToString()


@lru_cache(maxsize=1)
def _registry() -> Any:
    """What is translated, and how."""
    made = onnx_registry()
    add_translations(made)
    return made


@lru_cache(maxsize=1)
def onnx_operators() -> frozenset[str]:
    """Return the operators that are translated to ONNX, by overload; it needs onnxscript."""
    return frozenset(map(overload_name, map(str, _registry().functions)))


def _why(error: Exception) -> str:
    """The innermost cause, which names the operator."""
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    return first_line(cause)


def array_of(item: Any) -> Any:
    """Return a tensor's memory, or a number, as runtimes take it."""
    if not isinstance(item, torch.Tensor):
        return np.asarray(item, dtype=np.float32 if type(item) is float else np.int64)
    return item.detach().numpy() if item.requires_grad else item.numpy()
