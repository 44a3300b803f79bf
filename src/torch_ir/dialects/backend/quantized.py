"""The operators of ``quantized_decomposed``: dequantize, an operator, quantize.

Each function is the operator's pattern, its kernel on the CPU and its decomposition. Arguments
come in the order of the schemas: of each quantized tensor its codes, then its scale, zero point,
least and largest code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch  # noqa: TID253  # this module is imported where torch runs these operators
import torch.ao.quantization.fx._decomposed  # pyright: ignore[reportUnusedImport]  # noqa: TID253  # registers quantize and dequantize

from torch_ir.dialects.backend.packing import pack, unpack
from torch_ir.errors import ExecutionError

_dequantize: Any = torch.ops.quantized_decomposed.dequantize_per_tensor.default
_dequantize_channels: Any = torch.ops.quantized_decomposed.dequantize_per_channel.default
_quantize: Any = torch.ops.quantized_decomposed.quantize_per_tensor.default
_convolution: Any = torch.ops.aten.convolution.default
_linear: Any = torch.ops.aten.linear.default

Function = Callable[..., Any]


def _values(codes: Any, *parameters: Any) -> Any:
    """The numbers for which codes of one scale stand."""
    return _dequantize(codes, *parameters, codes.dtype)


def _of_two(operator: Function, then: Function | None = None) -> Function:
    def pattern(a: Any, *arguments: Any) -> Any:
        of_a, b, of_b, out = arguments[:4], arguments[4], arguments[5:9], arguments[9:]
        made = operator(_values(a, *of_a), _values(b, *of_b))
        return _quantize(made if then is None else then(made), *out, a.dtype)

    return pattern


def add_scalar(qa: Any, *arguments: Any) -> Any:
    """Add a number to a quantized tensor; the sum is quantized."""
    *of_a, a_dtype, b, scale, zero_point, low, high, out_dtype = arguments
    made = _dequantize(qa, *of_a, a_dtype) + b
    return _quantize(made, scale, zero_point, low, high, out_dtype)


def relu(a: Any, *arguments: Any) -> Any:
    """Return the positive part of a quantized tensor, quantized."""
    return _quantize(torch.relu(_values(a, *arguments[:4])), *arguments[4:], a.dtype)


def _of_weights(
    operator: Function, *, per_channel: bool, then: Function | None = None
) -> Function:
    """An operator of a tensor, weights and a bias, with the codes of the first two."""

    def pattern(a: Any, *arguments: Any) -> Any:
        of_a, weight = arguments[:4], arguments[4]
        if per_channel:
            scales, zero_points, axis, low, high = arguments[5:10]
            weights = _dequantize_channels(
                weight, scales, zero_points, axis, low, high, weight.dtype
            )
            rest = arguments[10:]
        else:
            weights, rest = _values(weight, *arguments[5:9]), arguments[9:]
        made = operator(_values(a, *of_a), weights, *rest[:-4])
        return _quantize(made if then is None else then(made), *rest[-4:], a.dtype)

    return pattern


def embedding_byte(
    weight: Any, scales: Any, zero_points: Any, low: int, high: int, indices: Any
) -> Any:
    """Look up rows of a quantized table, dequantized.

    Args:
        weight: ``[rows, columns]`` integers.
        scales: ``[rows]``, or ``[rows, groups]`` with as many columns in each group.
        zero_points: As the scales, of integers or of the scales' type; None stands for 0.
        low: The least code, for which there is no use.
        high: The largest code.
        indices: The rows to give, of any shape.

    Raises:
        ExecutionError: There are not as many scales as rows, or groups do not divide the columns.
    """
    _require_table("embedding_byte", weight, weight.shape[-1], scales, zero_points)
    return _rows(torch.nn.functional.embedding(indices, weight), scales, zero_points, indices)


def _packed_embedding(bits: int) -> Function:
    """As :func:`embedding_byte`, of a table that holds several codes in a byte."""

    def pattern(
        weight: Any, scales: Any, zero_points: Any, low: int, high: int, indices: Any
    ) -> Any:
        columns = weight.shape[-1] * (8 // bits)
        _require_table(f"embedding_{bits}bit", weight, columns, scales, zero_points)
        taken = unpack(torch.nn.functional.embedding(indices, weight), bits)
        return _rows(taken, scales, zero_points, indices)

    return pattern


def _rows(taken: Any, scales: Any, zero_points: Any, indices: Any) -> Any:
    """The rows that were taken of a table, as numbers."""
    grouped = _grouped(scales)
    scale = torch.nn.functional.embedding(indices, grouped).unsqueeze(-1)
    codes = taken.unflatten(-1, (grouped.shape[1], taken.shape[-1] // grouped.shape[1]))
    if zero_points is None:
        return (codes.to(scale.dtype) * scale).flatten(-2)
    offset = torch.nn.functional.embedding(indices, _grouped(zero_points)).unsqueeze(-1)
    if offset.is_floating_point():
        return ((codes.to(offset.dtype) - offset) * scale).flatten(-2)
    # as dequantize_per_channel: integers are subtracted without rounding
    return ((codes.to(torch.int64) - offset.to(torch.int64)) * scale).flatten(-2)


def _grouped(parameters: Any) -> Any:
    return parameters if parameters.dim() == 2 else parameters.unsqueeze(1)


def _require_table(name: str, weight: Any, columns: int, scales: Any, zero_points: Any) -> None:
    rows = weight.shape[0]
    fits = zero_points is None or _grouped(zero_points).shape == _grouped(scales).shape
    if _grouped(scales).shape[0] != rows or not fits:
        found = "" if zero_points is None else f" and zero points of shape {_shape(zero_points)}"
        raise ExecutionError(
            f"{name} has {rows} rows, scales of shape {_shape(scales)}{found}",
            remedy="Give one scale and zero point for each row, or for each group of a row.",
        )
    groups = _grouped(scales).shape[1]
    if columns % groups:
        raise ExecutionError(f"{name} has {columns} columns, which {groups} groups do not divide")


def _shape(tensor: Any) -> list[int]:
    return list(tensor.shape)


def _pack(bits: int) -> Function:
    def pattern(codes: Any) -> Any:
        return pack(codes, bits)

    return pattern


_RELUS: Mapping[str, Function | None] = {"": None, "_relu": torch.relu}
_KINDS: Mapping[str, bool] = {"default": False, "per_channel": True}

PATTERNS: Mapping[str, Function] = {
    **{f"add{end}.default": _of_two(torch.add, then) for end, then in _RELUS.items()},
    **{f"mul{end}.default": _of_two(torch.mul, then) for end, then in _RELUS.items()},
    "add.scalar": add_scalar,
    "relu.default": relu,
    **{
        f"{name}{end}.{kind}": _of_weights(operator, per_channel=per_channel, then=then)
        for name, operator in (("conv", _convolution), ("linear", _linear))
        for end, then in _RELUS.items()
        for kind, per_channel in _KINDS.items()
    },
    "embedding_byte.default": embedding_byte,
    **{f"embedding_{bits}bit.default": _packed_embedding(bits) for bits in (4, 2)},
    **{f"pack_{bits}bit.default": _pack(bits) for bits in (4, 2)},
}
"""What each operator stands for, by packet and overload."""


# -- examples -------------------------------------------------------------------------------------

_A, _OUT = (0.1, 3, 0, 255), (0.3, 3, 0, 255)
_TABLE_RANGES = {"embedding_byte": (0, 255), "embedding_4bit": (-8, 7), "embedding_2bit": (-2, 1)}


def example(name: str) -> tuple[Any, ...]:
    """Make arguments to try an operator with when it is bound."""
    codes = torch.tensor([0, 3, 100, 255], dtype=torch.uint8)
    packet, _, kind = name.partition(".")
    if name == "add.scalar":
        return (codes, *_A, torch.uint8, 0.5, *_OUT, torch.uint8)
    if packet == "relu":
        return (codes, *_A, *_OUT)
    if packet.startswith("pack_"):
        return (torch.tensor([[-2, -1, 0, 1]], dtype=torch.int8),)
    if packet.startswith("embedding_"):
        scales, zero_points = torch.tensor([0.5, 0.25]), torch.tensor([1.0, 2.0])
        low, high = _TABLE_RANGES[packet]
        return (codes.reshape(2, 2), scales, zero_points, low, high, torch.tensor([[1, 0]]))
    if packet.startswith(("add", "mul")):
        return (codes, *_A, codes.flip(0), 0.2, 3, 0, 255, *_OUT)
    taps = (1, 1) if packet.startswith("conv") else ()
    weight = torch.tensor([[-127, 5], [9, 127]], dtype=torch.int8).reshape(2, 2, *taps)
    channels = (torch.tensor([0.5, 0.25]), torch.tensor([0, 0]), 0, -127, 127)
    window = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1) if taps else ()
    given = codes.reshape(2, 2, *taps)
    parameters = channels if kind == "per_channel" else (0.5, 0, -127, 127)
    return (given, *_A, weight, *parameters, torch.tensor([0.5, -0.5]), *window, *_OUT)
