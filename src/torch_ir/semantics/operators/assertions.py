"""Conditions that a program states of its own values; they have no result.

Source: torch's documentation of ``torch._assert_async`` and ``torch._check``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.dtypes import DEFAULT_FLOAT, Array
from torch_ir.semantics.operators.control_flow import truth
from torch_ir.semantics.registry import declare, denotes


@denotes("aten._assert_async.default", "aten._assert_async.msg")
def assert_async(self: Array, assert_msg: str = "") -> tuple[()]:
    """The one element is true, that is not 0."""
    return assert_scalar(truth(self), assert_msg)


@denotes("aten._assert_scalar.default")
def assert_scalar(self: complex, assert_msg: str = "") -> tuple[()]:
    """The number is true, that is not 0."""
    if not self:
        raise InvalidIRError(f"what the program asserts does not hold: {assert_msg}")
    return ()


@denotes("aten._make_dep_token.default")
def make_dep_token(dtype: np.dtype[Any] | None = None) -> Array:
    """A tensor without dimensions that orders what takes it; its value is of no account."""
    return np.zeros((), DEFAULT_FLOAT if dtype is None else dtype)


@denotes("aten._assert_tensor_metadata.default")
def assert_tensor_metadata(
    a: Array,
    size: list[int] | None = None,
    stride: list[int] | None = None,
    dtype: np.dtype[Any] | None = None,
) -> tuple[()]:
    """The tensor has this shape and this type, where given. Strides are no part of it."""
    if size is not None and tuple(size) != a.shape:
        raise InvalidIRError(f"the program asserts the shape {size}, and it is {list(a.shape)}")
    if dtype is not None and dtype != a.dtype:
        raise InvalidIRError(f"the program asserts the type {dtype}, and it is {a.dtype}")
    return ()


@denotes("aten.sym_constrain_range.default", "aten.sym_constrain_range_for_size.default")
def sym_constrain_range(size: float, min: int | None = None, max: int | None = None) -> tuple[()]:
    """``min ≤ size ≤ max``, where they are given; of a size that is no integer, the whole part."""
    size = int(size)
    if (min is not None and size < min) or (max is not None and size > max):
        raise InvalidIRError(f"the program asserts {size} to be from {min} to {max}")
    return ()


def _declare_ordered(function: Callable[..., tuple[()]], *op_types: str) -> None:
    def ordered(*, dep_token: Array, **arguments: Any) -> Array:
        function(**arguments)
        return dep_token.copy()

    declare(
        ordered, "The same condition, and the token, on which what comes later depends.", *op_types
    )


_declare_ordered(assert_async, "aten._functional_assert_async.msg")
_declare_ordered(assert_scalar, "aten._functional_assert_scalar.default")
_declare_ordered(
    sym_constrain_range,
    "aten._functional_sym_constrain_range.default",
    "aten._functional_sym_constrain_range_for_size.default",
)
