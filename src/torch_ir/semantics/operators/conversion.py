"""Tensors as other types, as copies of themselves, and as numbers.

A tensor means its elements in their order: how they lie in memory is no part of it. So a view, an
alias and a clone mean the same, and strides are those of a contiguous tensor.
Source: the operator's page in torch's documentation.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.arguments import as_array
from torch_ir.semantics.axes import axis
from torch_ir.semantics.broadcast import broadcast_to
from torch_ir.semantics.dtypes import (
    DEFAULT_FLOAT,
    Array,
    Operand,
    is_bool,
    is_complex,
    rounded,
)
from torch_ir.semantics.registry import denotes, restate

DType = np.dtype[Any]


def converted(values: Array, dtype: DType) -> Array:
    """The elements in another type, as a new array.

    To floating-point: to nearest, ties to even. To integers: cut off toward zero, and wrapped if
    they were integers; NaN and what does not fit gives any integer. To booleans: whether they
    differ from 0. A complex number loses its imaginary part in a real type.
    """
    if is_bool(dtype):
        return np.asarray(values != 0)
    if is_complex(values.dtype) and not is_complex(dtype):
        values = values.real
    return rounded(values, dtype)


@denotes(
    *("aten._to_copy.default", "aten.to.device", "aten.to.dtype", "aten.to.dtype_layout"),
    "dim_order_ops._to_dim_order_copy.default",
)
def to_dtype(self: Operand, dtype: DType | None = None, copy: bool = False) -> Array:
    """The elements converted to ``dtype``, as :func:`converted`; without one, as they are."""
    values = as_array(self)
    return converted(values, dtype or values.dtype)


restate(to_dtype, "prims.convert_element_type.default", a="self")
restate(to_dtype, "quantized_decomposed.convert_element_type.no_fuse", input="self")


@denotes("aten.dequantize.self")
def dequantize(self: Array) -> Array:
    """The elements as float32: what is no code stands for itself."""
    return converted(self, DEFAULT_FLOAT)


@denotes("aten.to.other", "aten.type_as.default")
def to_other(self: Operand, other: Operand, copy: bool = False) -> Array:
    """The elements converted to the type of ``other``, as :func:`converted`."""
    return converted(as_array(self), as_array(other).dtype)


@denotes(
    *("aten.clone.default", "aten.alias.default", "aten.alias_copy.default"),
    *("aten.contiguous.default", "aten.detach.default", "aten.detach_copy.default"),
    "aten.detach_.default",  # writes what autograd keeps, and no element
    *("aten.lift.default", "aten.lift_fresh.default", "aten.lift_fresh_copy.default"),
    *("aten.resolve_conj.default", "aten.resolve_neg.default"),  # here nothing is put off
    *("dim_order_ops._clone_dim_order.default", "aten._lazy_clone.default"),
)
def clone(self: Array) -> Array:
    """The same elements."""
    return self.copy()


@denotes("aten.copy.default")
def copy(self: Array, src: Operand) -> Array:
    """``src`` converted to the type of ``self`` and broadcast to its shape."""
    return converted(broadcast_to(as_array(src), self.shape), self.dtype)


@denotes("aten._local_scalar_dense.default", "aten.item.default")
def item(self: Array) -> bool | int | float | complex:
    """The one element, as a Python number of its kind; exact."""
    if self.size != 1:
        raise InvalidIRError(f"a tensor of shape {list(self.shape)} is not one number")
    value = self.reshape(()).astype(np.float64) if self.dtype.kind == "V" else self.reshape(())
    return value.item()


@denotes("aten.sym_size.int")
def sym_size(self: Array, dim: int) -> int:
    """The size of a dimension."""
    _require_dimension(self, dim)
    return self.shape[axis(dim, self.ndim)]


@denotes("aten.sym_numel.default", "aten.numel.default")
def sym_numel(self: Array) -> int:
    """How many elements there are."""
    return self.size


@denotes("aten.sym_stride.int")
def sym_stride(self: Array, dim: int) -> int:
    """The elements between neighbors along a dimension of a contiguous tensor.

    The product of the sizes behind it, where a size of 0 counts as 1.
    """
    _require_dimension(self, dim)
    return prod(max(size, 1) for size in self.shape[axis(dim, self.ndim) + 1 :])


@denotes("aten.sym_storage_offset.default")
def sym_storage_offset(self: Array) -> int:
    """0: where the first element lies."""
    return 0


@denotes("aten.sym_is_contiguous.default")
def sym_is_contiguous(self: Array) -> bool:
    """Whether the elements lie in their order; true of a tensor that is nothing else."""
    return True


def _require_dimension(values: Array, dim: int) -> None:
    if values.ndim == 0:
        raise InvalidIRError(f"a tensor without dimensions has no dimension {dim}")
