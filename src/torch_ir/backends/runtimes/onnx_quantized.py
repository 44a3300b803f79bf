"""Translations to ONNX of quantization by numbers that the program computes.

Torch's exporter takes scales and zero points for constants. What dynamic quantization computes for
each call is written with the operators of which ONNX Runtime makes kernels of 8 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torch_ir.lazy import optional_module


def _operators() -> Any:
    opsets = optional_module("onnxscript.onnx_opset", "ONNX", "onnxruntime")
    return opsets.opset18


def _number(value: float, kind: int) -> Any:
    helper = optional_module("onnx.helper", "ONNX", "onnxruntime")
    return _operators().Constant(value=helper.make_tensor("number", kind, [], [value]))


_FLOAT, _UINT8, _INT8, _INT64, _DOUBLE = 1, 2, 3, 7, 11
"""What ``onnx.TensorProto`` calls element types."""
_RANGES = {_UINT8: (0, 255), _INT8: (-128, 127)}


def _choose_qparams(input: Any, quant_min: int, quant_max: int, eps: float, dtype: int) -> Any:
    """The scale ``f64[1]`` and zero point ``i64[1]`` of the range of a tensor, zero among it."""
    del dtype  # of the codes, which are made by them later
    op, zero = _operators(), _number(0.0, _FLOAT)
    least = op.Min(op.ReduceMin(op.Cast(input, to=_FLOAT), keepdims=0), zero)
    most = op.Max(op.ReduceMax(op.Cast(input, to=_FLOAT), keepdims=0), zero)
    steps = _number(float(quant_max - quant_min), _FLOAT)
    scale = op.Max(op.Div(op.Sub(most, least), steps), _number(eps, _FLOAT))
    place = op.Sub(_number(float(quant_min), _FLOAT), op.Round(op.Div(least, scale)))
    bounds = _number(float(quant_min), _FLOAT), _number(float(quant_max), _FLOAT)
    one = op.Constant(value_ints=[1])
    zero_point = op.Cast(op.Clip(place, *bounds), to=_INT64)
    return op.Cast(op.Reshape(scale, one), to=_DOUBLE), op.Reshape(zero_point, one)


def _quantize(
    input: Any, scale: Any, zero_point: Any, quant_min: int, quant_max: int, dtype: int
) -> Any:
    """Codes of a tensor; ``scale`` and ``zero_point`` have one element."""
    op = _operators()
    if not _is_code(zero_point, dtype):
        steps = op.Round(op.Mul(input, op.Div(_number(1.0, _FLOAT), _scalar(scale, _FLOAT))))
        bounds = _number(float(quant_min), _FLOAT), _number(float(quant_max), _FLOAT)
        return op.Cast(op.Clip(op.Add(steps, _scalar(zero_point, _FLOAT)), *bounds), to=dtype)
    codes = op.QuantizeLinear(input, _scalar(scale, _FLOAT), _scalar(zero_point, dtype))
    if (quant_min, quant_max) in ((-128, 127), (0, 255)):  # all that the type has
        return codes
    return op.Clip(codes, _number(quant_min, dtype), _number(quant_max, dtype))


def _dequantize(
    input: Any,
    scale: Any,
    zero_point: Any,
    quant_min: int,
    quant_max: int,
    dtype: int,
    out_dtype: int = -1,
) -> Any:
    """The numbers of codes; ``scale`` and ``zero_point`` have one element."""
    op = _operators()
    factor = _scalar(scale, _FLOAT)
    if _is_code(zero_point, dtype):
        made = op.DequantizeLinear(input, factor, _scalar(zero_point, dtype))
    else:
        apart = op.Sub(op.Cast(input, to=_FLOAT), _scalar(zero_point, _FLOAT))
        made = op.Mul(apart, factor)
    return made if out_dtype in (-1, None, _FLOAT) else op.Cast(made, to=out_dtype)


def _scalar(value: Any, dtype: int) -> Any:
    op = _operators()
    return op.Squeeze(op.Cast(value, to=dtype))


def _is_code(zero_point: Any, dtype: int) -> bool:
    """Whether the type of the codes has a zero point for sure: the program clips it to that.

    Any other goes by way of floats, as ONNX has the zero point in the type of the codes.
    """
    clipped = zero_point
    for kind in ("Reshape", "Cast"):
        if not _is_of(clipped.producer(), kind):
            return False
        clipped = clipped.producer().inputs[0]
    node = clipped.producer()
    if not _is_of(node, "Clip") or dtype not in _RANGES:
        return False
    low, high = [bound.producer().attributes["value"].value.numpy() for bound in node.inputs[1:]]
    return bool(_RANGES[dtype][0] <= low and high <= _RANGES[dtype][1])


def _linear(otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """Products of codes where both operands are codes, the first of a scale of each call."""

    def translated(input: Any, weight: Any, bias: Any = None) -> Any:
        op = _operators()
        first, second = input.producer(), weight.producer()
        if not (_is_of_each_call(first) and _is_of_rows(second)):
            return otherwise(input, weight, bias)
        (codes, scale, zero), (kept, scales, zeros) = first.inputs, second.inputs
        zero = _moved(zero)  # unsigned: products of signed codes are slow, of mixed ones saturated
        codes = op.QuantizeLinear(codes.producer().inputs[0], scale, zero)
        rows = _moved(op.Transpose(kept, perm=[1, 0]))
        product = op.MatMulInteger(codes, rows, zero, _moved(zeros))
        made = op.Mul(op.Cast(product, to=_FLOAT), op.Mul(scale, scales))
        return made if bias is None else op.Add(made, bias)

    return translated


def _is_of_each_call(node: Any) -> bool:
    """Whether a node gives the numbers of codes of int8 whose scale the program computes."""
    if not _is_of(node, "DequantizeLinear") or not _is_of(node.inputs[1].producer(), "Squeeze"):
        return False
    cast = node.inputs[2].producer().inputs[0].producer()
    return (
        _is_of(node.inputs[0].producer(), "QuantizeLinear")
        and cast.attributes["to"].value == _INT8
    )


def _is_of_rows(node: Any) -> bool:
    """Whether a node gives the numbers of a matrix of codes of int8, with a scale for each row."""
    if not _is_of(node, "DequantizeLinear") or len(node.inputs) != 3:
        return False
    axis = node.attributes.get("axis")
    codes = node.inputs[0]
    is_matrix = codes.dtype == _INT8 and len(codes.shape or ()) == 2
    return is_matrix and axis is not None and axis.value == 0


def _is_of(node: Any, kind: str) -> bool:
    return node is not None and node.op_type == kind


def _moved(codes: Any) -> Any:
    """Codes of int8 as those of uint8."""
    op = _operators()
    return op.Cast(op.Add(op.Cast(codes, to=_FLOAT), _number(128.0, _FLOAT)), to=_UINT8)


def add_translations(registry: Any) -> None:
    """Let a registry of torch's exporter translate what is translated here."""
    (linear,) = registry.functions["aten::linear"]
    known = torch.ops.quantized_decomposed
    translated = {
        known.choose_qparams.tensor: _choose_qparams,
        known.quantize_per_tensor.tensor: _quantize,
        known.dequantize_per_tensor.tensor: _dequantize,
        torch.ops.aten.linear.default: _linear(linear.onnx_function),
    }
    for target, function in translated.items():
        registry.register_op(target, function)
