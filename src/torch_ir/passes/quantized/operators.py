"""Operators between dequantizing and quantizing, as calls of the operators that stand for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch_ir.ir import IR, Constant, DType, OpNode, TensorMeta
from torch_ir.passes.quantized.values import BOUNDS, LIBRARY

PER_CHANNEL = f"{LIBRARY}.dequantize_per_channel.default"
PER_GROUP = f"{LIBRARY}.dequantize_per_channel_group.default"
AFFINE = "torchao.dequantize_affine.default"
RELUS = frozenset({"aten.relu.default"})

_FLOAT = DType("float32")


@dataclass(frozen=True, slots=True)
class Call:
    """A call of an operator of ``quantized_decomposed`` in the place of a node.

    Attributes:
        packet: The operator, without the library: ``"conv"``.
        kind: Its overload.
        codes: For each argument that takes codes with one scale, the numbers that they stand for.
        tensors: The other tensors that it takes, by argument.
        attrs: Its other arguments, but for those of codes.
        passed: Nodes that are not needed any more if nothing else uses them.
    """

    packet: str
    kind: str = "default"
    codes: Mapping[str, TensorMeta] = field(default_factory=dict[str, TensorMeta])
    tensors: Mapping[str, TensorMeta] = field(default_factory=dict[str, TensorMeta])
    attrs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    passed: tuple[OpNode, ...] = ()


def call_of(ir: IR, node: OpNode) -> Call | None:
    """Return the quantized call that replaces a node, or None if there is none."""
    make = _MAKERS.get(node.op_type)
    return None if make is None or node.operands is None else make(ir, node)


def operand(node: OpNode, name: str) -> TensorMeta | None:
    """Return the tensor that a node takes as the argument, or None."""
    return node.tensor(name)


# -- sums and products ----------------------------------------------------------------------------


def _add(ir: IR, node: OpNode) -> Call | None:
    if node.attrs.get("alpha", 1) != 1:
        return None
    first, second = operand(node, "self"), operand(node, "other")
    if first is None:
        return None
    number = node.attrs.get("other") if second is None else _number(ir, second)
    if number is None and second is not None:
        number = _number(ir, first)
        first, second = (second, first) if number is not None else (first, second)
    if number is None:
        return None if second is None else Call("add", codes={"a": first, "b": second})
    if type(number) not in (int, float):
        return None
    return Call("add", "scalar", codes={"a": first}, attrs={"b": number})


def _number(ir: IR, meta: TensorMeta) -> int | float | None:
    """The number that a constant without dimensions holds."""
    _, value = ir.external_values().get(meta.name, ("", None))
    if not isinstance(value, Constant) or value.shape or value.data is None:
        return None
    if value.dtype not in ("float32", "float64", "int32", "int64"):
        return None
    return value.tolist()


def _mul(ir: IR, node: OpNode) -> Call | None:
    del ir
    first, second = operand(node, "self"), operand(node, "other")
    return (
        None if first is None or second is None else Call("mul", codes={"a": first, "b": second})
    )


# -- weights --------------------------------------------------------------------------------------


def _weighted(
    ir: IR,
    packet: str,
    given: TensorMeta | None,
    weight: TensorMeta | None,
    bias: TensorMeta | None,
    attrs: Mapping[str, Any],
    passed: tuple[OpNode, ...] = (),
) -> Call | None:
    """A call with weights that are dequantized with one scale, or one for each channel."""
    if given is None or weight is None or (bias is not None and bias.dtype != "float32"):
        return None
    tensors = {} if bias is None else {"bias": bias}
    made = ir.producers.get(weight.name)
    if made is None or made.op_type != PER_CHANNEL:
        codes = {"a": given, "weight": weight}
        return Call(packet, "default", codes, tensors, attrs, passed)
    found = _table(made)
    if found is None:
        return None
    values, low, high = found
    axis = made.attrs.get("axis")
    channels = {"weight_axis": axis, "weight_quant_min": low, "weight_quant_max": high}
    return Call(
        packet,
        "per_channel",
        {"a": given},
        {**values, **tensors},
        {**channels, **attrs},
        (*passed, made),
    )


def _table(node: OpNode) -> tuple[dict[str, TensorMeta], int, int] | None:
    """The codes, scales and zero points that a node dequantizes, and the bounds of the codes."""
    codes, scales = operand(node, "input"), operand(node, "scales")
    low, high = node.attrs.get("quant_min"), node.attrs.get("quant_max")
    kind, wanted = node.attrs.get("dtype"), node.attrs.get("out_dtype")
    if codes is None or scales is None or type(low) is not int or type(high) is not int:
        return None
    if codes.dtype not in BOUNDS or kind != DType(codes.dtype) or wanted not in (None, _FLOAT):
        return None
    if node.outputs[0].dtype != "float32":
        return None
    found = {"weight": codes, "weight_scales": scales}
    zero_points = operand(node, "zero_points")
    if zero_points is not None:
        found["weight_zero_points"] = zero_points
    return found, low, high


# -- convolutions ---------------------------------------------------------------------------------


def _convolution(ir: IR, node: OpNode) -> Call | None:
    return _conv(ir, node, "input", transposed=node.attrs.get("transposed") is True)


def _plain_convolution(ir: IR, node: OpNode) -> Call | None:
    return _conv(ir, node, "input", transposed=False)


def _transposed_convolution(ir: IR, node: OpNode) -> Call | None:
    return _conv(ir, node, "input", transposed=True)


def _conv(ir: IR, node: OpNode, name: str, *, transposed: bool) -> Call | None:
    given, weight = operand(node, name), operand(node, "weight")
    if given is None or weight is None or len(given.shape) != len(weight.shape):
        return None
    rank = len(weight.shape) - 2
    kernel = weight.shape[2:]
    attrs = node.attrs
    stride = _each(attrs.get("stride", 1), rank)
    dilation = _each(attrs.get("dilation", 1), rank)
    padding = _padding(attrs.get("padding", 0), rank, kernel, dilation)
    output_padding = _each(attrs.get("output_padding", 0), rank)
    groups = attrs.get("groups", 1)
    window = (stride, padding, dilation, output_padding)
    if any(sizes is None for sizes in window) or type(groups) is not int:
        return None
    names = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
    values = (stride, padding, dilation, transposed, output_padding, groups)
    bias = operand(node, "bias")
    return _weighted(ir, "conv", given, weight, bias, dict(zip(names, values, strict=True)))


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


# -- linear layers --------------------------------------------------------------------------------


def _linear(ir: IR, node: OpNode) -> Call | None:
    return _weighted(
        ir, "linear", operand(node, "input"), operand(node, "weight"), operand(node, "bias"), {}
    )


def _addmm(ir: IR, node: OpNode) -> Call | None:
    bias = operand(node, "self")
    if node.attrs.get("alpha", 1) != 1 or node.attrs.get("beta", 1) != 1:
        return None
    if bias is None or len(bias.shape) != 1:
        return None
    return _of_matrices(ir, operand(node, "mat1"), operand(node, "mat2"), bias)


def _mm(ir: IR, node: OpNode) -> Call | None:
    return _of_matrices(ir, operand(node, "self"), operand(node, "mat2"), None)


def _of_matrices(
    ir: IR, given: TensorMeta | None, second: TensorMeta | None, bias: TensorMeta | None
) -> Call | None:
    """A linear layer whose weights are transposed before they are multiplied."""
    transposing = None if second is None else ir.producers.get(second.name)
    if transposing is None or not _is_transposition(transposing):
        return None
    (weight,) = transposing.inputs
    return _weighted(ir, "linear", given, weight, bias, {}, (transposing,))


def _is_transposition(node: OpNode) -> bool:
    if len(node.inputs) != 1 or len(node.inputs[0].shape) != 2:
        return False
    if node.op_type in ("aten.t.default", "aten.t_copy.default"):
        return True
    if node.op_type in ("aten.transpose.int", "aten.transpose_copy.int"):
        dims: Any = (node.attrs.get("dim0"), node.attrs.get("dim1"))
    elif node.op_type in ("aten.permute.default", "aten.permute_copy.default"):
        dims = node.attrs.get("dims")
        if tuple(dim % 2 for dim in dims) == (0, 1):
            return False
    else:
        return False
    return sorted(dim % 2 for dim in dims) == [0, 1]


_MAKERS: Mapping[str, Callable[[IR, OpNode], Call | None]] = {
    "aten.add.Tensor": _add,
    "aten.add.Scalar": _add,
    "aten.mul.Tensor": _mul,
    "aten.convolution.default": _convolution,
    **{
        f"aten.{name}.{kind}": _plain_convolution
        for name in ("conv1d", "conv2d", "conv3d")
        for kind in ("default", "padding")
    },
    "aten.conv_transpose1d.default": _transposed_convolution,
    "aten.conv_transpose2d.input": _transposed_convolution,
    "aten.conv_transpose3d.input": _transposed_convolution,
    "aten.linear.default": _linear,
    "aten.addmm.default": _addmm,
    "aten.mm.default": _mm,
}


# -- tables ---------------------------------------------------------------------------------------

_BITS = {(-8, 7): 4, (-2, 1): 2}


@dataclass(frozen=True, slots=True)
class Table:
    """An embedding of a table that is dequantized by rows, or groups of a row.

    Attributes:
        tensors: Its codes, scales and, if there are any, zero points, by argument.
        low: The least code.
        high: The largest.
        bits: 8, or 4 or 2 if that is enough for signed codes.
        columns: How many numbers a row has; 0 if that varies.
        source: The node that dequantizes it.
    """

    tensors: Mapping[str, TensorMeta]
    low: int
    high: int
    bits: int
    columns: int
    source: OpNode


def table_of(ir: IR, node: OpNode) -> Table | None:
    """Return the quantized table from which a node takes rows, or None."""
    weight = operand(node, "weight") if node.op_type == "aten.embedding.default" else None
    made = None if weight is None else ir.producers.get(weight.name)
    if made is None or node.outputs[0].dtype != "float32":
        return None
    if made.op_type == PER_CHANNEL:
        found = _table(made) if made.attrs.get("axis") == 0 else None
        shapes: Any = None if found is None else found[0]["weight_scales"].shape
        if found is None or len(shapes) != 1:
            return None
    elif made.op_type == PER_GROUP:
        found = _groups(made)
    else:
        found = _affine(made) if made.op_type == AFFINE else None
    if found is None or len(found[0]["weight"].shape) != 2 or not _is_exact(made, found[0]):
        return None
    tensors, low, high = found
    bits = _BITS.get((low, high), 8) if tensors["weight"].dtype == "int8" else 8
    size = tensors["weight"].shape[1]
    columns = size if isinstance(size, int) else 0
    if not columns or columns % (8 // bits):
        bits = 8
    return Table(tensors, low, high, bits, columns, made)


def _is_exact(node: OpNode, tensors: Mapping[str, TensorMeta]) -> bool:
    """Whether scales and zero points have types with which subtracting does not round or wrap."""
    zero_points = tensors.get("weight_zero_points")
    if tensors["weight_scales"].dtype != "float32":
        return False
    if zero_points is None:
        return True
    if zero_points.shape != tensors["weight_scales"].shape:
        return False
    small = ("int8", "uint8") if node.op_type == AFFINE else ("int32", "int64")
    return zero_points.dtype in ("float32", "int16", *small)


def _groups(node: OpNode) -> tuple[dict[str, TensorMeta], int, int] | None:
    """As :func:`_table`, for groups of a row."""
    wanted, size = node.attrs.get("output_dtype"), node.attrs.get("group_size")
    found = _table(node) if wanted == _FLOAT else None
    return found if found is not None and _fits_groups(found[0], size) else None


def _fits_groups(tensors: Mapping[str, TensorMeta], size: Any) -> bool:
    shape, scales = tensors["weight"].shape, tensors["weight_scales"].shape
    plain = all(type(dim) is int for dim in (*shape, *scales, size))
    return plain and len(shape) == 2 and scales == (shape[0], shape[1] // size)


def _affine(node: OpNode) -> tuple[dict[str, TensorMeta], int, int] | None:
    """As :func:`_table`, for torchao's operator, whose blocks are whole rows or groups of them."""
    codes, scales = operand(node, "input"), operand(node, "scale")
    attrs = node.attrs
    block, kind = attrs.get("block_size"), attrs.get("input_dtype")
    if codes is None or scales is None or codes.dtype not in BOUNDS or kind != DType(codes.dtype):
        return None
    if attrs.get("output_dtype", _FLOAT) != _FLOAT or node.outputs[0].dtype != "float32":
        return None
    found = {"weight": codes, "weight_scales": scales}
    zero_points = operand(node, "zero_point")
    if zero_points is not None:
        found["weight_zero_points"] = zero_points
    if not isinstance(block, tuple) or len(block) != 2 or block[0] != 1:
        return None
    if not _fits_groups(found, block[1]):
        return None
    low, high = (attrs.get(name) for name in ("quant_min", "quant_max"))
    least, largest = BOUNDS[codes.dtype]
    low, high = least if low is None else low, largest if high is None else high
    return (found, low, high) if type(low) is int and type(high) is int else None
