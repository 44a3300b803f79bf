"""Tensors from nothing: filled, counted, or with values that are not said.

A size that is negative is refused. Where no type is given, it is that of the number (float32 for a
fraction, complex64 for a complex number), float32 where there is none, or that of the tensor after
which the new one is made. Source: the operator's page in torch's documentation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.broadcast import broadcast_to
from torch_ir.semantics.dtypes import DEFAULT_FLOAT, Array, is_integer, result_dtype, rounded
from torch_ir.semantics.pointwise import is_real_number, number_as
from torch_ir.semantics.registry import declare, denotes, restate
from torch_ir.torch_versions import torch_is

DType = np.dtype[Any]


def _filled(size: Sequence[int], number: complex, dtype: DType) -> Array:
    if any(length < 0 for length in size):
        raise InvalidIRError(f"no tensor has the shape {list(size)}")
    return np.full(tuple(size), number_as(number, dtype))


@denotes("aten.full.default")
def full(size: Sequence[int], fill_value: complex, dtype: DType | None = None) -> Array:
    """``fill_value`` everywhere; refused if the type cannot hold it, cut off for integers."""
    return _filled(size, fill_value, dtype or result_dtype(fill_value))


@denotes("aten.full_like.default")
def full_like(self: Array, fill_value: complex, dtype: DType | None = None) -> Array:
    """``fill_value`` everywhere, in the shape of ``self``; as :func:`full`."""
    return _filled(self.shape, fill_value, dtype or self.dtype)


restate(full_like, "aten.fill.Scalar", value="fill_value")


@denotes("aten.new_full.default")
def new_full(
    self: Array, size: Sequence[int], fill_value: complex, dtype: DType | None = None
) -> Array:
    """``fill_value`` everywhere, in the type of ``self``; as :func:`full`."""
    return _filled(size, fill_value, dtype or self.dtype)


@denotes("aten.fill.Tensor")
def fill_with_tensor(self: Array, value: Array) -> Array:
    """The one value of a tensor without dimensions, in the shape and type of ``self``."""
    if value.ndim:
        raise InvalidIRError(
            f"fill takes a tensor without dimensions, not one of shape {list(value.shape)}"
        )
    return rounded(broadcast_to(value, self.shape), self.dtype)


@denotes("aten.scalar_tensor.default")
def scalar_tensor(s: complex, dtype: DType | None = None) -> Array:
    """The number as a tensor without dimensions; float32 if no type is given."""
    return _filled((), s, dtype or DEFAULT_FLOAT)


def _declare(names: Sequence[str], number: int, meaning: str) -> None:
    """Declare one number everywhere: in a new tensor, in another's shape, and in its type."""

    def new(size: Sequence[int], dtype: DType | None = None) -> Array:
        return _filled(size, number, dtype or DEFAULT_FLOAT)

    def like(self: Array, dtype: DType | None = None) -> Array:
        return _filled(self.shape, number, dtype or self.dtype)

    def of_type(self: Array, size: Sequence[int], dtype: DType | None = None) -> Array:
        return _filled(size, number, dtype or self.dtype)

    first, name, *more = names
    declare(new, f"{meaning}.", first, *more)
    declare(like, f"{meaning}, in the shape of ``self``.", f"aten.{name}_like.default")
    declare(of_type, f"{meaning}, in the type of ``self``.", f"aten.new_{name}.default")


_declare(("aten.zeros.default", "zeros", "aten._efficientzerotensor.default"), 0, "0 everywhere")
_declare(("aten.ones.default", "ones"), 1, "1 everywhere")
_declare(
    ("aten.empty.memory_format", "empty", "dim_order_ops._empty_dim_order.default"),
    0,  # a program may not depend on what they are
    "Any values",
)


# -- values that are not said ---------------------------------------------------------------------


@denotes("aten.empty_strided.default")
def empty_strided(size: Sequence[int], stride: Sequence[int], dtype: DType | None = None) -> Array:
    """Any values; how they lie in memory is not part of what they are."""
    if len(size) != len(stride):
        raise InvalidIRError(f"{len(size)} sizes do not go with {len(stride)} strides")
    return _filled(size, 0, dtype or DEFAULT_FLOAT)


