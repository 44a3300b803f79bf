"""Windows that slide over the last axes of a tensor, for convolution, pooling and folding.

On one axis of ``size`` elements with ``padding`` on each side, window ``o`` holds the ``kernel``
elements at ``o · stride - padding + k · dilation`` for k = 0 … kernel - 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np

from torch_ir.errors import InvalidIRError, counted
from torch_ir.semantics.dtypes import Array


def per_axis(
    values: int | Sequence[int], rank: int, name: str, low: int | None = None
) -> tuple[int, ...]:
    """Return one number for each of ``rank`` axes; a single one stands for all.

    Raises:
        InvalidIRError: There are neither one nor ``rank`` of them, or one is less than ``low``.
    """
    numbers = (values,) if isinstance(values, int) else tuple(values)
    if len(numbers) == 1:
        numbers *= rank
    if len(numbers) != rank:
        raise InvalidIRError(f"{name} {list(numbers)} is not for {counted(rank, 'axis')}")
    if low is not None:
        at_least(numbers, low, name)
    return numbers


def at_least(numbers: Sequence[int], low: int, name: str) -> None:
    """Require every number to be ``low`` or more.

    Raises:
        InvalidIRError: One is less.
    """
    if any(number < low for number in numbers):
        raise InvalidIRError(f"{name} {list(numbers)} has a number less than {low}")


def extent(kernel: Sequence[int], dilation: Sequence[int]) -> tuple[int, ...]:
    """Count the elements that a window spans on each axis: ``(kernel - 1) · dilation + 1``."""
    return tuple((k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True))


def window_counts(
    sizes: Sequence[int], spans: Sequence[int], stride: Sequence[int]
) -> tuple[int, ...]:
    """Count the windows of such spans that fit each axis: ``⌊(size - span) / stride⌋ + 1``.

    Args:
        sizes: Of the axes, with their padding.
        spans: Of the windows, see :func:`extent`.
        stride: From one window to the next.

    Raises:
        InvalidIRError: A window is larger than its padded axis.
    """
    if any(span > size for size, span in zip(sizes, spans, strict=True)):
        raise InvalidIRError(f"windows that span {list(spans)} do not fit sizes {list(sizes)}")
    axes = zip(sizes, spans, stride, strict=True)
    return tuple((size - span) // step + 1 for size, span, step in axes)


def taps(
    kernel: Sequence[int], counts: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """Yield for each place in the window the elements that stand there in all the windows.

    Yields:
        The place, k on each axis, row by row; and a slice for each axis of the padded tensor.
    """
    for place in product(*map(range, kernel)):
        axes = zip(place, counts, stride, dilation, strict=True)
        yield place, tuple(slice(k * d, k * d + s * max(n, 0), s) for k, n, s, d in axes)


def padded(values: Array, before: Sequence[int], after: Sequence[int], value: Any = 0) -> Array:
    """Pad the last axes of a tensor with ``before`` and ``after`` elements at their ends."""
    if not any(before) and not any(after):
        return values
    kept = [(0, 0)] * (values.ndim - len(before))
    ends = [*kept, *zip(before, after, strict=True)]
    return np.pad(values, ends, constant_values=value)


def flat_positions(positions: Sequence[Array], sizes: Sequence[int]) -> Array:
    """Flatten the positions on each axis to one number each, in row-major order.

    Args:
        positions: One array of numbers for each axis.
        sizes: Of the axes.

    Returns:
        int64 numbers, of the positions' lengths as shape.

    Example:
        >>> flat_positions([np.array([0, 1]), np.array([0, 2])], [2, 3])
        array([[0, 2],
               [3, 5]])
    """
    weights = [prod(sizes[axis + 1 :]) for axis in range(len(positions))]
    return sum(map(np.multiply, np.ix_(*positions), weights), np.zeros((), "int64"))
