"""Rows of several lengths, one after the other in memory, and padded to one length.

Source: aten/src/ATen/native/nested/NestedTensorTransformerFunctions.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.dtypes import Array
from torch_ir.semantics.operators.conversion import converted
from torch_ir.semantics.registry import denotes


@denotes("aten._jagged_to_padded_dense_forward.default")
def jagged_to_padded(
    values: Array, offsets: Sequence[Array], max_lengths: Sequence[int], padding_value: float = 0.0
) -> Array:
    """Rows ``values[offsets[i]:offsets[i + 1]]``, cut or padded to ``max_lengths[0]`` elements.

    Shapes: [total, *], [rows + 1] → [rows, length, *].
    """
    (starts,), (length,) = _one_level(offsets), max_lengths or (-1,)
    _require_rows(starts, len(values), length)
    fill = converted(np.asarray(padding_value), values.dtype)
    padded = np.full((len(starts) - 1, length, *values.shape[1:]), fill, values.dtype)
    for row, (start, end) in enumerate(pairwise(starts)):
        kept = min(int(end - start), length)
        padded[row, :kept] = values[start : start + kept]
    return padded


@denotes("aten._padded_dense_to_jagged_forward.default")
def padded_to_jagged(dense: Array, offsets: Sequence[Array], total_L: int | None = None) -> Array:
    """The first ``offsets[i + 1] - offsets[i]`` elements of each row, one row after the other.

    Shapes: [rows, length, *], [rows + 1] → [total, *].
    """
    (starts,) = _one_level(offsets)
    total = int(starts[-1])
    _require_rows(starts, total, 0)
    if len(starts) - 1 != len(dense) or total_L not in (None, total) or starts[0] != 0:
        raise InvalidIRError(f"offsets {starts.tolist()} do not divide {len(dense)} rows")
    lengths = np.diff(starts)
    if lengths.max(initial=0) > dense.shape[1]:
        raise InvalidIRError(f"a row of {lengths.max()} elements has {dense.shape[1]} only")
    return np.concatenate([row[:n] for row, n in zip(dense, lengths, strict=True)])


def _one_level(offsets: Sequence[Array]) -> tuple[Array]:
    if len(offsets) != 1 or offsets[0].ndim != 1 or not offsets[0].size:
        raise InvalidIRError(f"{len(offsets)} levels of rows are not one")
    return (offsets[0],)


def _require_rows(starts: Array, total: int, length: int) -> None:
    is_right = starts[0] >= 0 and starts[-1] <= total and (np.diff(starts) >= 0).all()
    if not is_right or length < 0:
        raise InvalidIRError(f"offsets {starts.tolist()} do not divide {total} elements")
