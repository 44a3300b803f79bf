"""Type promotion of eager: the operators that promote, and the dtype they compute in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch  # this module is imported where programs are lowered, and only there

from torch_ir.ir.values import dtype_name

_PAIR = ("self", "other")

PROMOTING: dict[str, tuple[str, ...]] = {
    **{
        f"aten.{name}": _PAIR
        for name in (
            *("add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "div.Tensor_mode"),
            *("eq.Tensor", "ne.Tensor", "lt.Tensor", "le.Tensor", "gt.Tensor", "ge.Tensor"),
            *("bitwise_and.Tensor", "bitwise_or.Tensor", "bitwise_xor.Tensor"),
            *("bitwise_left_shift.Tensor", "bitwise_right_shift.Tensor", "floor_divide.default"),
            *("remainder.Tensor", "fmod.Tensor", "maximum.default", "minimum.default"),
            *("fmax.default", "fmin.default", "atan2.default", "copysign.Tensor"),
            *("hypot.default", "xlogy.Tensor", "gcd.default", "lcm.default", "nextafter.default"),
            *("logical_and.default", "logical_or.default", "logical_xor.default"),
            *("rsub.Tensor", "where.self", "logaddexp.default", "logaddexp2.default"),
        )
    },
    "aten.pow.Tensor_Tensor": ("self", "exponent"),
    "aten.clamp.Tensor": ("self", "min", "max"),
    "aten.addcmul.default": ("self", "tensor1", "tensor2"),
    "aten.addcdiv.default": ("self", "tensor1", "tensor2"),
    "aten.cat.default": ("tensors",),
    "aten.stack.default": ("tensors",),
}
"""The arguments that an operator brings to one dtype before it computes."""

PUTTING = {"aten.index_put.default": ("values",)}
"""The arguments that become of the dtype of ``self``: a single value, where a mask is true."""

MAKES_FLOAT = frozenset(
    f"aten.{name}"
    for name in ("div.Tensor", "atan2.default", "xlogy.Tensor", "copysign.Tensor", "hypot.default")
)
"""Operators that compute with floating-point numbers whatever they are given."""

COMPUTES_WIDE = frozenset(
    f"aten.{name}"
    for name in ("mul.Tensor", "div.Tensor", "div.Tensor_mode", "floor_divide.default")
)
"""Operators that take a second operand without dimensions in float32 beside a half-precision one.

Their CPU kernels do not round it first: ``half * 1e5`` is finite where the product is.
"""

HALVES = frozenset({"float16", "bfloat16"})


@dataclass(frozen=True, slots=True)
class Operand:
    """What promotion looks at.

    Attributes:
        dtype: Its dtype; of a number the one that stands for its kind: bool, int64, float64.
        weight: 2 for a tensor with dimensions, 1 for one without, 0 for a number.
    """

    dtype: str
    weight: int


def common_dtype(operands: Sequence[Operand]) -> str:
    """Return the dtype in which eager computes with these operands together.

    Tensors with dimensions decide, then those without, then numbers: a lighter operand matters
    only where its kind (bool, integer, float, complex) is higher.

    Example:
        >>> common_dtype([Operand("int32", 2), Operand("float64", 0)])
        'float32'
        >>> common_dtype([Operand("float16", 1), Operand("float64", 0)])
        'float16'
    """
    held: dict[int, torch.dtype] = {}
    for operand in operands:
        dtype: torch.dtype = getattr(torch, operand.dtype)
        held[operand.weight] = torch.promote_types(held.get(operand.weight, dtype), dtype)
    found = torch.bool  # which decides nothing
    for weight, dtype in sorted(held.items()):
        found = torch.result_type(_stand_in(found, weight - 1), _stand_in(dtype, weight))
    return dtype_name(found)


def promoted_dtype(op_type: str, operands: Sequence[Operand]) -> str:
    """Return the dtype to which an operator converts its operands before it computes.

    Example:
        >>> promoted_dtype("aten.div.Tensor", [Operand("uint8", 2), Operand("int64", 0)])
        'float32'
    """
    found = common_dtype(operands)
    dtype: torch.dtype = getattr(torch, found)
    is_whole = not (dtype.is_floating_point or dtype.is_complex)
    return "float32" if is_whole and op_type in MAKES_FLOAT else found


def _stand_in(dtype: torch.dtype, weight: int) -> Any:
    """A number, or a tensor without data."""
    if weight <= 0:
        return torch.zeros((), dtype=dtype).item()
    shape = (1,) * (weight - 1)
    return torch.empty_strided(shape, shape, dtype=dtype, device="meta")


def cast_number(value: complex, dtype: str) -> torch.Tensor:
    """Convert a number to a dtype as eager does: from its own kind, rounded once.

    Example:
        >>> cast_number(2.1, "float64").item(), cast_number(-1, "uint8").item()
        (2.1, 255)
    """
    kind = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}
    return torch.tensor(value, dtype=kind[type(value)]).to(getattr(torch, dtype))
