"""Operations on bits and on truth values.

Operands broadcast. Those on bits exist on integers, in two's complement, and on booleans; their
result has the common type. Those on truth take every type: what is not zero is true, NaN included.
Source: the operator's page in torch's documentation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.broadcast import broadcast_all
from torch_ir.semantics.dtypes import Array, Operand, is_bool, is_integer, result_dtype, rounded
from torch_ir.semantics.pointwise import pointwise
from torch_ir.semantics.registry import declare, denotes


def _bitwise(function: Callable[[Array, Array], Any], self: Operand, other: Operand) -> Array:
    dtype = result_dtype(self, other)
    if not is_integer(dtype) and not is_bool(dtype):
        raise InvalidIRError(f"there are no operations on the bits of {dtype}")
    return pointwise(function, self, other)


def _declare(name: str, function: Callable[[Array, Array], Any], meaning: str) -> None:
    def denoted(self: Operand, other: Operand) -> Array:
        return _bitwise(function, self, other)

    forms = [f"aten.bitwise_{name}.{form}" for form in ("Tensor", "Scalar", "Scalar_Tensor")]
    declare(denoted, meaning, *forms, f"aten.__{name}__.Tensor", f"aten.__{name}__.Scalar")


_declare("and", np.bitwise_and, "1 in the bits that are 1 in both.")
_declare("or", np.bitwise_or, "1 in the bits that are 1 in one or both.")
_declare("xor", np.bitwise_xor, "1 in the bits that differ.")


@denotes("aten.bitwise_not.default")
def bitwise_not(self: Array) -> Array:
    """Every bit inverted: ``−x − 1``; of booleans *not*."""
    return _bitwise(lambda a, _: np.invert(a), self, self)


def _declare_shift(
    side: str,
    shifted: Callable[[Array, Array], Array],
    beyond: Callable[[Array], Array],
    meaning: str,
) -> None:
    def function(a: Array, b: Array) -> Array:
        is_shift = (b >= 0) & (b < a.dtype.itemsize * 8)
        return np.where(is_shift, shifted(a, np.where(is_shift, b, 0).astype(a.dtype)), beyond(a))

    def denoted(self: Operand, other: Operand) -> Array:
        if is_bool(result_dtype(self, other)):
            raise InvalidIRError("the bits of bool are not shifted")
        return _bitwise(function, self, other)

    name, short = f"aten.bitwise_{side}_shift", f"aten.__{side[0]}shift__"
    forms = [f"{name}.{form}" for form in ("Tensor", "Tensor_Scalar", "Scalar_Tensor")]
    declare(denoted, meaning, *forms, f"{short}.Tensor", f"{short}.Scalar")


_declare_shift(
    "left",
    np.left_shift,
    np.zeros_like,
    "``self · 2ᵒᵗʰᵉʳ``, wrapped; 0 where other is negative or not less than the type's bits.",
)
_declare_shift(
    "right",
    np.right_shift,
    lambda a: -(a < 0).astype(a.dtype),
    "``⌊self / 2ᵒᵗʰᵉʳ⌋``; as by all bits (0 or −1) where other is negative or too large.",
)


def _truth(operand: Array) -> Array:
    return np.asarray(operand != 0)


def _declare_logical(name: str, function: Callable[..., Any], meaning: str) -> None:
    def denoted(self: Array, other: Array) -> Array:
        return np.asarray(function(*broadcast_all(_truth(self), _truth(other))))

    declare(denoted, meaning, f"aten.{name}.default")


_declare_logical("logical_and", np.logical_and, "Whether both are true, as booleans.")
_declare_logical("logical_or", np.logical_or, "Whether one or both are true, as booleans.")
_declare_logical("logical_xor", np.logical_xor, "Whether just one is true, as booleans.")


@denotes("aten.logical_not.default")
def logical_not(self: Array) -> Array:
    """Whether it is false, as booleans."""
    return rounded(~_truth(self), np.dtype(bool))
