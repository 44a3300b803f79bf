"""The call of a program: its inputs, checked, the values of its symbols, and its weights."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch_ir.errors import (
    InputError,
    InvalidIRError,
    WeightLoadError,
    counted,
    did_you_mean,
    first_line,
    raised_as,
)
from torch_ir.ir.expressions import Number
from torch_ir.ir.graph import IR
from torch_ir.ir.queries import names_by_key
from torch_ir.ir.symbols import Dim, SymExpr, solved_symbols, value_at
from torch_ir.ir.tensor import Constant, TensorMeta, type_text
from torch_ir.semantics.arguments import as_array
from torch_ir.semantics.dtypes import Array, numpy_dtype


def tensors_of(ir: IR, inputs: Sequence[Any] | Mapping[str, Any]) -> dict[str, Array]:
    """Match tensors, given in order or by name, with the graph inputs.

    Raises:
        InputError: There are more or fewer, or one has another rank or type.
    """
    names = ir.input_names
    if not isinstance(inputs, Mapping):
        if len(inputs) != len(names):
            raise InputError(
                f"the program takes {counted(len(names), 'tensor')}, got {len(inputs)}",
                remedy=f"They are {', '.join(map(str, ir.graph_inputs))}." if names else None,
            )
        inputs = dict(zip(names, inputs, strict=True))
    for name in (*inputs, *names):
        if name not in names or name not in inputs:
            kind = "has no input" if name not in names else "is not given its input"
            raise InputError(
                f"the program {kind} {name!r}", remedy=did_you_mean(name, names) or None
            )
    arrays: dict[str, Array] = {}
    for meta in ir.graph_inputs:
        array = arrays[meta.name] = _array_of(meta, inputs[meta.name])
        if array.dtype != numpy_dtype(meta.dtype) or array.ndim != len(meta.shape):
            raise InputError(
                f"input {meta.name!r} must be {type_text(meta)}, got {array.dtype} of shape "
                f"{list(array.shape)}"
            )
    return arrays


def _array_of(meta: TensorMeta, value: Any) -> Array:
    with raised_as(lambda error: InputError(f"input {meta.name!r}: {first_line(error)}")):
        return as_array(value)


def symbols_of(
    ir: IR, tensors: Mapping[str, Array], given: Mapping[str, Number]
) -> dict[str, Number]:
    """Solve for the value of each symbol that the inputs' sizes and ``given`` determine.

    Raises:
        InputError: A size is not what the program allows: it differs from the declared one, is out
            of its symbol's range, or breaks a condition under which the program was traced.
    """
    shapes = [(meta.shape, tensors[meta.name].shape) for meta in ir.graph_inputs]
    symbols = solved_symbols(shapes, given)
    sizes = [
        (meta.name, axis, dim, tensors[meta.name].shape[axis])
        for meta in ir.graph_inputs
        for axis, dim in enumerate(meta.shape)
    ]
    for name, axis, dim, size in sizes:
        expected = value_at(dim, symbols)
        if expected != size:
            raise InputError(
                f"dimension {axis} of input {name!r} must be {_named(dim, expected)}, got {size}"
            )
    require_ranges(ir, symbols)
    for guard in ir.guards:
        if set(guard.symbols) <= set(symbols) and not guard.evaluate(symbols):
            values = ", ".join(f"{name} = {symbols[name]}" for name in guard.symbols)
            raise InputError(
                f"the program was traced under the condition {guard}, which does not hold for "
                f"{values}"
            )
    return symbols


def require_ranges(ir: IR, symbols: Mapping[str, Number]) -> None:
    """Refuse a symbol that is out of its range.

    Raises:
        InputError: One is.
    """
    for name, value in symbols.items():
        if name in ir.symbols and value not in ir.symbols[name]:
            raise InputError(
                f"the symbol {name} is {value}, which is outside its range {ir.symbols[name]}"
            )


def _named(dim: Dim, size: Number) -> str:
    return f"{dim} = {size}" if isinstance(dim, SymExpr) else str(dim)


def external_arrays(ir: IR, payload: Mapping[str, Any]) -> dict[str, Array]:
    """Return the array of each weight and constant under each name that nodes use for it.

    Args:
        ir: The program.
        payload: Arrays or tensors by ``state_dict`` key; a tied weight under any of its keys; may
            hold more, and values in place of ``ir.constants``.

    Raises:
        WeightLoadError: A weight is missing or has another shape or type; all are listed.
    """
    aliases = names_by_key(ir.weight_aliases)
    faults: list[str] = []
    arrays: dict[str, Array] = {}
    taken: dict[str, Array | None] = {}
    for name, (key, declared) in ir.external_values().items():
        if key not in taken:
            names = (key, *aliases.get(key, ()))
            given = next((payload[other] for other in names if other in payload), None)
            if given is None and isinstance(declared, Constant):
                declared = _shown(declared, payload)
            taken[key] = _external(key, declared, given, faults)
        array = taken[key]
        if array is not None:
            arrays[name] = array
    if faults:
        raise WeightLoadError(
            f"the weights are not those of {ir.model_name!r}: {counted(len(faults), 'fault')}",
            picture="\n".join(faults[:20]),
        )
    return arrays


def _shown(constant: Constant, payload: Mapping[str, Any]) -> Constant:
    """A constant; one that is a view shows what is given in the place of its base."""
    view = constant.view
    if view is None or view.base not in payload:
        return constant
    try:
        base = Constant.from_numpy(as_array(payload[view.base]))
    except InvalidIRError:  # told of the base itself
        return constant
    if base.dtype != constant.dtype or view.end(constant.shape) > math.prod(base.shape):
        return constant
    return base.view_of(view.base, constant.shape, strides=view.strides, offset=view.offset)


def _external(
    key: str, declared: TensorMeta | Constant, given: object, faults: list[str]
) -> Array | None:
    if given is None:
        if isinstance(declared, Constant):
            return declared.numpy()
        faults.append(f"missing: {key} {type_text(declared)}")
        return None
    try:
        array = as_array(given)
    except InvalidIRError as error:
        faults.append(f"without values: {key}: {error.message}")
        return None
    if array.shape != declared.shape or array.dtype != numpy_dtype(declared.dtype):
        faults.append(
            f"wrong: {key} must be {type_text(declared)}, got {array.dtype} of shape "
            f"{list(array.shape)}"
        )
        return None
    return array
