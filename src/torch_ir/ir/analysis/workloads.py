"""Kinds of work that calls do, and the sizes that their time depends on.

Bytes alone decide for what moves elements; for what multiplies, the shape of the product decides
how well a machine does it: one row waits for the weights, many rows do not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

from torch_ir.ops.flops import FACTORS, GATES, Shape


@dataclass(frozen=True, slots=True)
class Workload:
    """The work of one call.

    Attributes:
        kind: What it is like; ``"view"`` moves nothing and ``"pointwise"`` is all that has no
            kind of its own.
        sizes: What its time depends on: the bytes that it moves, unless the kind has others.
        times: How often it does that.
        computes: Whether these sizes count operations, and reading operands comes on top.
    """

    kind: str
    sizes: tuple[float, ...] = ()
    times: float = 1.0
    computes: bool = False


_BY_BYTES: Mapping[str, str] = {
    "exponential": "sigmoid exp log silu hardswish mish elu softplus log1p expm1",
    "function": "gelu tanh erf sin cos atan",
    "copy": "contiguous clone reshape flatten permute_copy transpose_copy",
    "indexing": "index gather scatter index_select scatter_add take_along_dim masked_fill "
    "masked_select",
    "sorting": "topk sort argsort kthvalue median",
}
_KIND_OF = {f"aten.{n}": kind for kind, names in _BY_BYTES.items() for n in names.split()}


@dataclass(frozen=True, slots=True)
class _Call:
    name: str
    arguments: Mapping[str, Any]
    result: Shape
    flops: int


Shaped: TypeAlias = Callable[[_Call], Workload | None]


def workload(
    op_type: str,
    arguments: Mapping[str, Any],
    results: Sequence[Shape],
    flops: int | None,
    moved: int,
) -> Workload:
    """Return what kind of work a call is.

    Args:
        op_type: The exact overload.
        arguments: The call's arguments by name, in the schema's order; a tensor stands as its
            shape, a tuple, and a list of tensors as a list of shapes. Empty: not known.
        results: The shapes of the results.
        flops: Its operations; None if unknown.
        moved: The bytes that it reads and writes.

    Example:
        >>> shapes = {"input": (2, 5, 3), "weight": (4, 3)}
        >>> workload("aten.linear.default", shapes, [(2, 5, 4)], 240, 244)
        Workload(kind='product', sizes=(10, 3, 4), times=1.0, computes=True)
        >>> workload("aten.relu.default", {"self": (8,)}, [(8,)], 8, 64)
        Workload(kind='pointwise', sizes=(64,), times=1.0, computes=False)
    """
    if not moved:
        return Workload("view")
    operator = op_type.rpartition(".")[0]
    name = operator.removeprefix("aten.")
    is_known = operator != name and name in _SHAPED and arguments
    first: Any = next(iter(arguments.values()), None)
    reads_nothing = isinstance(first, tuple) and 0 in first
    if is_known and results and prod(results[0]) and not reads_nothing:
        found = _SHAPED[name](_Call(name, arguments, results[0], flops or 0))
        if found is not None:
            return found
    return Workload(_KIND_OF.get(operator, "pointwise"), (moved,))


def _product(call: _Call) -> Workload | None:
    """Rows, inner size and columns of each product of two matrices; a vector is one row."""
    if not call.flops:
        return None
    made = prod(call.result)
    inner = call.flops // (2 * made)
    columns = call.result[-1] if call.result else 1
    given = call.arguments
    other = given.get("mat2") or given.get("batch2") or given.get("other") or ()
    batch = prod(call.result[:-2]) if len(other) > 2 else 1
    rows = made // columns // batch
    if call.name in ("mv", "addmv"):
        rows, columns = 1, made
    return Workload("product", (rows, inner, columns), float(batch), computes=True)


def _convolution(call: _Call) -> Workload:
    """Positions, elements of a kernel's window, and channels made, for each group."""
    weight = call.arguments["weight"]
    groups, area = int(call.arguments.get("groups") or 1), prod(weight[2:])
    shape = call.arguments["input"]
    if "transpose" in call.name or call.arguments.get("transposed") is True:
        positions = prod(shape[2:]) * (shape[0] if len(shape) == len(weight) else 1)
        sizes = positions, weight[0] // groups, weight[1] * area
        return Workload("transposed convolution", sizes, float(groups), computes=True)
    positions = prod(call.result) // weight[0]
    if groups > 1 and weight[1] == 1:  # every position that is read, whatever the stride
        read = prod(shape) // weight[0]
        return Workload("depthwise", (max(positions, read), weight[0], area), computes=True)
    kind = "convolution" if area > 1 else "convolution of points"
    sizes = positions, weight[1] * area, weight[0] // groups
    return Workload(kind, sizes, float(groups), computes=True)