restate(empty_strided, "aten.empty_permuted.default", physical_layout="stride")


@denotes("aten.new_empty_strided.default")
def new_empty_strided(
    self: Array, size: Sequence[int], stride: Sequence[int], dtype: DType | None = None
) -> Array:
    """Any values, in the type of ``self``; as :func:`empty_strided`."""
    return empty_strided(size, stride, dtype or self.dtype)


# -- counted --------------------------------------------------------------------------------------


@denotes("aten.arange.start_step", "aten.arange.start", "aten.arange.default")
def arange(end: float, start: float = 0, step: float = 1, dtype: DType | None = None) -> Array:
    """``start + i · step`` for ``i = 0 … ⌈(end − start) / step⌉ − 1``; ``end`` is not reached.

    int64 if all three are integers and no type is given. For a type of integers start and step are
    cut off toward zero, after they are counted; before torch 2.14, all three of int64 before. A
    step of 0, one that leads away from ``end`` and an infinite range are refused.
    """
    given = (start, end, step)
    integers = all(isinstance(number, int) for number in given)
    if dtype is None:
        dtype = np.dtype("int64") if integers else DEFAULT_FLOAT
    if not is_real_number(dtype):
        raise InvalidIRError(f"arange does not exist on {dtype}")
    if not all(map(math.isfinite, given)):
        raise InvalidIRError(f"arange does not count from {start} to {end} by {step}")
    whole = dtype == np.int64 and (integers or not torch_is("2.14"))
    first, last, by = (int(start), int(end), int(step)) if whole else (start, end, step)
    if by == 0 or (last - first) * by < 0:
        raise InvalidIRError(f"a step of {by} does not lead from {first} to {last}")
    count = -((int(first) - int(last)) // int(by)) if whole else math.ceil((last - first) / by)
    if is_integer(dtype):
        first, by = int(first), int(by)
    places = np.arange(count, dtype=np.int64 if is_integer(dtype) else np.float64)
    return rounded(first + places * by, dtype)


@denotes("aten.linspace.default")
def linspace(start: complex, end: complex, steps: int, dtype: DType | None = None) -> Array:
    """``start + i · (end − start) / (steps − 1)`` for ``i = 0 … steps − 1``, from the nearer end.

    Of one step: ``start``. Of integers, the ends and then the values are cut off toward zero.
    complex64 if a number is complex.
    """
    dtype = dtype or result_dtype(start, end, 0.0)
    if is_integer(dtype):
        start, end = int(start.real), int(end.real)
    if steps < 0:
        raise InvalidIRError(f"linspace makes no {steps} values")
    places = np.arange(steps, dtype=np.float64)
    if steps < 2:
        return rounded(start + places, dtype)
    back = steps - 1 - places
    part = (end - start) / (steps - 1)
    values = np.where(places < back, start + places * part, end - back * part)
    return rounded(np.trunc(values) if is_integer(dtype) else values, dtype)


@denotes("aten.eye.default", "aten.eye.m")
def eye(n: int, m: int | None = None, dtype: DType | None = None) -> Array:
    """Shape ``[n, m]``, or ``[n, n]``: 1 where row and column are the same, else 0."""
    columns = n if m is None else m
    if n < 0 or columns < 0:
        raise InvalidIRError(f"no tensor has the shape {[n, columns]}")
    return np.eye(n, columns, dtype=dtype or DEFAULT_FLOAT)


@denotes("aten.tril_indices.default")
def tril_indices(row: int, col: int, offset: int = 0, dtype: DType | None = None) -> Array:
    """Rows and columns of the places on and below a diagonal, row by row; shape ``[2, n]``."""
    return np.stack(np.tril_indices(row, offset, col)).astype(dtype or "int64")


@denotes("aten.triu_indices.default")
def triu_indices(row: int, col: int, offset: int = 0, dtype: DType | None = None) -> Array:
    """Rows and columns of the places on and above a diagonal, row by row; shape ``[2, n]``."""
    return np.stack(np.triu_indices(row, offset, col)).astype(dtype or "int64")
