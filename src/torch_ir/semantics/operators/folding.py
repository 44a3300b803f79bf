"""Windows as columns of a matrix, and back.

Source: torch.nn.Unfold, torch.nn.Fold.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.dtypes import Array, rounded, widened
from torch_ir.semantics.registry import denotes
from torch_ir.semantics.windows import extent, padded, per_axis, taps, window_counts

_Windows = tuple[tuple[int, ...], ...]


def _windows(
    sizes: Sequence[int],
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> _Windows:
    """Kernel, number of windows, stride, dilation and padding, two of each."""
    kernel = per_axis(kernel_size, 2, "kernel_size", 1)
    spread = per_axis(dilation, 2, "dilation", 1)
    sides, steps = per_axis(padding, 2, "padding", 0), per_axis(stride, 2, "stride", 1)
    wide = [size + 2 * pad for size, pad in zip(sizes, sides, strict=True)]
    return kernel, window_counts(wide, extent(kernel, spread), steps), steps, spread, sides


@denotes("aten.im2col.default")
def im2col(
    self: Array,
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Array:
    """Each window of the zero-padded planes as one column.

    ``result[n, (c, k), p] = self[n, c, p·stride + k·dilation - padding]``, with (c, k) the channel
    and place in the window and p the window, each counted row by row.
    Shapes: [*, c, h, w] → [*, c · kernel elements, windows]; dtype: the same.
    """
    if self.ndim not in (3, 4) or 0 in self.shape[-3:]:
        raise InvalidIRError(f"a tensor of shape {list(self.shape)} has no planes to unfold")
    windows = _windows(self.shape[-2:], kernel_size, dilation, padding, stride)
    kernel, counts, steps, spread, sides = windows
    values = padded(self, sides, sides)
    parts = [values[(..., *window)] for _, window in taps(kernel, counts, steps, spread)]
    columns = np.stack(parts, axis=-3)  # [*, c, places, windows down, windows right]
    rows = self.shape[-3] * prod(kernel)
    return columns.reshape(*self.shape[:-3], rows, prod(counts))


@denotes("aten.col2im.default")
def col2im(
    self: Array,
    output_size: Sequence[int],
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Array:
    """The adjoint of :func:`im2col`: add each column where its window lies.

    Shapes: [*, c · kernel elements, windows] → [*, c, *output_size]; dtype: the same.
    """
    sizes = per_axis(output_size, 2, "output_size", 1)
    kernel, counts, steps, spread, sides = _windows(sizes, kernel_size, dilation, padding, stride)
    rows, places = self.shape[-2:] if self.ndim in (2, 3) else (0, 0)
    if not rows or rows % prod(kernel) or places != prod(counts):
        raise InvalidIRError(
            f"a tensor of shape {list(self.shape)} is not {prod(counts)} columns of "
            f"channels of {prod(kernel)} elements"
        )
    kept = (*self.shape[:-2], rows // prod(kernel))
    columns = widened(self).reshape(*kept, *kernel, *counts)
    wide = [size + 2 * pad for size, pad in zip(sizes, sides, strict=True)]
    total = np.zeros((*kept, *wide), columns.dtype)
    for (i, j), window in taps(kernel, counts, steps, spread):
        total[(..., *window)] += columns[..., i, j, :, :]
    inside = tuple(slice(pad, pad + size) for size, pad in zip(sizes, sides, strict=True))
    return rounded(total[(..., *inside)], self.dtype)