def _attention(call: _Call) -> Workload:
    """Queries, keys and width of each head."""
    query, key = call.arguments["query"], call.arguments["key"]
    sizes = query[-2], key[-2], query[-1]
    kind = "attention" if call.arguments.get("attn_mask") is None else "masked attention"
    return Workload(kind, sizes, float(prod(query[:-2])), computes=True)


def _recurrent(call: _Call) -> Workload:
    """Steps, batch and hidden size, for each layer whose input is as wide as its state."""
    packed, params = call.arguments.get("data"), call.arguments["params"]
    if packed is not None:  # as many sequences as are left at each step
        steps = call.arguments["batch_sizes"][0]
        sizes = steps, packed[0] / steps, params[1][1]
    else:
        shape = call.arguments["input"]
        first = 0 if call.arguments.get("batch_first") is True else 1
        batch = shape[first] if len(shape) > 2 else 1
        sizes = prod(shape[:-1]) // batch, batch, params[1][1]
    layer = 4 * GATES[call.name] * prod(sizes) * sizes[-1]
    return Workload(call.name, sizes, call.flops / layer, computes=True)


def _pooling(call: _Call) -> Workload:
    """Elements made, and those of a window."""
    made = prod(call.result)
    return Workload("pooling", (made, call.flops // made))


def _rows(kind: str) -> Shaped:
    """Rows and their length, over the last dimensions or those that are reduced."""

    def found(call: _Call) -> Workload | None:
        shape = next(iter(call.arguments.values()))
        if not isinstance(shape, tuple):
            return None
        normalized = call.arguments.get("normalized_shape")
        if kind == "normalization":  # each channel of each image
            rows = prod(shape[:2])
            groups = call.arguments.get("num_groups") or call.arguments.get("group")
            rows = shape[0] * int(groups) if groups else rows
        elif kind == "reduction" and prod(shape) > prod(call.result):
            rows = prod(call.result)
        else:
            rows = prod(shape) // (prod(normalized) if normalized else shape[-1] if shape else 1)
        return Workload(kind, (rows, prod(shape) // max(rows, 1)))

    return found


def _written(call: _Call) -> Workload | None:
    """The elements that are written into others, if these are not copied first."""
    given = call.arguments.get("values", call.arguments.get("source"))
    if not call.name.endswith("_") or not isinstance(given, tuple):
        return None
    return Workload("indexing", (12.0 * prod(given),))


def _each(function: Shaped, names: str) -> Mapping[str, Shaped]:
    return dict.fromkeys(names.split(), function)


_SHAPED: Mapping[str, Shaped] = {
    **_each(_product, " ".join((*FACTORS, "vdot einsum"))),
    **_each(_convolution, "convolution conv1d conv2d conv3d"),
    **_each(_convolution, "conv_transpose1d conv_transpose2d conv_transpose3d"),
    **_each(
        _attention, "scaled_dot_product_attention _scaled_dot_product_flash_attention_for_cpu"
    ),
    **_each(_recurrent, " ".join(GATES)),
    **_each(_pooling, "max_pool1d max_pool2d max_pool3d max_pool2d_with_indices avg_pool1d"),
    **_each(_pooling, "avg_pool2d avg_pool3d"),
    **_each(_rows("softmax"), "softmax _softmax log_softmax _log_softmax"),
    **_each(_rows("layer norm"), "layer_norm native_layer_norm"),
    **_each(_rows("RMS norm"), "rms_norm"),
    **_each(_rows("normalization"), "batch_norm _native_batch_norm_legit_no_training group_norm"),
    **_each(_rows("normalization"), "native_group_norm instance_norm"),
    **_each(_rows("reduction"), "sum mean amax amin max min var std argmax argmin prod norm all"),
    **_each(_rows("reduction"), "any cumsum linalg_vector_norm adaptive_avg_pool1d"),
    **_each(_rows("reduction"), "adaptive_avg_pool2d _adaptive_avg_pool2d"),
    **_each(_written, "index_put index_put_ index_copy index_copy_ index_add index_add_"),
}
