"""Elements gathered from, and scattered to, places given element by element along one dimension.

``index`` has as many dimensions as the operand (one without counts as [1]) and, other than along
``dim``, no larger sizes; indices are not negative. An index tensor without elements chooses none.

Source: torch.gather, Tensor.scatter_, Tensor.scatter_reduce_ in torch's documentation.
"""

from __future__ import annotations

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.axes import axis
from torch_ir.semantics.dtypes import Array, is_bool, is_complex, is_integer, rounded, working
from torch_ir.semantics.numbers import element
from torch_ir.semantics.operators.indexing import in_range, put, require_index
from torch_ir.semantics.registry import denotes


def _places(self: Array, dim: int, index: Array) -> Array:
    """Which element of the operand each element of the index means: row by row, its shape.

    Raises:
        InvalidIRError: Ranks differ, sizes are too large, or an index is out of range.
    """
    place = axis(dim, self.ndim)
    if not index.size:
        return np.zeros(index.shape, "int64")
    require_index(index)
    shape, chosen = np.atleast_1d(self).shape, np.atleast_1d(index)
    others = [n for n in range(len(shape)) if n != place]
    if chosen.ndim != len(shape) or any(chosen.shape[n] > shape[n] for n in others):
        raise InvalidIRError(
            f"indices of shape {list(index.shape)} do not fit {list(self.shape)} along {dim}"
        )
    coordinates: list[Array] = [*np.indices(chosen.shape, sparse=True)]
    coordinates[place] = in_range(chosen, shape[place])
    return np.ravel_multi_index(tuple(np.broadcast_arrays(*coordinates)), shape).reshape(
        index.shape
    )


def _from(self: Array, src: Array, index: Array) -> Array:
    """The source's first elements in each dimension, as many as indices."""
    if src.dtype != self.dtype:
        raise InvalidIRError(f"{src.dtype} is not scattered into {self.dtype}")
    if not index.size:
        return np.zeros(index.shape, src.dtype)
    values, shape = np.atleast_1d(src), np.atleast_1d(index).shape
    if values.ndim != len(shape) or any(n > m for n, m in zip(shape, values.shape, strict=True)):
        raise InvalidIRError(f"{list(src.shape)} has no element for each of {list(index.shape)}")
    return values[tuple(map(slice, shape))].reshape(index.shape)


@denotes("aten.gather.default")
def gather(self: Array, dim: int, index: Array, *, sparse_grad: bool = False) -> Array:
    """``result[i, j, …] = self[i, …, index[i, j, …], …]``, the index along ``dim``.

    Shape: the index's.
    """
    places = _places(self, dim, index)
    if not index.size:
        return np.empty(index.shape, self.dtype)
    return np.asarray(self.reshape(-1)[places])


@denotes("aten.scatter.src")
def scatter(self: Array, dim: int, index: Array, src: Array) -> Array:
    """The tensor with ``src[i, j, …]`` at ``[i, …, index[i, j, …], …]``, the index along ``dim``.

    Of ``src`` the first elements in each dimension are used. Where several go to one place, torch
    leaves open which stays; here it is the last, row by row.
    """
    return put(self, _places(self, dim, index), _from(self, src, index), accumulate=False)


@denotes("aten.scatter.value")
def scatter_value(self: Array, dim: int, index: Array, value: complex) -> Array:
    """The tensor with one value at every ``[i, …, index[i, j, …], …]``."""
    filled = np.broadcast_to(element(value, self.dtype), index.shape)
    return put(self, _places(self, dim, index), filled, accumulate=False)


@denotes("aten.scatter_add.default")
def scatter_add(self: Array, dim: int, index: Array, src: Array) -> Array:
    """The tensor with ``src[i, j, …]`` added at ``[i, …, index[i, j, …], …]``.

    Each sum is of real numbers, rounded once; integers wrap, among booleans + is "or".
    """
    return put(self, _places(self, dim, index), _from(self, src, index), accumulate=True)


