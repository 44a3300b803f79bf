"""Programs as ONNX models, by torch's own exporter."""

from __future__ import annotations

import contextlib
import io
import logging
import math
import warnings
from collections.abc import Callable, Generator
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram

from torch_ir.errors import BackendError, first_line, raised_as
from torch_ir.lazy import optional_module
from torch_ir.torch_api import onnx_model, onnx_registry


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
        _translate_attention()
        return onnx_model(exported).SerializeToString()


@lru_cache(maxsize=1)
def _translate_attention() -> None:
    """Let attention give zeros where a mask hides all keys, as torch's does."""
    registry = onnx_registry()
    target = torch.ops.aten.scaled_dot_product_attention.default
    plain = registry.functions[target.name()][0].onnx_function
    registry.register_op(target, _with_hidden_rows(plain))


def _with_hidden_rows(plain: Callable[..., Any]) -> Callable[..., Any]:
    opset = optional_module("onnxscript", "ONNX", "onnxruntime").opset18

    def attention(
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        options = (dropout_p, is_causal, scale, enable_gqa)
        if attn_mask is None or attn_mask.dtype.name != "BOOL":
            return plain(query, key, value, attn_mask, *options)
        zero, hidden = [
            opset.CastLike(opset.Constant(value_float=number), query)
            for number in (0.0, -math.inf)
        ]
        made = plain(query, key, value, opset.Where(attn_mask, zero, hidden), *options)
        ones = opset.CastLike(attn_mask, query)
        seen = opset.ReduceMax(ones, opset.Constant(value_ints=[-1]), keepdims=1)
        return opset.Where(opset.CastLike(seen, attn_mask), made, zero)

    return attention


def _why(error: Exception) -> str:
    """The innermost cause, which names the operator."""
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    return first_line(cause)


def array_of(item: Any) -> Any:
    """Return a tensor's memory, or a size, as runtimes take it."""
    if type(item) is int:
        return np.asarray(item, dtype=np.int64)
    return item.detach().numpy() if item.requires_grad else item.numpy()


@contextlib.contextmanager
def quietly() -> Generator[None]:
    """Keep converters from printing and warning."""
    level = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
