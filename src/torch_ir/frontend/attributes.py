"""torch's values as attribute values and expressions."""

from __future__ import annotations

from typing import Any, cast

import sympy
import torch
from torch.utils._sympy import functions as sympy_functions

from torch_ir.errors import InvalidIRError
from torch_ir.ir import Attribute, Device, SymExpr, TensorMeta
from torch_ir.ir.symbols import Dim, as_dim
from torch_ir.ir.values import RUN_DEVICE, as_attribute
from torch_ir.torch_api import SYMBOLIC_TYPES


def attribute_from_torch(value: object, run_device: torch.device | None) -> Attribute:
    """A non-tensor argument as an attribute; ``run_device`` itself becomes ``Device("run")``.

    Raises:
        InvalidIRError: The value cannot be stored in an IR.
    """
    if isinstance(value, list | tuple):
        return tuple(
            [attribute_from_torch(item, run_device) for item in cast(list[object], value)]
        )
    if isinstance(value, torch.device):
        if run_device is None or value.type != run_device.type:
            return Device(str(value))
        return Device(RUN_DEVICE if value.index in (None, run_device.index) else str(value))
    if isinstance(value, SYMBOLIC_TYPES):
        return expression(value)
    return as_attribute(value)


def expression(value: Any) -> SymExpr:
    """The expression of a ``torch.SymInt``, ``SymFloat`` or ``SymBool``."""
    return SymExpr(expression_text(value.node.expr))


def dimension(value: int | torch.SymInt) -> Dim:
    """One dimension of a traced tensor's shape."""
    return as_dim(value if isinstance(value, int) else expression(value))


def tensor_meta(
    name: str, tensor: torch.Tensor, producer: str | None = None, index: int = 0
) -> TensorMeta:
    """The metadata of a traced tensor."""
    shape = tuple([dimension(size) for size in tensor.shape])
    return TensorMeta(name, shape, str(tensor.dtype).removeprefix("torch."), producer, index)


_INFIX: dict[type[Any], str] = {
    sympy.Add: " + ",
    sympy.Mul: " * ",
    sympy.And: " and ",
    sympy.Or: " or ",
    sympy.Eq: " == ",
    sympy.Ne: " != ",
    sympy.Lt: " < ",
    sympy.Le: " <= ",
    sympy.Gt: " > ",
    sympy.Ge: " >= ",
    sympy_functions.FloorDiv: " // ",
    sympy_functions.CleanDiv: " // ",
    sympy_functions.Mod: " % ",
    sympy_functions.PythonMod: " % ",
}
_CALLS: dict[type[Any], str] = {
    sympy.Max: "max",
    sympy.Min: "min",
    sympy_functions.Max: "max",
    sympy_functions.Min: "min",
    sympy.Abs: "abs",
}


def expression_text(expr: Any) -> str:
    """A sympy expression of a traced size in Python syntax.

    Raises:
        InvalidIRError: It has a function that expressions do not have.
    """
    kind = type(expr)
    if isinstance(expr, sympy.Symbol | sympy.Integer) or expr in (sympy.true, sympy.false):
        return str(expr)
    arguments = [f"({expression_text(argument)})" for argument in expr.args]
    if kind in _INFIX:
        return _INFIX[kind].join(arguments)
    if kind in _CALLS:
        return f"{_CALLS[kind]}({', '.join(arguments)})"
    if kind is sympy.Pow and isinstance(expr.exp, sympy.Integer) and expr.exp >= 0:
        return f"{arguments[0]} ** {int(expr.exp)}"
    if kind is sympy.Not:
        return f"not {arguments[0]}"
    raise InvalidIRError(
        f"the size expression {expr} uses {kind.__name__}, which has no counterpart"
    )
