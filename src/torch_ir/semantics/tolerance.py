"""Tolerances: how far each element of a kernel's result may be from the denotation.

A denotation rounds once; a kernel rounds at every step, in an order of its own. How far that may
take it follows from what the operator computes (:mod:`torch_ir.semantics.bounds`, by exact
overload; ``docs/semantics.md``). Integers, booleans and all that only moves or picks elements must
be equal; of zeros the sign is never compared. Where something overflows on the way in the type
that kernels compute in, the value is open: its bound is infinite. An infinity or NaN that is the
value itself, as of log(0), is not: its bound is finite, and how far an infinity is from a number
is measured from where numbers begin to round to it (:func:`overflow_edge`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

from torch_ir.errors import ExecutionError, InvalidIRError, code_of
from torch_ir.semantics.bounds import (
    control_flow,
    elementwise,
    normalization,
    resampling,
    rows,
    special,
    sums,
)
from torch_ir.semantics.bounds.algebra import linear_equations, single_elements
from torch_ir.semantics.bounds.call import BoundedCall, Rule, moduli, rounding, with_arrays
from torch_ir.semantics.bounds.call import spacing as spacing
from torch_ir.semantics.bounds.light_operands import with_light_operands
from torch_ir.semantics.bounds.table import RULES
from torch_ir.semantics.bounds.training import attention
from torch_ir.semantics.dtypes import Array, is_complex, is_inexact, real_of
from torch_ir.semantics.numbers import flat, of_no_elements
from torch_ir.semantics.registry import Kind, denotation

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


_WITHOUT_DIFFERENCES = (
    *(rows.softmax, rows.log_softmax, rows.log_sum, rows.norm),
    *(sums.reduction, sums.running_sum, sums.pooling),
)


def subtracts(op_type: str) -> bool:
    """Return whether kernels may subtract two infinities where the meaning has one.

    Those that compute each element by itself do not, but for ``gelu``, the Airy function and
    polynomials by recurrence, nor do those that take the greatest of a row out of it, or only add.

    Example:
        >>> [subtracts(f"aten.{name}.default") for name in ("gelu", "exp", "mm")]
        [True, False, True]
    """
    rule = RULES.get(op_type)
    if rule is None or rule in (elementwise.gelu, special.airy, special.waves, special.polynomial):
        return True
    is_apart = rule.__module__ in (elementwise.__name__, special.__name__)
    return not is_apart and rule not in _WITHOUT_DIFFERENCES


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
    if not any(array.size for array in arrays) and (given or op_type in RULES):
        return [np.zeros(array.shape) for array in arrays]
    with np.errstate(all="ignore"):
        try:
            return _bounded(BoundedCall(op_type, arguments, arrays, accumulate))
        except Exception:  # NumPy raises anything for a type that it does not compute in
            if (typed := of_no_elements(arguments)) is None:
                raise
        return _bounded(BoundedCall(op_type, typed, arrays, accumulate))


def leaves_drift(op_type: str) -> bool:
    """Return whether bounds of an operator leave out what :func:`drift_at` says.

    Example:
        >>> leaves_drift("aten.mm.default"), leaves_drift("aten.sum.default")
        (True, False)
    """
    return RULES.get(op_type) in single_elements.TERMS


def drift_at(
    op_type: str, arguments: Mapping[str, Any], results: Sequence[Any]
) -> Callable[[Array], Array]:
    """Return what says how far some elements of a product may be off besides their bounds.

    Roundings of terms alike go one way, and small terms behind a large one are lost: each
    element's own terms tell, which are too many for those of all elements.

    Args:
        op_type: The exact overload.
        arguments: What its denotation took, by name.
        results: What it gave.

    Returns:
        A function of places in the first result as one row: a float64 error for each.

    Example:
        >>> row = np.full((1, 2000), 2.0**-25, "float32")
        >>> row[0, 0] = 1
        >>> given = {"self": row, "mat2": np.ones((2000, 1), "float32")}
        >>> drift = drift_at("aten.mm.default", given, [row[:, :1]])
        >>> (drift(np.array([0])) * 2**25).tolist()
        [1999.0]
    """
    call = BoundedCall(op_type, arguments, [r for r in results if isinstance(r, np.ndarray)])

    def drift(places: Array) -> Array:
        with np.errstate(all="ignore"):
            return single_elements.drift_of(call, RULES[op_type], places)

    return drift


def _bounded(call: BoundedCall) -> list[Array] | None:
    """The bounds of a call that has elements, or states no tolerance."""
    op_type, arrays = call.op_type, call.results
    given = denotation(op_type).tolerance
    if callable(given):

        def stated(call: BoundedCall) -> list[Array]:
            with code_of(given, f"the tolerance of {op_type}", ExecutionError):
                errors = [np.asarray(e, "float64") for e in given(call.arguments, call.results)]
                if any((error < 0).any() for error in errors):
                    raise ValueError("it gave a bound below zero")
                _require_one_each(op_type, errors, arrays)
                pairs = zip(errors, arrays, strict=True)
                return [np.broadcast_to(error, array.shape) for error, array in pairs]

        return _of_values(call, stated, call.results)
    rule = RULES.get(op_type) if given is None else _KINDS[given]
    if rule is None:
        return None

    def wholes(call: BoundedCall) -> list[Array]:
        errors = rule(call)
        _require_one_each(op_type, errors, arrays)
        return [_whole(call, error, r) for error, r in zip(errors, call.results, strict=True)]

    if _is_open_beside_infinities(rule, arrays[0]):
        return [np.nan_to_num(part, posinf=np.inf) for part in wholes(call)]
    is_exact = given is not None or rule is control_flow.converted
    bounds = _of_values(call, wholes, call.results if is_exact else None)
    if rule.__module__ == elementwise.__name__:
        bounds = with_light_operands(call, bounds)
    return _opened(call, rule, bounds)


_OPEN: Mapping[Rule, Callable[[BoundedCall], list[Array] | None]] = {
    sums.convolution: sums.beside_zeros,
    sums.slow_convolution: sums.slow_beside_zeros,
    attention.attention_backward: sums.not_finite,
    normalization.weight_norm_backward: sums.not_finite,
    elementwise.power: elementwise.of_infinite_base,
    elementwise.code_numbers: elementwise.without_code,
    sums.trilinear: sums.not_finite,
    resampling.sampled: resampling.of_infinities,
    resampling.sampled_backward: resampling.of_lost_gradients,
    normalization.layer_norm: normalization.beside_weights(normalization.layer_norm),
    normalization.group_norm: normalization.beside_weights(normalization.group_norm),
    normalization.layer_norm_backward: sums.not_finite,
    normalization.group_norm_backward: sums.not_finite,
    normalization.batch_norm_backward: sums.not_finite,
    rows.attention: rows.attended_to_nan,
    special.polynomial: special.unwritten,
}
"""Marks of what is open although nothing overflows, of operands that are not all finite."""


def _opened(call: BoundedCall, rule: Rule, bounds: list[Array]) -> list[Array]:
    marks = _OPEN[rule](call) if rule in _OPEN else None
    if marks is None:
        return bounds
    return [np.where(o, np.inf, error) for o, error in zip(marks, bounds, strict=True)]


def _is_open_beside_infinities(rule: Rule, result: Array) -> bool:
    """Whether a rule itself says what is open where something is not finite.

    Functions have bounds of their own; of no solution numbers are open too, and of an infinite
    line that is transformed to real numbers, which are NaN is a matter of order.
    """
    if rule is rows.transform:
        return not is_complex(result.dtype)
    is_its_own = rule in (control_flow.called, rows.mode)
    return is_its_own or rule.__module__ == linear_equations.__name__


def _of_values(
    call: BoundedCall, rule: Callable[[BoundedCall], list[Array]], exact: Sequence[Array] | None
) -> list[Array]:
    """The bounds of a rule; of what is not finite, infinite only where something overflows.

    What is relative to an infinity is infinite too, but not open. ``exact`` are the results in
    float64; None to compute them.
    """
    bounds = _near_no_infinity(call, rule, rule(call))
    lost = [
        is_inexact(r.dtype) & ~np.isfinite(r) & (bound > 0)
        for r, bound in zip(call.results, bounds, strict=True)
    ]
    if not any(places.any() for places in lost):
        return bounds
    clipped = rule(replace(call, results=[_clipped(r) for r in call.results]))
    finite = clipped if _is_finite(call) else rule(_without_infinities(call))
    found: list[Array] = []
    for index, (result, places) in enumerate(zip(call.results, lost, strict=True)):
        if not places.any():
            found.append(bounds[index])
            continue
        if exact is None:
            exact = call.meant()
        sizes, bound, edge = np.abs(exact[index]), clipped[index], overflow_edge(result.dtype)
        near = np.isfinite(sizes) & (sizes - bound <= edge)  # where it may as well not overflow
        if not is_complex(result.dtype) or exact[index].dtype == result.dtype:
            near |= ~np.isfinite(finite[index])  # what is finite may overflow before the rest
        bound = np.nan_to_num(bound, nan=np.inf, posinf=np.inf)
        settled = np.where(near, bound, rounding(result, narrow=call.rounds_to(result.dtype)))
        found.append(np.where(places, settled, bounds[index]))
    return found


def _near_no_infinity(
    call: BoundedCall, rule: Callable[[BoundedCall], list[Array]], bounds: list[Array]
) -> list[Array]:
    """The bounds; of finite results for which a rule gives NaN, those without what is not finite.

    That has no part in a finite result, but a rule may look at it beside others. Where a rule
    itself overflows, nothing is known.
    """
    lost = [np.isnan(bound) for bound in bounds]
    if not any(places.any() for places in lost):
        return bounds
    plain = _without_infinities(call)
    others = rule(replace(plain, results=call.results))
    unknown = np.inf if _has_great(plain) else 0
    found: list[Array] = []
    for places, result, bound, other in zip(lost, call.results, bounds, others, strict=True):
        is_exact = not is_inexact(result.dtype)
        finite = np.ones(result.shape, bool) if is_exact else np.isfinite(result)
        whole = np.where(places & finite, np.nan_to_num(other, nan=unknown, posinf=np.inf), bound)
        is_open = np.isnan(other) & (unknown > 0) | np.isposinf(other)
        whole = np.where(places & ~finite & is_open, np.inf, whole)
        found.append(np.where(np.isnan(whole), 0, whole))  # infinities are equal
    return found


_GREAT = 1e100
"""Numbers whose products overflow in float64, in which bounds are computed."""


def _has_great(call: BoundedCall) -> bool:
    given = [np.asarray(item) for value in call.arguments.values() for item in flat(value)]
    return any(bool((moduli(item) >= _GREAT).any()) for item in given if is_inexact(item.dtype))


def _is_finite(call: BoundedCall) -> bool:
    given = [np.asarray(item) for value in call.arguments.values() for item in flat(value)]
    return all(np.isfinite(item).all() for item in given if is_inexact(item.dtype))


def _without_infinities(call: BoundedCall) -> BoundedCall:
    """The call with 0 for all that is not finite, so that its bounds are those of the rest."""
    plain = {name: with_arrays(_zeroed, value) for name, value in call.arguments.items()}
    return replace(call, arguments=plain, results=list(map(_zeroed, call.results)), _wide={})


def _zeroed(values: Array) -> Array:
    if not is_inexact(values.dtype):
        return values
    return np.where(np.isfinite(values), values, np.zeros((), values.dtype))


def _clipped(values: Array) -> Array:
    """What is infinite as the largest number."""
    if not is_inexact(values.dtype) or is_complex(values.dtype):
        return values
    largest = ml_dtypes.finfo(values.dtype).max
    return np.where(np.isinf(values), np.copysign(largest, values), values).astype(values.dtype)


def overflow_edge(dtype: np.dtype[Any]) -> float:
    """Return the least modulus that rounds to infinity; infinite for float64.

    Example:
        >>> overflow_edge(np.dtype("float16"))
        65520.0
    """
    info = ml_dtypes.finfo(real_of(dtype))
    largest = float(info.max)
    return largest + float(np.ldexp(1.0, int(np.frexp(largest)[1]) - 2 - info.nmant))


def _require_one_each(op_type: str, errors: Sequence[Any], arrays: Sequence[Array]) -> None:
    if len(errors) != len(arrays):
        raise InvalidIRError(
            f"the tolerance of {op_type} gives {len(errors)} bounds for {len(arrays)} results"
        )


def _whole(call: BoundedCall, error: Any, result: Array) -> Array:
    """An error in the type computed in, with what rounding to the result's type adds.

    Of integers and booleans only what is open counts.
    """
    if error is None:
        return np.broadcast_to(0.0, result.shape)
    if not is_inexact(result.dtype):
        return np.broadcast_to(np.where(np.isposinf(error), np.inf, 0.0), result.shape)
    if (
        real_of(result.dtype) == np.float64
    ):  # in which the meaning is computed, and rounds as often
        error = 2 * error
    narrow = call.rounds_to(result.dtype)
    whole = error + rounding(result, narrow=narrow, error=error)
    return np.asarray(np.broadcast_to(whole, result.shape), "float64")
