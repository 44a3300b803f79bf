"""Broadcasting of shapes, from the rule's definition."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.dtypes import Array


def broadcast_shape(*shapes: Sequence[int]) -> tuple[int, ...]:
    """Return the shape to which several shapes broadcast.

    Shapes are aligned at their last dimensions, the shorter ones filled with 1 in front. In each
    place, all sizes that are not 1 must be one size; that is the result's, or else 1. A size of 0
    is a size like others: with 1 it gives 0.

    Raises:
        InvalidIRError: Two sizes in one place differ and neither is 1.

    Example:
        >>> broadcast_shape([3, 1], [4], [])
        (3, 4)
    """
    rank = max((len(shape) for shape in shapes), default=0)
    aligned = [[1] * (rank - len(shape)) + list(shape) for shape in shapes]
    result: list[int] = []
    for sizes in zip(*aligned, strict=True):
        others = {size for size in sizes if size != 1}
        if len(others) > 1:
            listed = " and ".join(str(list(shape)) for shape in shapes)
            raise InvalidIRError(f"shapes {listed} do not broadcast together")
        result.append(others.pop() if others else 1)
    return tuple(result)


def broadcast_to(values: Array, shape: Sequence[int]) -> Array:
    """Broadcast an array: ``result[…, i, j] = values[…, i or 0, j or 0]``.

    Along a dimension of size 1, and along those put in front, its elements repeat.

    Raises:
        InvalidIRError: The shape is not what the tensor's becomes together with it.
    """
    added = len(shape) - values.ndim
    aligned = [1] * added + list(values.shape)
    if added < 0 or any(old not in (1, new) for old, new in zip(aligned, shape, strict=True)):
        raise InvalidIRError(
            f"a tensor of shape {list(values.shape)} does not broadcast to {list(shape)}"
        )
    strides = [0] * added + [
        0 if size == 1 else stride
        for size, stride in zip(values.shape, values.strides, strict=True)
    ]
    return np.lib.stride_tricks.as_strided(values, tuple(shape), strides, writeable=False)


def broadcast_all(*tensors: Array) -> tuple[Array, ...]:
    """Broadcast arrays to the shape that they have together.

    Raises:
        InvalidIRError: They have none.
    """
    shape = broadcast_shape(*(tensor.shape for tensor in tensors))
    return tuple(broadcast_to(tensor, shape) for tensor in tensors)
