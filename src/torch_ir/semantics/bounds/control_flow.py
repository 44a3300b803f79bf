"""Bounds of branches, loops and calls: those of the functions that they call."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import Any, Protocol, runtime_checkable

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.bounds.call import BoundedCall, Errors, with_arrays
from torch_ir.semantics.dtypes import rounded
from torch_ir.semantics.numbers import flat
from torch_ir.semantics.registry import denotation


@runtime_checkable
class Bounded(Protocol):
    """A function of the program that was called, and knows the errors of what it gave."""

    def errors(self, values: Sequence[Any], step: str = "") -> list[Any]:
        """Return the errors of a call's results for the errors of its arguments."""
        ...


def called(call: BoundedCall) -> Errors:
    """Bound by the functions' results, carried, stacked and chosen as these are."""
    given: dict[str, Any] = {}
    for name, value in call.arguments.items():
        if isinstance(value, Bounded):
            given[name] = value.errors
        elif callable(value):
            raise InvalidIRError(f"the error of {call.op_type} is that of its functions")
        else:
            exact = with_arrays(lambda array: np.zeros(array.shape), value)
            given[name] = value if name == "pred" else exact
    parts = flat(denotation(call.op_type).function(**given))
    return [part for part in parts if isinstance(part, np.ndarray)]


def converted(call: BoundedCall) -> Errors:
    """Bound by the operator's rule for operands of the wider type."""
    target = call["output_dtype"]
    names = signature(denotation(call["op"]).function).parameters
    values = [rounded(a, target) if isinstance(a, np.ndarray) else a for a in call["args"]]
    arguments = dict(zip(names, values, strict=False))
    from torch_ir.semantics.bounds.table import RULES  # which names this rule

    return RULES[call["op"]](BoundedCall(call["op"], arguments, call.results, call.accumulate))
