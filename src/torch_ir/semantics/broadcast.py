"""Broadcasting of shapes: NumPy's, with errors of this package."""

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
    try:
        return np.broadcast_shapes(*map(tuple, shapes))
    except ValueError as error:
        listed = " and ".join(str(list(shape)) for shape in shapes)
        raise InvalidIRError(f"shapes {listed} do not broadcast together") from error


def broadcast_to(values: Array, shape: Sequence[int]) -> Array:
    """Broadcast an array: ``result[…, i, j] = values[…, i or 0, j or 0]``.

    Along a dimension of size 1, and along those put in front, its elements repeat.

    Raises:
        InvalidIRError: The shape is not what the tensor's becomes together with it.
    """
    try:
        return np.broadcast_to(values, tuple(shape))
    except ValueError as error:
        raise InvalidIRError(
            f"a tensor of shape {list(values.shape)} does not broadcast to {list(shape)}"
        ) from error


def broadcast_all(*tensors: Array) -> tuple[Array, ...]:
    """Broadcast arrays to the shape that they have together.

    Raises:
        InvalidIRError: They have none.
    """
    shape = broadcast_shape(*(tensor.shape for tensor in tensors))
    return tuple(broadcast_to(tensor, shape) for tensor in tensors)
