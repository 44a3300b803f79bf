"""Large values of a node in blocks of rows, where each row of the results is that of its operands.

What a reading of a node takes for its own numbers, some twenty of its values in float64, it then
takes for one block at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod

import torch

from torch_ir.ir import OpNode
from torch_ir.ops.schema import lookup
from torch_ir.ops.spec import spec_of

BLOCK = 2**16
"""Elements of the largest value of a block."""

Tensors = Sequence[torch.Tensor]
Axes = Callable[[OpNode, int], range]
"""The axes of a first operand of so many that each result has as they are."""


def _all_but_dim(node: OpNode, rank: int) -> range:
    """Those before the one that is summed over, or none."""
    dim = node.attrs.get("dim", -1)
    return range(dim % rank) if isinstance(dim, int) else range(0)


def _before_normalized(node: OpNode, rank: int) -> range:
    shape = node.attrs.get("normalized_shape")
    return range(rank - len(shape)) if isinstance(shape, tuple) else range(0)


_BY_ROWS: Mapping[str, tuple[frozenset[str], Axes]] = {
    **{
        f"aten.{name}": (frozenset({"self"}), _all_but_dim)
        for name in (
            *("_softmax.default", "_log_softmax.default", "_safe_softmax.default"),
            *("softmax.int", "log_softmax.int"),
        )
    },
    **{
        f"aten.{name}.default": (frozenset({"input"}), _before_normalized)
        for name in ("layer_norm", "native_layer_norm", "rms_norm", "_fused_rms_norm")
    },
    "aten.mm.default": (frozenset({"self"}), lambda _, rank: range(rank - 1)),
    "aten.linear.default": (frozenset({"input"}), lambda _, rank: range(rank - 1)),
    "aten.bmm.default": (frozenset({"self", "mat2"}), lambda _, rank: range(rank - 2)),
}
"""The arguments that have the rows, and the axes along which they may be cut."""


def blocks(
    node: OpNode, inputs: Tensors, outputs: Tensors
) -> Iterator[tuple[list[torch.Tensor], list[torch.Tensor]]]:
    """Yield the inputs and outputs of a node in blocks; nothing where it has to be read at once.

    Args:
        node: The node.
        inputs: The tensors that it took.
        outputs: Those that it made.
    """
    cut = _cut(node, inputs, outputs)
    if cut is None:
        return
    axis, size, length, positions = cut
    for start in range(0, size, length):
        count = min(length, size - start)
        given = [
            tensor.narrow(axis, start, count) if position in positions else tensor
            for position, tensor in enumerate(inputs)
        ]
        yield given, [tensor.narrow(axis, start, count) for tensor in outputs]


def _cut(
    node: OpNode, inputs: Tensors, outputs: Tensors
) -> tuple[int, int, int, frozenset[int]] | None:
    """The axis, counted from the end, its size, the rows of a block, and the inputs to cut."""
    plain = all(tensor.layout is torch.strided for tensor in (*inputs, *outputs))
    largest = max((tensor.numel() for tensor in (*inputs, *outputs)), default=0)
    if not plain or not outputs or largest <= 2 * BLOCK or lookup(node.op_type) is None:
        return None
    rank = outputs[0].dim()
    if node.op_type in _BY_ROWS:
        names, axes = _BY_ROWS[node.op_type]
        slots = [node.operands.get(name) for name in names] if node.operands else []
        wanted = frozenset(slot for slot in slots if isinstance(slot, int))
        ranks = {inputs[slot].dim() for slot in wanted} | {tensor.dim() for tensor in outputs}
        if ranks != {rank}:
            return None
        allowed = axes(node, rank)
    elif "pointwise" in spec_of(node.op_type).traits:
        wanted, allowed = frozenset(range(len(inputs))), range(rank)
        if {tuple(tensor.shape) for tensor in outputs} != {_broadcast(inputs)}:
            return None
    else:
        return None
    size, axis = max(((outputs[0].shape[axis], axis - rank) for axis in allowed), default=(1, 0))
    if size == 1 or any(tensor.shape[axis] != size for tensor in outputs):
        return None
    long = [i for i in wanted if inputs[i].dim() >= -axis and inputs[i].shape[axis] != 1]
    if not long or any(inputs[i].shape[axis] != size for i in long):
        return None
    most = max(prod(tensor.shape) for tensor in (*[inputs[i] for i in long], *outputs))
    return axis, size, max(BLOCK * size // most, 1), frozenset(long)


def _broadcast(inputs: Tensors) -> tuple[int, ...] | None:
    try:
        return tuple(torch.broadcast_shapes(*[tensor.shape for tensor in inputs]))
    except RuntimeError:  # they do not fit, which the reading of the whole says
        return None
