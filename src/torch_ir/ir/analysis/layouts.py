"""Strides of values as operators give them, worked out from shapes alone, without torch.

Graph inputs and weights are contiguous. Views are followed; a result that is no view is
contiguous, but for what works element by element, which is laid out as its first operand of that
size, and for attention, as its query.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from torch_ir.errors import InvalidIRError
from torch_ir.ir.node import OpNode
from torch_ir.ir.values import row_major
from torch_ir.ops.spec import spec_of

Shape: TypeAlias = tuple[int, ...]
Layout: TypeAlias = tuple[Shape, tuple[int, ...]]
"""A shape and the strides of its elements."""


def is_contiguous(layout: Layout) -> bool:
    """Return whether elements lie in row-major order without gaps; sizes of 1 do not matter."""
    shape, strides = layout
    wanted = row_major(shape)
    return 0 in shape or all(
        size == 1 or a == b for size, a, b in zip(shape, strides, wanted, strict=True)
    )


def viewed(layout: Layout, shape: Shape) -> tuple[int, ...] | None:
    """Return the strides under which a tensor can be viewed in another shape; None if it cannot.

    Example:
        >>> viewed(((2, 3), (3, 1)), (6,)), viewed(((2, 3), (1, 2)), (6,))
        ((1,), None)
    """
    old, strides = layout
    if 0 in old:
        return row_major(shape)
    blocks: list[list[int]] = []  # sizes and innermost strides of what lies without gaps
    for size, stride in zip(old, strides, strict=True):
        if size == 1:
            continue
        if blocks and blocks[-1][1] == size * stride:
            blocks[-1] = [blocks[-1][0] * size, stride]
        else:
            blocks.append([size, stride])
    made: list[int] = []
    rest = list(shape)
    for size, stride in reversed(blocks):
        filled = 1
        while filled < size and rest:
            last = rest.pop()
            made.append(stride * filled)
            filled *= last
        if filled != size:
            return None
    made += [made[-1] if made else 1 for _ in rest]
    return tuple(reversed(made)) if math.prod(rest) == 1 else None


def node_layouts(
    node: OpNode, given: Sequence[Layout], made: Sequence[Shape]
) -> list[tuple[int, ...]]:
    """Return the strides of each result of a node.

    Args:
        node: The node.
        given: Shape and strides of each of its inputs.
        made: The shape of each of its outputs.
    """
    name = node.op_type.rpartition(".")[0].removeprefix("aten.")
    rule = _VIEWS.get(name)
    if rule is not None and given:
        arguments: dict[str, Any] = node.arguments([None for _ in given])
        found = [rule(given[0], shape, arguments) for shape in made]
        return [
            row_major(shape) if strides is None else strides
            for shape, strides in zip(made, found, strict=True)
        ]
    return [_fresh(node, given, shape) for shape in made]


def _of_long(strides: Sequence[int], shape: Shape) -> list[int]:
    return [stride for stride, size in zip(strides, shape, strict=True) if size > 1]


def _fresh(node: OpNode, given: Sequence[Layout], shape: Shape) -> tuple[int, ...]:
    try:
        traits = spec_of(node.op_type).traits
    except InvalidIRError:
        traits = frozenset[str]()
    is_attention = node.op_type in _ATTENTION
    if is_attention:  # the kernel keeps the order of the query
        given = [layout for layout in given[:1] if layout[1][-1:] == (1,)]
    keeps = is_attention or "pointwise" in traits or node.op_type in _KEEPING
    full = [strides for size, strides in given if size == shape] if keeps else []
    orders = [strides for strides in full if 0 not in _of_long(strides, shape)]
    if not orders or node.attrs.get("memory_format") is not None:
        return row_major(shape)
    strides = orders[0]  # kernels take that of the first operand
    order = sorted(range(len(shape)), key=lambda axis: (-strides[axis], axis))
    dense = row_major(tuple([shape[axis] for axis in order]))
    return tuple([dense[order.index(axis)] for axis in range(len(shape))])


_ATTENTION = frozenset(
    {
        "aten.scaled_dot_product_attention.default",
        "aten._scaled_dot_product_flash_attention_for_cpu.default",
    }
)
_KEEPING = frozenset({"aten.clone.default", "aten._to_copy.default", "aten.to.dtype"})

_Rule: TypeAlias = Callable[[Layout, Shape, Mapping[str, Any]], "tuple[int, ...] | None"]


def _same(layout: Layout, shape: Shape, _: Mapping[str, Any]) -> tuple[int, ...] | None:
    return layout[1] if layout[0] == shape else viewed(layout, shape)


def _permuted(layout: Layout, shape: Shape, given: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple([layout[1][dim] for dim in given["dims"]])


def _swapped(layout: Layout, shape: Shape, given: Mapping[str, Any]) -> tuple[int, ...]:
    strides = list(layout[1])
    first, second = (given.get(name, end) for name, end in (("dim0", 0), ("dim1", 1)))
    if len(strides) > 1:
        strides[first], strides[second] = strides[second], strides[first]
    return tuple(strides)


def _expanded(layout: Layout, shape: Shape, _: Mapping[str, Any]) -> tuple[int, ...]:
    old, strides = layout
    new = len(shape) - len(old)
    kept = zip(old, strides, shape[new:], strict=True)
    return (0,) * new + tuple([0 if a == 1 and b != 1 else s for a, s, b in kept])


def _sliced(layout: Layout, shape: Shape, given: Mapping[str, Any]) -> tuple[int, ...]:
    strides = list(layout[1])
    step = given.get("step", 1)
    strides[given.get("dim", 0)] *= step if isinstance(step, int) else 1
    return tuple(strides)


def _without_dim(layout: Layout, shape: Shape, given: Mapping[str, Any]) -> tuple[int, ...]:
    dim = given.get("dim", 0) % max(len(layout[0]), 1)
    return layout[1][:dim] + layout[1][dim + 1 :]


def _with_dim(layout: Layout, shape: Shape, given: Mapping[str, Any]) -> tuple[int, ...]:
    dim = given["dim"] % len(shape)
    inner = layout[0][dim] * layout[1][dim] if dim < len(layout[0]) else 1
    return (*layout[1][:dim], inner, *layout[1][dim:])


def _squeezed(layout: Layout, shape: Shape, given: Mapping[str, Any]) -> tuple[int, ...]:
    dims = given.get("dim", range(len(layout[0])))
    rank = max(len(layout[0]), 1)
    gone = {dim % rank for dim in ((dims,) if isinstance(dims, int) else dims)}
    pairs = enumerate(zip(*layout, strict=True))
    return tuple([stride for axis, (size, stride) in pairs if size != 1 or axis not in gone])


_VIEWS: dict[str, _Rule] = {
    **dict.fromkeys(
        (
            *("view", "_unsafe_view", "reshape", "flatten", "unflatten", "view_as", "reshape_as"),
            *("ravel", "alias", "detach", "lift_fresh"),
        ),
        _same,
    ),
    "permute": _permuted,
    **dict.fromkeys(("transpose", "t", "swapaxes", "swapdims"), _swapped),
    **dict.fromkeys(("expand", "expand_as", "broadcast_to"), _expanded),
    **dict.fromkeys(("slice", "narrow", "split", "split_with_sizes", "chunk"), _sliced),
    **dict.fromkeys(("tensor_split", "unsafe_split", "unsafe_chunk"), _sliced),
    **dict.fromkeys(("select", "unbind"), _without_dim),
    "unsqueeze": _with_dim,
    "squeeze": _squeezed,
}
