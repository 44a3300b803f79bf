"""Bounds beside tensors without dimensions, which kernels may round to a half type first.

Beside tensors of float16 or bfloat16 that have dimensions, one without any does not take part in
promotion. Its own precision is part of the meaning, and kernels keep that (CPU: what is multiplied
or divided by it) or round it to the half type, in which it may be infinite or 0.
"""

from __future__ import annotations

import numpy as np

from torch_ir.errors import TorchIRError
from torch_ir.semantics.bounds.call import BoundedCall
from torch_ir.semantics.bounds.moves import apart
from torch_ir.semantics.dtypes import Array, is_inexact, rounded
from torch_ir.semantics.numbers import flat
from torch_ir.semantics.registry import denotation


def with_light_operands(call: BoundedCall, bounds: list[Array]) -> list[Array]:
    """Return bounds that leave this choice: integers that it changes are open."""
    light = _rounded(call)
    if not light:
        return bounds
    try:
        made = flat(denotation(call.op_type).function(**{**call.arguments, **light}))
    except TorchIRError:
        return bounds
    others = [part for part in made if isinstance(part, np.ndarray)]
    if len(others) != len(bounds):
        return bounds
    triples = zip(bounds, others, call.results, strict=True)
    return [bound + _moved(other, result) for bound, other, result in triples]


def _moved(other: Array, result: Array) -> Array:
    if is_inexact(result.dtype):
        return apart(other, result)
    return np.where(other != result, np.inf, 0.0)


def _rounded(call: BoundedCall) -> dict[str, Array]:
    """The operands without dimensions, rounded to the half type, where that changes them."""
    tensors = call.arrays
    wide = {v.dtype for v in tensors.values() if v.ndim and is_inexact(v.dtype)}
    halves = {dtype for dtype in wide if dtype.itemsize == 2}
    if len(halves) != 1 or all(v.ndim for v in tensors.values()):
        return {}
    (half,) = halves
    found = {
        name: np.asarray(rounded(value, half))
        for name, value in tensors.items()
        if not value.ndim and value.dtype != half and value.dtype.kind not in "bc"
    }
    return {name: value for name, value in found.items() if _differs(value, tensors[name])}


def _differs(one: Array, other: Array) -> bool:
    return bool(one.astype("float64") != other.astype("float64")) and bool(np.all(other == other))
