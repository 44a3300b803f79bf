"""Parts of a tensor along one dimension, and a tensor with such a part exchanged.

Elements move, bit for bit; what is put in is converted to the tensor's dtype.

Source: torch.select, torch.narrow, torch.slice_scatter and others in torch's documentation;
slices are those of Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.axes import axis
from torch_ir.semantics.dtypes import Array, rounded
from torch_ir.semantics.operators.indexing import put
from torch_ir.semantics.operators.movement import strided_places
from torch_ir.semantics.registry import denotes


def _line(self: Array, dim: int) -> int:
    """The axis, of a tensor that has dimensions."""
    if not self.ndim:
        raise InvalidIRError("a tensor without dimensions has no part along one")
    return axis(dim, self.ndim)


def _part(
    self: Array, dim: int, start: int | None, end: int | None, step: int
) -> tuple[slice, ...]:
    if step < 1:
        raise InvalidIRError(f"the step of a slice is positive, not {step}")
    return (*[slice(None)] * _line(self, dim), slice(start, end, step))


def _at(self: Array, dim: int, index: int) -> tuple[slice | int, ...]:
    place = _line(self, dim)
    if not -self.shape[place] <= index < self.shape[place]:
        raise InvalidIRError(f"index {index} is out of range for size {self.shape[place]}")
    return (*[slice(None)] * place, index)


def exchanged(self: Array, part: Any, src: Array) -> Array:
    """Return the tensor with ``src`` in the place of a part, which has its shape."""
    if self[part].shape != src.shape:
        raise InvalidIRError(f"{list(src.shape)} is not the part's {list(self[part].shape)}")
    result = self.copy()
    result[part] = rounded(src, self.dtype)
    return result


@denotes("aten.slice.Tensor", "aten.slice_copy.Tensor")
def slice_tensor(
    self: Array, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Array:
    """``self[…, start:end:step, …]`` along ``dim``, with bounds as in Python.

    Negative bounds count from the end, those outside stop at the ends, and an end before the
    start gives size 0.
    """
    return self[_part(self, dim, start, end, step)]


@denotes("aten.slice_scatter.default")
def slice_scatter(
    self: Array,
    src: Array,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Array:
    """The tensor with ``src`` in the place of ``self[…, start:end:step, …]``."""
    return exchanged(self, _part(self, dim, start, end, step), src)


@denotes("aten.select.int", "aten.select_copy.int")
def select(self: Array, dim: int, index: int) -> Array:
    """``self[…, index, …]`` along ``dim``, which the result has not."""
    return np.asarray(self[_at(self, dim, index)])


@denotes("aten.select_scatter.default")
def select_scatter(self: Array, src: Array, dim: int, index: int) -> Array:
    """The tensor with ``src`` in the place of ``self[…, index, …]``."""
    return exchanged(self, _at(self, dim, index), src)


@denotes("aten.narrow.default", "aten.narrow_copy.default")
def narrow(self: Array, dim: int, start: int, length: int) -> Array:
    """``length`` elements from ``start`` along ``dim``; a negative start counts from the end."""
    size = self.shape[_line(self, dim)]
    first = start + size if start < 0 else start
    if first < 0 or length < 0 or first + length > size:
        raise InvalidIRError(f"{length} elements from {start} do not lie within size {size}")
    return self[_part(self, dim, first, first + length, 1)]


@denotes("aten.as_strided_scatter.default")
def as_strided_scatter(
    self: Array,
    src: Array,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> Array:
    """The tensor with ``src`` in the place of the elements that ``as_strided`` would take.

    Where several of these are one, torch leaves open which stays; here it is the last.
    """
    places = strided_places(self.size, size, stride, storage_offset or 0)
    if places.shape != src.shape:
        raise InvalidIRError(f"{list(src.shape)} is not the part's {list(places.shape)}")
    return put(self, places, rounded(src, self.dtype), accumulate=False)
