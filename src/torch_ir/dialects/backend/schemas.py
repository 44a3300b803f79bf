"""The operators of the Backend dialect that come with this package."""

from __future__ import annotations

from collections.abc import Mapping

from torch_ir.ir.schema import parse_schema


def _quantised(name: str) -> str:
    return f"float {name}_scale, int {name}_zero_point, int {name}_quant_min, int {name}_quant_max"


_ADD = f"Tensor a, {_quantised('a')}, Tensor b, {_quantised('b')}, {_quantised('out')}"

_TEXTS = (
    *[
        f"executorch_prims::{name}.int(SymInt a, SymInt b) -> SymInt"
        for name in ("add", "mul", "sub", "floordiv")
    ],
    *[
        f"executorch_prims::{name}.int(SymInt a, SymInt b) -> bool"
        for name in ("gt", "lt", "ge", "le", "eq")
    ],
    f"quantized_decomposed::add({_ADD}) -> Tensor qc",
    f"quantized_decomposed::add_relu({_ADD}) -> Tensor qc",
    f"quantized_decomposed::add.scalar(Tensor qa, {_quantised('a')}, ScalarType a_dtype, "
    f"Scalar b, {_quantised('out')}, ScalarType out_dtype) -> Tensor",
    "quantized_decomposed::embedding_byte(Tensor weight, Tensor weight_scales, "
    "Tensor weight_zero_points, int weight_quant_min, int weight_quant_max, Tensor indices) "
    "-> Tensor",
)

BACKEND_SCHEMAS: Mapping[str, str] = {parse_schema(text).op_type: text for text in _TEXTS}
"""The schema of each, by overload; a program that calls one records it in ``IR.operators``."""
