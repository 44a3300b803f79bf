"""Operators between dequantizing and quantizing, as patterns of the operators of codes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from torch_ir.ir import IR, OpNode, TensorMeta
from torch_ir.ir.queries import constant_of
from torch_ir.passes.patterns.elements import Call, Either, Element, Match, Pattern, Through, Value
from torch_ir.passes.quantized.codes import AFFINE, FLOAT, LIBRARY, QUANTIZE, REARRANGE, bounds

RELU = "aten.relu.default"
PER_CHANNEL = f"{LIBRARY}.dequantize_per_channel.default"
PER_GROUP = f"{LIBRARY}.dequantize_per_channel_group.default"

Attributes: TypeAlias = Mapping[str, Any]
Is: TypeAlias = Callable[[TensorMeta], bool]


@dataclass(frozen=True, slots=True)
class Row:
    """An operator of codes, and the operator of numbers for which it stands.

    Attributes:
        packet: The operator, without the library: ``"conv"``.
        pattern: Its call is named ``op``. Values named ``a``, ``b`` and ``weight`` stand for
            codes with one scale; a call ``table`` dequantizes weights by channel.
        attributes: Arguments of the new operator, from the old; None where it does not fit.
    """

    packet: str
    pattern: Call
    attributes: Callable[[OpNode], Attributes | None] = lambda node: {}


def rows(ir: IR, is_codes: Is) -> tuple[tuple[Row, Pattern], ...]:
    """Return what to look for at a quantize, the first that fits first.

    Args:
        ir: The program.
        is_codes: Tells which of its values stand for codes with one scale.
    """
    a, b = Value("a", is_codes), Value("b", is_codes)
    weight = Either((Value("weight", is_codes), _by_channel()))
    bias = Value("bias", lambda meta: meta.dtype == "float32", is_optional=True)
    vector = Value("bias", lambda meta: meta.dtype == "float32" and len(meta.shape) == 1)
    number = Value("number", lambda meta: _number(ir, meta) is not None)
    turned = Call(
        "turned", _TRANSPOSITIONS, {"self": weight}, where=_is_transposition, is_shared=True
    )
    add, adds = {"aten.add.Tensor"}, {"aten.add.Tensor", "aten.add.Scalar"}
    found = (
        Row("add.scalar", _op(add, {"self": a, "other": number}), partial(_constant, ir)),
        Row("add.scalar", _op(adds, {"self": a}), _other),
        Row("add", _op(add, {"self": a, "other": b})),
        Row("mul", _op({"aten.mul.Tensor"}, {"self": a, "other": b})),
        Row("conv", _op(_CONVOLUTIONS, {"input": a, "weight": weight, "bias": bias}), _window),
        Row("linear", _op({"aten.linear.default"}, {"input": a, "weight": weight, "bias": bias})),
        Row("linear", _op({"aten.addmm.default"}, {"self": vector, "mat1": a, "mat2": turned})),
        Row("linear", _op({"aten.mm.default"}, {"self": a, "mat2": turned})),
    )
    relu = partial(Call, op_types=frozenset({RELU}))
    listed = [(Row("relu", r := relu("op", operands={"self": a})), _quantized(r))]
    for row in found:
        listed.append((row, _quantized(row.pattern)))
        if row.packet != "add.scalar":
            positive = relu("relu", operands={"self": Through("before", REARRANGE, row.pattern)})
            listed.append((row, _quantized(positive)))
    return tuple(listed)


def _quantized(element: Element) -> Pattern:
    moved = {"input": Through("moves", REARRANGE, element)}
    return Pattern({"result": Call("quantize", frozenset({QUANTIZE}), moved)})


def _op(op_types: set[str] | frozenset[str], operands: Mapping[str, Element]) -> Call:
    return Call("op", frozenset(op_types), operands, where=_is_plain)


def _is_plain(node: OpNode) -> bool:
    """Whether a node makes one tensor of numbers and scales nothing."""
    is_scaled = any(node.attrs.get(name, 1) != 1 for name in ("alpha", "beta"))
    return not is_scaled and [meta.dtype for meta in node.outputs] == ["float32"]


# -- numbers --------------------------------------------------------------------------------------


def _number(ir: IR, meta: TensorMeta) -> int | float | None:
    """The number that a constant without dimensions holds."""
    value = constant_of(ir, meta.name)
    if value is None or value.shape or value.dtype not in ("float32", "float64", "int32", "int64"):
        return None
    return value.tolist()


def _constant(ir: IR, node: OpNode) -> Attributes | None:
    numbers = [_number(ir, meta) for meta in node.inputs[::-1]]
    return {"b": next(number for number in numbers if number is not None)}


def _other(node: OpNode) -> Attributes | None:
    number = node.attrs.get("other")
    return {"b": number} if type(number) in (int, float) else None


# -- convolutions ---------------------------------------------------------------------------------

_TRANSPOSED = frozenset(
    f"aten.conv_transpose{kind}" for kind in ("1d.default", "2d.input", "3d.input")
)
_CONVOLUTIONS = _TRANSPOSED | {
    "aten.convolution.default",
    *(f"aten.conv{rank}d.{kind}" for rank in (1, 2, 3) for kind in ("default", "padding")),
}


def _window(node: OpNode) -> Attributes | None:
    """How a convolution moves, with one number for each dimension."""
    given, weight = node.tensor("input"), node.tensor("weight")
    if given is None or weight is None or len(given.shape) != len(weight.shape):
        return None
    rank = len(weight.shape) - 2
    attrs = node.attrs
    groups = attrs.get("groups", 1)
    dilation = _each(attrs.get("dilation", 1), rank)
    found = {
        "stride": _each(attrs.get("stride", 1), rank),
        "padding": _padding(attrs.get("padding", 0), rank, weight.shape[2:], dilation),
        "dilation": dilation,
        "transposed": node.op_type in _TRANSPOSED or attrs.get("transposed") is True,
        "output_padding": _each(attrs.get("output_padding", 0), rank),
        "groups": groups if type(groups) is int else None,
    }
    return None if any(value is None for value in found.values()) else found


def _each(value: Any, rank: int) -> tuple[int, ...] | None:
    """A size for each dimension; None if one is not a number."""
    sizes: tuple[Any, ...] = value if isinstance(value, tuple) else (value,)
    sizes = sizes * rank if len(sizes) == 1 else sizes
    return sizes if len(sizes) == rank and all(type(size) is int for size in sizes) else None


def _padding(
    value: Any, rank: int, kernel: Sequence[Any], dilation: tuple[int, ...] | None
) -> tuple[int, ...] | None:
    """As :func:`_each`; "same" where it is as much on both sides."""
    if not isinstance(value, str):
        return _each(value, rank)
    if value == "valid":
        return (0,) * rank
    if value != "same" or dilation is None or not all(type(size) is int for size in kernel):
        return None
    totals = [step * (size - 1) for step, size in zip(dilation, kernel, strict=True)]
    return None if any(total % 2 for total in totals) else tuple([total // 2 for total in totals])


# -- weights --------------------------------------------------------------------------------------

_TRANSPOSITIONS = frozenset(
    f"aten.{name}{copy}.{kind}"
    for name, kind in (("t", "default"), ("transpose", "int"), ("permute", "default"))
    for copy in ("", "_copy")
)


def _is_transposition(node: OpNode) -> bool:
    """Whether a node turns a matrix."""
    if len(node.inputs[0].shape) != 2:
        return False
    dims: Any = node.attrs.get("dims", (node.attrs.get("dim0", 1), node.attrs.get("dim1", 0)))
    turned = [dim % 2 for dim in dims]
    return turned == [1, 0] or ("dims" not in node.attrs and turned == [0, 1])


def _has_bounds(node: OpNode) -> bool:
    return bounds(node) is not None


def _by_channel(where: Callable[[OpNode], bool] = _has_bounds, op: str = PER_CHANNEL) -> Call:
    """Weights, or a table, with a scale for each channel."""
    plural = "" if op == AFFINE else "s"
    operands = {
        "input": Value("weight"),
        f"scale{plural}": Value("weight_scales"),
        f"zero_point{plural}": Value("weight_zero_points", is_optional=True),
    }
    return Call("table", frozenset({op}), operands, where=where, is_shared=True)


# -- tables ---------------------------------------------------------------------------------------

_BITS = {(-8, 7): 4, (-2, 1): 2}


def _is_table(node: OpNode) -> bool:
    """Whether a node dequantizes a table by rows, or groups of a row, without rounding."""
    codes, attrs = node.inputs[0], node.attrs
    scales = node.tensor("scale" if node.op_type == AFFINE else "scales")
    zero_points = node.tensor("zero_point" if node.op_type == AFFINE else "zero_points")
    if bounds(node) is None or scales is None or len(codes.shape) != 2:
        return False
    if node.op_type == PER_CHANNEL:
        fits = attrs.get("axis") == 0 and len(scales.shape) == 1
    elif node.op_type == PER_GROUP:
        fits = attrs.get("output_dtype") == FLOAT
        fits = fits and _fits_groups(codes, scales, attrs.get("group_size"))
    else:
        block: Any = attrs.get("block_size")
        fits = isinstance(block, tuple) and len(block) == 2 and block[0] == 1
        fits = fits and _fits_groups(codes, scales, block[1])
    if not fits or scales.dtype != "float32":
        return False
    small = ("int8", "uint8") if node.op_type == AFFINE else ("int32", "int64")
    exact = ("float32", "int16", *small)  # subtracting neither rounds nor wraps
    return zero_points is None or (
        zero_points.shape == scales.shape and zero_points.dtype in exact
    )


def _fits_groups(codes: TensorMeta, scales: TensorMeta, size: Any) -> bool:
    plain = all(type(dim) is int for dim in (*codes.shape, *scales.shape, size))
    return plain and scales.shape == (codes.shape[0], codes.shape[1] // size)


_TABLES = Either(tuple([_by_channel(_is_table, op) for op in (PER_CHANNEL, PER_GROUP, AFFINE)]))
TABLE = Call(
    "op",
    frozenset({"aten.embedding.default"}),
    {"weight": _TABLES, "indices": Value("indices")},
    where=lambda node: node.outputs[0].dtype == "float32",
)
"""Rows of a quantized table."""


def bits_of(match: Match) -> int:
    """Return how many bits the codes of a table need: 8, or 4 or 2 if they are signed."""
    codes = match.values["weight"]
    found = bounds(match.nodes["table"])
    bits = _BITS.get(found, 8) if found is not None and codes.dtype == "int8" else 8
    columns = codes.shape[1]
    return bits if isinstance(columns, int) and columns % (8 // bits) == 0 and columns else 8