@denotes("aten.scatter_reduce.two")
def scatter_reduce(
    self: Array, dim: int, index: Array, src: Array, reduce: str, *, include_self: bool = True
) -> Array:
    """Elements of ``src`` that go to one place, reduced together and with the one that is there.

    ``reduce`` is "sum", "prod", "mean" (of integers rounded down), "amax" or "amin" (NaN where
    there is one). Without ``include_self``, what is there counts only where nothing goes.
    """
    places = _places(self, dim, index).reshape(-1)
    values = _from(self, src, index).reshape(-1)
    return reduced_into(self, places, values, reduce, include_self)


def reduced_into(
    self: Array, places: Array, values: Array, reduce: str, include_self: bool
) -> Array:
    """The tensor with values reduced into places (numbers of elements, row by row)."""
    joins = {
        "sum": (np.add, 0),
        "mean": (np.add, 0),
        "prod": (np.multiply, 1),
        "amax": (np.maximum, None),
        "amin": (np.minimum, None),
    }
    if reduce not in joins:
        raise InvalidIRError(f"the reduction is one of {', '.join(joins)}, not {reduce}")
    join, neutral = joins[reduce]
    if not places.size:
        return self.copy()
    if (neutral is None and is_complex(self.dtype)) or (reduce == "mean" and is_bool(self.dtype)):
        raise InvalidIRError(f"{self.dtype} has no {reduce}")
    wide = self.reshape(-1).astype(working(self.dtype))
    values = values.astype(wide.dtype)
    counts = np.full(wide.shape, int(include_self))
    if not include_self:  # the first value takes the place of what is there
        wide[places[::-1]] = values[::-1] if neutral is None else neutral
    join.at(wide, places, values)
    if reduce == "mean":
        np.add.at(counts, places, 1)
        counts = np.maximum(counts, 1)
        wide = wide // counts if is_integer(self.dtype) else wide / counts
    return rounded(wide, self.dtype).reshape(self.shape)


@denotes("aten.scatter.reduce")
def scatter_joined(self: Array, dim: int, index: Array, src: Array, *, reduce: str) -> Array:
    """``scatter_reduce`` with "add" or "multiply", what is there included."""
    return scatter_reduce(self, dim, index, src, _join_name(reduce))


@denotes("aten.scatter.value_reduce")
def scatter_value_joined(
    self: Array, dim: int, index: Array, value: complex, *, reduce: str
) -> Array:
    """``scatter.reduce`` with one value for all."""
    filled = np.broadcast_to(element(value, self.dtype), index.shape)
    return scatter_reduce(self, dim, index, filled, _join_name(reduce))


def _join_name(reduce: str) -> str:
    names = {"add": "sum", "multiply": "prod"}
    if reduce not in names:
        raise InvalidIRError(f"the reduction is add or multiply, not {reduce}")
    return names[reduce]


@denotes("aten.index_reduce.default")
def index_reduce(
    self: Array,
    dim: int,
    index: Array,
    source: Array,
    reduce: str,
    *,
    include_self: bool = True,
) -> Array:
    """``scatter_reduce`` of whole parts: ``source[…, i, …]`` into ``[…, index[i], …]``."""
    place, values = axis(dim, self.ndim), np.atleast_1d(source)
    if index.ndim > 1 or source.ndim != self.ndim or values.shape[place] != index.size:
        raise InvalidIRError(f"{list(source.shape)} is no part of {list(self.shape)} per index")
    if reduce == "sum":
        raise InvalidIRError("the reduction is one of prod, mean, amax, amin, not sum")
    shape = [1] * values.ndim
    shape[place] = index.size
    chosen = np.broadcast_to(index.reshape(shape), values.shape)
    result = scatter_reduce(
        np.atleast_1d(self), dim, chosen, values, reduce, include_self=include_self
    )
    return result.reshape(self.shape)
