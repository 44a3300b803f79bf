"""Comparisons, which give booleans.

The operands broadcast, and are compared in their common type: a number is rounded (for integers
wrapped) to the tensor's type, unless its kind is higher. NaN equals nothing, itself included; 0
equals −0. Order exists on real numbers alone.
Source: the operator's page in torch's documentation, and IEEE 754 section 5.11.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.broadcast import broadcast_all
from torch_ir.semantics.dtypes import Array, Operand, is_complex, result_dtype, rounded, widest
from torch_ir.semantics.pointwise import is_real, require_type
from torch_ir.semantics.registry import declare, denotes


def _compared(compare: Callable[[Array, Array], Any], self: Operand, other: Operand) -> Array:
    dtype = result_dtype(self, other)
    first, second = broadcast_all(rounded(self, dtype), rounded(other, dtype))
    return np.asarray(compare(first, second))


def _declare(name: str, compare: Callable[[Array, Array], Any], meaning: str) -> None:
    def denoted(self: Array, other: Operand) -> Array:
        if name not in ("eq", "ne") and is_complex(result_dtype(self, other)):
            raise InvalidIRError(f"{name} does not exist on complex numbers")
        return _compared(compare, self, other)

    declare(denoted, meaning, f"aten.{name}.Tensor", f"aten.{name}.Scalar")


_declare("eq", np.equal, "``self = other``.")
_declare("ne", np.not_equal, "``self ≠ other``; true for NaN.")
_declare("lt", np.less, "``self < other``.")
_declare("le", np.less_equal, "``self ≤ other``.")
_declare("gt", np.greater, "``self > other``.")
_declare("ge", np.greater_equal, "``self ≥ other``.")


@denotes("aten.isnan.default")
def isnan(self: Array) -> Array:
    """Whether it is NaN; a complex number, whether a part is."""
    return np.asarray(self != self)


@denotes("aten.isinf.default")
def isinf(self: Array) -> Array:
    """Whether it is inf or −inf; a complex number, whether a part is."""
    if is_complex(self.dtype):
        return np.asarray(isinf(self.real) | isinf(self.imag))
    return np.asarray(isposinf(self) | isneginf(self))


@denotes("aten.isposinf.default")
def isposinf(self: Array) -> Array:
    """Whether it is inf; of real numbers."""
    require_type("isposinf", is_real, self)
    return np.asarray(self == np.inf)


@denotes("aten.isneginf.default")
def isneginf(self: Array) -> Array:
    """Whether it is −inf; of real numbers."""
    require_type("isneginf", is_real, self)
    return np.asarray(self == -np.inf)


@denotes("aten.isfinite.default")
def isfinite(self: Array) -> Array:
    """Whether it is neither NaN nor infinite; a complex number, whether both parts are so."""
    return np.asarray(~(isnan(self) | isinf(self)))


@denotes("aten.equal.default")
def equal(self: Array, other: Array) -> bool:
    """Whether shapes are the same and all elements equal, as a Python boolean."""
    return self.shape == other.shape and bool(_compared(np.equal, self, other).all())


@denotes("aten.isclose.default")
def isclose(
    self: Array, other: Array, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> Array:
    """``|self − other| ≤ atol + rtol · |other|``, or equal; infinities only where equal.

    With ``equal_nan`` NaN is close to NaN. Both have one type; of integers the bound is compared
    exactly.
    """
    if self.dtype != other.dtype:
        raise InvalidIRError(f"isclose compares one type, not {self.dtype} and {other.dtype}")
    first, second = broadcast_all(self, other)
    close = np.equal(first, second)
    if equal_nan:
        close = close | (isnan(first) & isnan(second))
    gap = np.abs(widest(first) - widest(second))
    bound = atol + rtol * np.abs(widest(second))
    return np.asarray(close | (np.isfinite(gap) & (gap <= bound)))


@denotes("aten.allclose.default")
def allclose(
    self: Array, other: Array, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> bool:
    """Whether all elements are close: see :func:`isclose`."""
    return bool(isclose(self, other, rtol, atol, equal_nan).all())
