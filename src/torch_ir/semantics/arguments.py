"""Arguments of a node by name, in the form that a denotation takes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.ir.expressions import Number
from torch_ir.ir.node import OpNode
from torch_ir.ir.symbols import SymExpr
from torch_ir.ir.tensor import as_constant
from torch_ir.ir.values import (
    Attribute,
    Device,
    DType,
    FrozenDict,
    FunctionRef,
    Layout,
    MemoryFormat,
    OperatorRef,
    as_argument,
    kind_without_values,
)
from torch_ir.ops.schema import lookup
from torch_ir.semantics.dtypes import Array, numpy_dtype

Value: TypeAlias = Array | bool | int | float | complex
"""What a node makes: tensors, and numbers."""

WITHOUT_MEANING = frozenset(
    (
        *("device", "layout", "pin_memory", "memory_format", "dim_order"),
        *("generator", "non_blocking"),
    )
)
"""Arguments about where and how a tensor is kept, and whose draws are taken."""


def arguments_of(
    node: OpNode,
    value_of: Callable[[str], Value],
    symbols: Mapping[str, Number],
    function: Callable[[str], Any] = str,
) -> dict[str, Any]:
    """Return the arguments of a node by name, without those that no denotation reads.

    Args:
        node: The node.
        value_of: The value of a name.
        symbols: The value of each symbol.
        function: The callable of an entry of ``IR.functions``; its name, where nothing calls it.

    Raises:
        InvalidIRError: The inputs do not fit the operator's arguments, or an attribute has no
            value.
    """
    if node.operands is None:
        raise InvalidIRError(
            f"the {len(node.inputs)} inputs of {node.op_type} do not fit its arguments"
        )
    inputs = [value_of(meta.name) for meta in node.inputs]
    attributes = {
        name: _attribute(value, symbols, function)
        for name, value in _typed(node).items()
        if name not in WITHOUT_MEANING
    }
    arguments = dict(attributes)
    for name, slots in node.operands.items():
        if isinstance(slots, int):
            arguments[name] = _at(inputs, slots, node)
        elif slots is not None:
            others = attributes.get(name) or [None] * len(slots)
            arguments[name] = [
                other if slot is None else _at(inputs, slot, node)
                for slot, other in zip(slots, others, strict=True)
            ]
        elif name not in attributes:
            arguments[name] = None
    return arguments


def _at(inputs: list[Value], index: int, node: OpNode) -> Value:
    if not 0 <= index < len(inputs):
        raise InvalidIRError(f"{node.op_type} has no input {index}")
    return inputs[index]


def _typed(node: OpNode) -> Mapping[str, Attribute]:
    """The attributes, as the operator takes them."""
    schema = lookup(node.op_type)
    if schema is None:
        return node.attrs
    given = dict(node.attrs)
    for argument in schema.arguments:
        if argument.name in given and argument.name not in WITHOUT_MEANING:
            given[argument.name] = as_argument(argument.type, given[argument.name])
    return given


def _attribute(
    value: Attribute, symbols: Mapping[str, Number], function: Callable[[str], Any]
) -> Any:
    match value:
        case SymExpr():
            return value.evaluate(symbols)
        case DType(name=name):
            return numpy_dtype(name)
        case FunctionRef(name=name):
            return function(name)
        case OperatorRef(name=name):
            return name
        case tuple():
            return [_attribute(item, symbols, function) for item in value]
        case FrozenDict():
            return {key: _attribute(item, symbols, function) for key, item in value.items()}
        case Device() | Layout() | MemoryFormat():
            return None
        case _:
            return value


def as_array(value: object) -> Array:
    """Convert a torch tensor, a constant or a number to an array; return an array unchanged.

    Nothing is copied where NumPy can see the tensor's memory.

    Raises:
        InvalidIRError: It is nothing of that kind, or has no values.
    """
    if isinstance(value, np.ndarray):
        return cast(Array, value)
    if isinstance(value, bool | int | float | complex | np.generic):
        return np.asarray(value)
    tensor: Any = value
    is_shared = hasattr(value, "is_meta") and not kind_without_values(tensor)
    if is_shared and tensor.numel():  # an array of an empty one would keep out= from resizing it
        if tensor._is_zerotensor():
            tensor = value = tensor.clone()  # which NumPy sees
        try:
            return tensor.numpy(force=True)
        except TypeError:  # NumPy has no bfloat16 of its own
            if str(tensor.layout) == "torch.strided" and "bfloat16" in str(tensor.dtype):
                bits = tensor.detach().resolve_neg().view(sys.modules["torch"].int16)
                return bits.numpy(force=True).view(numpy_dtype("bfloat16"))
    return as_constant(value).numpy()
