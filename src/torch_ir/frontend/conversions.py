"""Conversions that a user registers for an operator, in place of the plain one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from torch_ir.arguments import public
from torch_ir.errors import ConversionError, InvalidIRError
from torch_ir.ir import Attribute, Location, OpNode, TensorMeta
from torch_ir.ops.extensions import forget_extension, note_extension
from torch_ir.ops.rules import require_overload
from torch_ir.ops.schema import Slots


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """What extraction knows of one traced call when it makes the node.

    Attributes:
        name: Name of the node.
        target: torch's operator.
        input_metas: The tensors that the call takes, in the order of the schema.
        output_metas: The tensors that it makes.
        attrs: Non-tensor arguments by schema name.
        op_type: The exact overload.
        operands: Which argument takes which input.
        location: Where the call came from.
    """

    name: str
    target: Any
    input_metas: list[TensorMeta]
    output_metas: list[TensorMeta]
    attrs: dict[str, Attribute]
    op_type: str
    operands: dict[str, Slots] = field(default_factory=dict[str, Slots])
    location: Location | None = None


Conversion: TypeAlias = Callable[[NodeInfo], OpNode]

_CONVERSIONS: dict[str, Conversion] = {}


def register_op(op_type: str) -> Callable[[Conversion], Conversion]:
    """Let the decorated function make the nodes of one exact overload.

    Args:
        op_type: The exact overload, such as ``"aten.conv2d.default"``; nothing is matched by
            prefix.

    Raises:
        ConversionError: The overload already has a conversion.
        InvalidIRError: The name is no exact overload: nothing would be converted.

    Example:
        >>> @register_op("aten.erfinv.default")
        ... def named_inverse_error(info: NodeInfo) -> OpNode:
        ...     return plain_conversion(info).replace(attrs={"approximation": "giles"})
        >>> unregister_op("aten.erfinv.default")
    """
    require_overload(op_type)

    def decorate(function: Conversion) -> Conversion:
        if op_type in _CONVERSIONS:
            raise ConversionError(
                f"{op_type} already has the conversion {_CONVERSIONS[op_type].__qualname__}",
                remedy=f"Remove it with unregister_op({op_type!r}) first.",
            )
        _CONVERSIONS[op_type] = function
        note_extension("conversion", op_type, function)
        return function

    return decorate


@public
def unregister_op(op_type: str) -> None:
    """Remove the conversion of an overload; nothing happens if it has none."""
    _CONVERSIONS.pop(op_type, None)
    forget_extension("conversion", op_type)


def conversion_of(op_type: str) -> Conversion:
    """Look up the conversion that makes the nodes of this overload."""
    return _CONVERSIONS.get(op_type, plain_conversion)


@public
def plain_conversion(info: NodeInfo) -> OpNode:
    """Make the node that says exactly what was traced.

    Raises:
        InvalidIRError: torch traces a question where the model sets ``.data``, and then drops it.
    """
    if info.op_type == "aten._has_compatible_shallow_copy_type.default":
        raise InvalidIRError(
            "the model sets .data of a tensor, which torch.export drops",
            remedy="Use copy_ under torch.no_grad(), or another variable.",
        )
    return OpNode(
        name=info.name,
        op_type=info.op_type,
        inputs=tuple(info.input_metas),
        outputs=tuple(info.output_metas),
        attrs=info.attrs,
        operands=info.operands,
        location=info.location,
    )
