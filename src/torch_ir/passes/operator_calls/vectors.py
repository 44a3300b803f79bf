"""Values of a case: operands in the domain of the operator, and what it means for them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from torch_ir.errors import TorchIRError, first_line
from torch_ir.ir import SymExpr
from torch_ir.ir.symbols import shape_at
from torch_ir.passes.operator_calls.case_set import Case, CaseOperand
from torch_ir.semantics import denotation, has_denotation
from torch_ir.semantics.chain import bounded
from torch_ir.semantics.draws import Draws
from torch_ir.semantics.dtypes import (
    Array,
    is_bool,
    is_complex,
    is_float,
    is_integer,
    numpy_dtype,
    rounded,
)
from torch_ir.semantics.tolerance import states_tolerance

SMALLEST = 2
"""The least value of a symbol in vectors, where its range allows it."""
_POSITIVE = frozenset(
    {
        *("log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal", "lgamma", "digamma"),
        *("pow", "div", "remainder", "fmod", "floor_divide", "true_divide", "xlogy"),
        *("native_batch_norm", "_native_batch_norm_legit", "batch_norm", "acosh", "polygamma"),
        *("_native_batch_norm_legit_no_training", "addcdiv", "geometric", "exponential"),
    }
)
"""Operators that want positive numbers."""
_UNIT = frozenset({"acos", "asin", "atanh", "erfinv", "bernoulli", "logit"})
"""Operators that want numbers between 0 and 1."""


def sizes_of_case(case: Case) -> dict[str, int]:
    """Return a value for each symbol of a case, small and in its range."""
    found: dict[str, int] = {}
    for name, limits in case.program.symbols.items():
        low = SMALLEST if limits.lower is None else max(SMALLEST, limits.lower)
        found[name] = low if limits.upper is None else min(low, limits.upper)
    return found


def inputs_of_case(case: Case, seed: int, *, special: bool = False) -> list[Array]:
    """Draw the operands of a case, in row-major order.

    Args:
        case: The case.
        seed: What they are drawn from.
        special: Whether to put NaN, infinities, both zeros and the greatest numbers among them.
    """
    sizes = sizes_of_case(case)
    drawn = [_drawn(case, operand, seed, sizes) for operand in case.inputs]
    if not special:
        return drawn
    return [_with_special(case, o, a) for o, a in zip(case.inputs, drawn, strict=True)]


def _with_special(case: Case, operand: CaseOperand, array: Array) -> Array:
    """The operand with special numbers in its first places; indices and sequences stay."""
    if _role(case, operand) in (*_INDEX_ROLES, *_SORTED_ROLES) or is_bool(array.dtype):
        return array
    if is_float(array.dtype):
        greatest = float(ml_dtypes.finfo(array.dtype).max)
        numbers = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, greatest]).astype(array.dtype)
    elif is_complex(array.dtype):
        return array
    else:
        info = np.iinfo(array.dtype)
        numbers = np.array([info.min, info.max, 0], array.dtype)
    flat = array.reshape(-1).copy()
    flat[: len(numbers)] = numbers[: len(flat)]
    return flat.reshape(array.shape)


def _drawn(case: Case, operand: CaseOperand, seed: int, sizes: dict[str, int]) -> Array:
    shape, role = shape_at(operand.shape, sizes), _role(case, operand)
    draws, dtype = Draws(seed, f"{case.id}/{operand.name}"), numpy_dtype(operand.dtype)
    if role in _SORTED_ROLES:
        drawn = draws.integers(0, 2 if is_bool(dtype) else 9, shape)
        return rounded(np.sort(drawn, axis=-1) if shape else drawn, dtype)
    if role in _INDEX_ROLES and is_integer(dtype):
        return rounded(draws.integers(0, max(_places(case, sizes), 1), shape), dtype)
    is_positive = role in ("running_var", "var", "scale", "scales")
    return in_domain(case.operator, shape, dtype, draws, is_positive=is_positive)


def in_domain(
    op_type: str, shape: Sequence[int], dtype: np.dtype[Any], draws: Draws, *, is_positive: bool
) -> Array:
    """Draw an operand from the numbers that its operator wants; positive fractions if asked."""
    name = op_type.split(".")[1].rstrip("_")
    if is_bool(dtype):
        return draws.integers(0, 2, shape).astype(bool)
    if is_integer(dtype):
        return rounded(draws.integers(int(name in _POSITIVE), 5, shape), dtype)
    if is_float(dtype) and (is_positive or name in _POSITIVE):
        return rounded(draws.uniform(shape, np.dtype("float64")) + 0.5, dtype)
    if is_float(dtype) and name in _UNIT:
        return rounded(draws.uniform(shape, np.dtype("float64")) * 0.9 + 0.05, dtype)
    return draws.normal(shape, dtype)


def _role(case: Case, operand: CaseOperand) -> str:
    """The argument that an operand is."""
    wanted = {"tensor": operand.name}
    for name, value in case.arguments.items():
        if value == wanted or (isinstance(value, list) and wanted in value):
            return name
    return ""


_INDEX_ROLES = frozenset({"index", "indices", "target"})
_SORTED_ROLES = frozenset({"sorted_sequence", "boundaries"})


def _places(case: Case, sizes: dict[str, int]) -> int:
    """How many places there are, into which indices point."""
    dims = shape_at(case.inputs[0].shape, sizes) or (1,)
    if case.operator.split(".")[1] == "embedding":
        return dims[0]
    dim = case.arguments.get("dim")
    return dims[dim % len(dims)] if isinstance(dim, int) else min(dims)


def torch_inputs(case: Case, seed: int, *, special: bool = False) -> tuple[Any, ...]:
    """Draw the operands of a case as torch tensors with their strides."""
    import torch

    from torch_ir.ir import Constant

    found: list[Any] = []
    arrays = inputs_of_case(case, seed, special=special)
    for operand, array in zip(case.inputs, arrays, strict=True):
        tensor = Constant.from_numpy(array).torch()
        steps = operand.strides
        if steps is not None and steps != tensor.stride() and tensor.numel():
            if math.prod(n for n, s in zip(tensor.shape, steps, strict=True) if s == 0) > 1:
                tensor = tensor.as_strided(tensor.shape, steps)  # expanded: one value for many
            else:
                memory = torch.empty_strided(tensor.shape, steps, dtype=tensor.dtype)
                tensor = memory.copy_(tensor)
        found.append(tensor)
    return tuple(found)


def vector_bytes(case: Case, seed: int) -> bytes | str:
    """Return the file of a case's vectors, or the reason why it has none."""
    reason = _why_not(case)
    if reason:
        return reason
    try:
        inputs = inputs_of_case(case, seed)
        values = dict(zip([operand.name for operand in case.inputs], inputs, strict=True))
        with np.errstate(all="ignore"):
            made, off = bounded(case.program, values, sizes_of_case(case))
    except (TorchIRError, ValueError, TypeError, IndexError) as error:
        return f"the denotation refuses it: {first_line(error)}"
    found: dict[str, Array] = {name: _storable(array) for name, array in values.items()}
    for index, operand in enumerate(case.outputs):
        found[f"output.{index}"] = _storable(np.asarray(made[operand.name]))
        error = np.asarray(off[operand.name], np.float64)
        if error.any():
            found[f"allowed.{index}"] = np.ascontiguousarray(error)
    from safetensors.numpy import save

    return save(found)


def _why_not(case: Case) -> str:
    if case.program.functions:
        return "it calls functions"
    if not has_denotation(case.operator):
        return "it has no denotation"
    if denotation(case.operator).draws:
        return "it draws random numbers"
    if not states_tolerance(case.operator):
        return "no tolerance is stated for it"
    if (
        any(isinstance(d, SymExpr) for o in case.outputs for d in o.shape)
        and case.program.nodes[0].binds
    ):
        return "data decides its sizes"
    return ""


def _storable(array: Array) -> Array:
    """The array, with a type that NumPy has: others as unsigned integers of the same width."""
    array = np.ascontiguousarray(array)
    if array.dtype.type.__module__ == "ml_dtypes":
        return array.view(f"uint{8 * array.dtype.itemsize}")
    return array
