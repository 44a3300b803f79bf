"""Tolerances: how far each element of a kernel's result may be from the denotation.

A denotation rounds once; a kernel rounds at every step, in an order of its own. How far that may
take it follows from what the operator computes (:mod:`torch_ir.semantics.bounds`, by exact
overload; ``docs/semantics.md``). Integers, booleans and all that only moves or picks elements must
be equal; of zeros the sign is never compared. Where something overflows on the way in the type
that kernels compute in, the value is open: its bound is infinite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.bounds import elementwise, sums
from torch_ir.semantics.bounds.call import BoundedCall, Rule, inexact, rounding, spacing
from torch_ir.semantics.bounds.table import RULES
from torch_ir.semantics.dtypes import Array
from torch_ir.semantics.registry import Bound, Kind, denotation

__all__ = ["Bound", "Kind", "bound", "kind_of", "spacing", "states_tolerance"]

_KINDS: dict[Kind, Rule] = {
    "exact": elementwise.exact,
    "rounded": elementwise.rounded,
    "function": elementwise.function,
    "sum": sums.reduction,
    "steps": sums.stepwise,
}


def states_tolerance(op_type: str) -> bool:
    """Return whether it is stated how far the results of this very overload may be off.

    Of a denotation from elsewhere, ``denotes(…, tolerance=…)`` states it.

    Raises:
        InvalidIRError: The operator has no denotation.
    """
    return denotation(op_type).tolerance is not None or op_type in RULES


def kind_of(op_type: str) -> str:
    """Return the name of the rule that bounds an operator's error; empty if there is none.

    Example:
        >>> kind_of("aten.view.default"), kind_of("aten.mm.default")
        ('exact', 'product')
    """
    given = denotation(op_type).tolerance
    if given is not None:
        return given if isinstance(given, str) else "own"
    return RULES[op_type].__name__ if op_type in RULES else ""


def bound(
    op_type: str,
    arguments: Mapping[str, Any],
    results: Sequence[Any],
    accumulate: np.dtype[Any] | None = None,
) -> list[Array] | None:
    """Compute the error that is allowed in each element of each result.

    Args:
        op_type: The exact overload.
        arguments: What its denotation took, by name.
        results: What it gave.
        accumulate: The type in which the kernel computes; float32 for narrower results and else
            the result's own if None.

    Returns:
        For each result that is an array, float64 bounds of its shape: 0 where it must be equal,
        infinite where its value is open. None where no tolerance is stated for the operator.

    Raises:
        InvalidIRError: The operator has no denotation.

    Example:
        >>> x = np.array([[0.0, -1e9]], "float32")
        >>> (error,) = bound("aten._softmax.default", {"self": x, "dim": 1}, [np.exp(x)])
        >>> (error < 1e-6).tolist()
        [[True, True]]
    """
    arrays = [result for result in results if isinstance(result, np.ndarray)]
    given = denotation(op_type).tolerance
    with np.errstate(all="ignore"):
        if callable(given):
            stated = [np.asarray(error, "float64") for error in given(arguments, arrays)]
            _require_one_each(op_type, stated, arrays)
            return [
                np.broadcast_to(error, array.shape)
                for error, array in zip(stated, arrays, strict=True)
            ]
        rule = RULES.get(op_type) if given is None else _KINDS[given]
        if rule is None:
            return None
        call = BoundedCall(op_type, arguments, arrays, accumulate)
        errors = rule(call)
        _require_one_each(op_type, errors, arrays)
        return [_whole(call, error, r) for error, r in zip(errors, arrays, strict=True)]


def _require_one_each(op_type: str, errors: Sequence[Any], arrays: Sequence[Array]) -> None:
    if len(errors) != len(arrays):
        raise InvalidIRError(
            f"the tolerance of {op_type} gives {len(errors)} bounds for {len(arrays)} results"
        )


def _whole(call: BoundedCall, error: Any, result: Array) -> Array:
    """An error in the type computed in, with what rounding to the result's type adds."""
    if error is None or not inexact(result.dtype):
        return np.zeros(result.shape)
    error = np.where(np.isnan(error), 0, error)  # of infinities, which must be equal
    whole = error + rounding(result, narrow=call.rounds_to(result.dtype))
    return np.asarray(np.broadcast_to(whole, result.shape), "float64")
