"""Registers the operators of the Backend dialect with torch; importing this module does it."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch  # noqa: TID253  # this module is imported where torch runs these operators
import torch.ao.quantization.fx._decomposed  # pyright: ignore[reportUnusedImport]  # noqa: TID253  # registers quantize and dequantize

from torch_ir.dialects.backend.binding import bind_pattern_to_op
from torch_ir.dialects.backend.schemas import BACKEND_SCHEMAS
from torch_ir.errors import ExecutionError
from torch_ir.torch_api import overload

PRIMS = torch.library.Library("executorch_prims", "FRAGMENT")
QUANTISED = torch.library.Library("quantized_decomposed", "FRAGMENT")

_PRIMS: dict[str, Callable[[Any, Any], Any]] = {
    name: getattr(operator, name)
    for name in ("add", "mul", "sub", "floordiv", "gt", "lt", "ge", "le", "eq")
}

_dequantize: Any = torch.ops.quantized_decomposed.dequantize_per_tensor.default
_quantize: Any = torch.ops.quantized_decomposed.quantize_per_tensor.default


def add(a: Any, *arguments: Any) -> Any:
    """The sum of two quantised tensors, quantised: dequantize, add, quantize."""
    *parts, scale, zero_point, low, high = arguments
    return _quantize(_sum(a, *parts), scale, zero_point, low, high, a.dtype)


def add_relu(a: Any, *arguments: Any) -> Any:
    """As :func:`add`, of the sum where it is positive."""
    *parts, scale, zero_point, low, high = arguments
    return _quantize(torch.relu(_sum(a, *parts)), scale, zero_point, low, high, a.dtype)


def _sum(a: Any, *parts: Any) -> Any:
    of_a, b, of_b = parts[:4], parts[4], parts[5:]
    return _dequantize(a, *of_a, a.dtype) + _dequantize(b, *of_b, b.dtype)


def add_scalar(qa: Any, *arguments: Any) -> Any:
    """The sum of a quantised tensor and a number, quantised."""
    *of_a, a_dtype, b, scale, zero_point, low, high, out_dtype = arguments
    made = _dequantize(qa, *of_a, a_dtype) + b
    return _quantize(made, scale, zero_point, low, high, out_dtype)


def embedding_byte(
    weight: Any, scales: Any, zero_points: Any, low: int, high: int, indices: Any
) -> Any:
    """Rows of a quantised table, dequantised.

    Args:
        weight: ``[rows, columns]`` integers.
        scales: ``[rows]``, or ``[rows, groups]`` with as many columns in each group.
        zero_points: As the scales.
        low: The least code, for which there is no use.
        high: The largest code, likewise.
        indices: The rows to give, of any shape.

    Raises:
        ExecutionError: There are not as many scales as rows, or groups do not divide the columns.
    """
    del low, high
    grouped = scales if scales.dim() == 2 else scales.unsqueeze(1)
    offsets = zero_points if zero_points.dim() == 2 else zero_points.unsqueeze(1)
    rows, columns = weight.shape
    if grouped.shape[0] != rows or offsets.shape != grouped.shape:
        raise ExecutionError(
            f"embedding_byte has {rows} rows, scales of shape {list(scales.shape)} and zero "
            f"points of shape {list(zero_points.shape)}",
            remedy="Give one scale and zero point for each row, or for each group of a row.",
        )
    if columns % grouped.shape[1]:
        raise ExecutionError(
            f"embedding_byte has {columns} columns, which {grouped.shape[1]} groups do not divide"
        )
    taken = torch.nn.functional.embedding(indices, weight)
    groups = taken.unflatten(-1, (grouped.shape[1], columns // grouped.shape[1]))
    scale = torch.nn.functional.embedding(indices, grouped).unsqueeze(-1)
    offset = torch.nn.functional.embedding(indices, offsets).unsqueeze(-1)
    return ((groups.to(scale.dtype) - offset.to(scale.dtype)) * scale).flatten(-2)


def _example(name: str) -> tuple[Any, ...]:
    codes = torch.tensor([0, 3, 100, 255], dtype=torch.uint8)
    a, out = (0.1, 3, 0, 255), (0.3, 3, 0, 255)
    if name == "add.scalar":
        return (codes, *a, torch.uint8, 0.5, *out, torch.uint8)
    if name == "embedding_byte.default":
        weight = codes.reshape(2, 2)
        scales, zero_points = torch.tensor([0.5, 0.25]), torch.tensor([1.0, 2.0])
        return (weight, scales, zero_points, 0, 255, torch.tensor([[1, 0]]))
    return (codes, *a, codes.flip(0), 0.2, 3, 0, 255, *out)


_QUANTISED: dict[str, Callable[..., Any]] = {
    "add.default": add,
    "add.scalar": add_scalar,
    "add_relu.default": add_relu,
    "embedding_byte.default": embedding_byte,
}


def _register() -> None:
    for op_type, schema in BACKEND_SCHEMAS.items():
        namespace, packet, kind = op_type.split(".")
        if overload(namespace, packet, kind) is not None:
            continue  # executorch, whose operators these are, registered them
        text = schema.partition("::")[2]
        if namespace == "executorch_prims":
            PRIMS.define(text)
            PRIMS.impl(f"{packet}.{kind}", _PRIMS[packet], "CompositeExplicitAutograd")
        else:
            name = f"{packet}.{kind}"
            bind_pattern_to_op(QUANTISED, text, example_inputs=_example(name))(_QUANTISED[name])


_register()
