"""The operators of the Backend dialect that come with this package."""

from __future__ import annotations

from collections.abc import Mapping

from torch_ir.ops.schema import parse_schema


def _quantized(name: str) -> str:
    return f"float {name}_scale, int {name}_zero_point, int {name}_quant_min, int {name}_quant_max"


_TWO = f"Tensor a, {_quantized('a')}, Tensor b, {_quantized('b')}, {_quantized('out')}"
_ONE = f"Tensor a, {_quantized('a')}"
_WEIGHT = {
    "": f"Tensor weight, {_quantized('weight')}",
    ".per_channel": "Tensor weight, Tensor weight_scales, Tensor? weight_zero_points, "
    "int weight_axis, int weight_quant_min, int weight_quant_max",
}
_WINDOW = (
    "int[] stride, int[] padding, int[] dilation, bool transposed, int[] output_padding, "
    "int groups"
)
_TABLE = (
    "Tensor weight, Tensor weight_scales, Tensor? weight_zero_points, int weight_quant_min, "
    "int weight_quant_max, Tensor indices"
)

_TEXTS = (
    *[
        f"executorch_prims::{name}.int(SymInt a, SymInt b) -> SymInt"
        for name in ("add", "mul", "sub", "floordiv")
    ],
    *[
        f"executorch_prims::{name}.int(SymInt a, SymInt b) -> bool"
        for name in ("gt", "lt", "ge", "le", "eq")
    ],
    *[
        f"quantized_decomposed::{name}({_TWO}) -> Tensor qc"
        for name in ("add", "add_relu", "mul", "mul_relu")
    ],
    f"quantized_decomposed::relu({_ONE}, {_quantized('out')}) -> Tensor qc",
    *[
        f"quantized_decomposed::{name}{kind}({_ONE}, {weight}, Tensor? bias{window}, "
        f"{_quantized('out')}) -> Tensor qc"
        for kind, weight in _WEIGHT.items()
        for name, window in (
            ("conv", f", {_WINDOW}"),
            ("conv_relu", f", {_WINDOW}"),
            ("linear", ""),
            ("linear_relu", ""),
        )
    ],
    f"quantized_decomposed::add.scalar(Tensor qa, {_quantized('a')}, ScalarType a_dtype, "
    f"Scalar b, {_quantized('out')}, ScalarType out_dtype) -> Tensor",
    "quantized_decomposed::embedding_byte(Tensor weight, Tensor weight_scales, "
    "Tensor weight_zero_points, int weight_quant_min, int weight_quant_max, Tensor indices) "
    "-> Tensor",
    *[
        text
        for bits in (4, 2)
        for text in (
            f"quantized_decomposed::embedding_{bits}bit({_TABLE}) -> Tensor",
            f"quantized_decomposed::pack_{bits}bit(Tensor codes) -> Tensor",
        )
    ],
)

BACKEND_SCHEMAS: Mapping[str, str] = {parse_schema(text).op_type: text for text in _TEXTS}
"""The schema of each, by overload; a program that calls one records it in ``IR.operators``."""
