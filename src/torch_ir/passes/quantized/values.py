"""Numbers of a program that stand for codes, and operators that move codes unchanged."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from torch_ir.ir import IR, DType, OpNode, TensorMeta
from torch_ir.ops.schema import lookup

LIBRARY = "quantized_decomposed"
QUANTIZE = f"{LIBRARY}.quantize_per_tensor.default"
DEQUANTIZE = f"{LIBRARY}.dequantize_per_tensor.default"
BOUNDS: Mapping[str, tuple[int, int]] = {"uint8": (0, 255), "int8": (-128, 127)}
"""The least and the largest code of each type of codes."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """How the codes of one tensor stand for numbers: ``(code - zero_point) · scale``.

    Attributes:
        scale: The number for which a step of one code stands.
        zero_point: The code of 0.
        low: The least code that quantizing gives.
        high: The largest.
        dtype: The type of the codes, a key of :data:`BOUNDS`.
    """

    scale: float
    zero_point: int
    low: int
    high: int
    dtype: str

    def attributes(self, prefix: str) -> dict[str, Any]:
        """Return the arguments of an operator that takes codes under this name."""
        values = (self.scale, self.zero_point, self.low, self.high)
        names = ("scale", "zero_point", "quant_min", "quant_max")
        return {f"{prefix}_{name}": value for name, value in zip(names, values, strict=True)}


def parameters(node: OpNode) -> Parameters | None:
    """Return the parameters of a call that quantizes or dequantizes bytes, or None."""
    if node.op_type not in (QUANTIZE, DEQUANTIZE) or len(node.inputs) != 1:
        return None
    attrs: Mapping[str, Any] = node.attrs
    kind, wanted = attrs.get("dtype"), attrs.get("out_dtype")
    codes = node.outputs[0] if node.op_type == QUANTIZE else node.inputs[0]
    numbers = node.inputs[0] if node.op_type == QUANTIZE else node.outputs[0]
    if codes.dtype not in BOUNDS or kind != DType(codes.dtype):
        return None
    if numbers.dtype != "float32" or wanted not in (None, _FLOAT):
        return None
    scale: Any = attrs.get("scale")
    integers: list[Any] = [attrs.get(n) for n in ("zero_point", "quant_min", "quant_max")]
    if type(scale) not in (float, int) or not all(type(value) is int for value in integers):
        return None
    zero_point, low, high = integers
    least, largest = BOUNDS[codes.dtype]
    fits = least <= low <= high <= largest
    return Parameters(float(scale), zero_point, low, high, codes.dtype) if fits else None


_FLOAT = DType("float32")


@lru_cache(maxsize=4096)
def gives_back(first: Parameters, second: Parameters, low: int, high: int) -> bool:
    """Return whether every code from ``low`` to ``high`` survives dequantizing and quantizing.

    It is tried, with the arithmetic of the operators.

    Example:
        >>> whole = Parameters(0.1, 3, 0, 255, "uint8")
        >>> gives_back(whole, whole, 0, 255)
        True
        >>> gives_back(whole, Parameters(0.1, 3, 0, 127, "uint8"), 0, 255)
        False
    """
    if (first.scale, first.zero_point, first.dtype) != (
        second.scale,
        second.zero_point,
        second.dtype,
    ):
        return False
    if not first.scale or not math.isfinite(first.scale):
        return False
    import torch

    from torch_ir.infer.resolve import resolve_operator

    dtype: Any = getattr(torch, first.dtype)
    codes = torch.arange(low, high + 1).to(dtype)
    dequantize: Any = resolve_operator(DEQUANTIZE)
    quantize: Any = resolve_operator(QUANTIZE)
    numbers = dequantize(codes, first.scale, first.zero_point, first.low, first.high, dtype)
    made = quantize(numbers, second.scale, second.zero_point, second.low, second.high, dtype)
    return bool(torch.equal(made, codes))


# -- what moves elements --------------------------------------------------------------------------


def _named(*names: str) -> frozenset[str]:
    return frozenset(f"aten.{name}" for name in names)


REARRANGE = _named(
    "view.default",
    "view_copy.default",
    "_unsafe_view.default",
    "reshape.default",
    "flatten.using_ints",
    "unflatten.int",
    "permute.default",
    "permute_copy.default",
    "transpose.int",
    "transpose_copy.int",
    "t.default",
    "t_copy.default",
    "unsqueeze.default",
    "unsqueeze_copy.default",
    "squeeze.default",
    "squeeze.dim",
    "squeeze.dims",
    "squeeze_copy.default",
    "squeeze_copy.dim",
    "squeeze_copy.dims",
    "alias.default",
    "alias_copy.default",
    "contiguous.default",
)
"""Operators that give every element once, of memory without gaps."""

SPREAD = _named(
    "slice.Tensor",
    "slice_copy.Tensor",
    "narrow.default",
    "select.int",
    "select_copy.int",
    "expand.default",
    "expand_copy.default",
    "split.Tensor",
    "split_copy.Tensor",
    "split_with_sizes.default",
    "split_with_sizes_copy.default",
    "chunk.default",
    "unbind.int",
    "unbind_copy.int",
)
"""Operators whose results may have gaps, or elements in several places: executors run them as
views, and what follows in the original sees a dense copy."""

GATHER = _named(
    "clone.default",
    "cat.default",
    "stack.default",
    "repeat.default",
    "flip.default",
    "index_select.default",
    "embedding.default",
    "pixel_shuffle.default",
) | {"dim_order_ops._clone_dim_order.default"}
"""Operators that copy elements into new memory."""

POOLS = _named("max_pool2d.default", "max_pool2d_with_indices.default")
"""Operators that pick the largest of some elements: of numbers, or of their codes alike."""

_INDICES = frozenset({"index", "indices"})


def moved(node: OpNode) -> tuple[TensorMeta, ...]:
    """Return the operands whose elements a node moves; none if it does anything else."""
    if node.op_type not in REARRANGE | SPREAD | GATHER | POOLS or node.operands is None:
        return ()
    found: list[TensorMeta] = []
    for name, slots in node.operands.items():
        listed = slots if isinstance(slots, tuple) else (slots,)
        if name not in _INDICES:
            found += [node.inputs[slot] for slot in listed if slot is not None]
    return tuple(found)


def is_kept_by_moves(found: Parameters, node: OpNode) -> bool:
    """Return whether a node does the same to codes and to the numbers they stand for."""
    if node.op_type not in POOLS:
        return True
    # a window that is dilated may lie outside altogether: -inf, which is no code
    dilation = node.attrs.get("dilation", 1)
    steps = dilation if isinstance(dilation, tuple) else (dilation,)
    return found.scale > 0 and math.isfinite(found.scale) and all(step == 1 for step in steps)


def may_have_gaps(node: OpNode) -> bool:
    """Return whether a result of a node may lie in memory with gaps."""
    return node.op_type in SPREAD


def is_view(ir: IR, node: OpNode) -> bool:
    """Return whether a node may return an alias of an input."""
    schema = ir.schema_of(node.op_type) or lookup(node.op_type)
    reshapes = node.op_type in ("aten.reshape.default", "aten.flatten.using_ints")
    return reshapes or schema is None or any(result.alias for result in schema.returns)
