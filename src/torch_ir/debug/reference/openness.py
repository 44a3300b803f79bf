"""The elements of a chain's values that follow from what is left open on the way to them.

That is what was in memory before, which of equal elements a call names, or in which order, and
which of the values stays that are put at one place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import ml_dtypes
import numpy as np

from torch_ir.errors import TorchIRError
from torch_ir.ir import IR, OpNode
from torch_ir.ir.expressions import Number
from torch_ir.ir.queries import op_types
from torch_ir.ops.choices import (
    VALUES_OPEN,
    leaves_choice,
    leaves_order_open,
    leaves_writes_open,
)
from torch_ir.semantics.axes import axis
from torch_ir.semantics.bounds.call import accumulated_in, moduli
from torch_ir.semantics.denote import Evaluation
from torch_ir.semantics.dtypes import Array, is_bool, is_inexact, widest
from torch_ir.semantics.numbers import same
from torch_ir.semantics.operators.indexing import ascending, descending, written_in
from torch_ir.semantics.operators.sorting import next_equal

_FILLS = (np.nan, -30000.0, 30000.0)
"""What memory may hold, besides zeros; of integers the extremes and 1."""

_ORDERS = (ascending, descending)
"""The orders of writes in which the extremes of the values that are put at one place stay."""


def open_places(
    ir: IR,
    names: Sequence[str],
    values: Mapping[str, Any],
    symbols: Mapping[str, Number],
    slack: Mapping[str, Array] | None = None,
) -> dict[str, Array]:
    """Mark the elements of values that follow from memory that nothing has written, or a choice.

    The program is evaluated on memory of several kinds, where other elements are chosen; all is
    marked where it refuses one.

    Args:
        ir: The program.
        names: The values to mark.
        values: Its inputs.
        symbols: The symbols that are known.
        slack: How far elements may be apart and count as equal: a sum in another order rounds.
    """
    first = _made(ir, None, names, values, symbols)
    marks = {name: np.zeros(np.shape(first[name]), bool) for name in names}
    every = {name: np.ones_like(mark) for name, mark in marks.items()}
    if any(has_open_functions(ir, node) for node in ir.nodes):
        return every
    reads_memory = not VALUES_OPEN.isdisjoint(op_types(ir))
    for fill in range(len(_FILLS) if reads_memory else len(_ORDERS) if puts_twice(ir) else 1):
        try:
            other = _made(ir, fill, names, values, symbols)
        except TorchIRError:
            return every
        for name in names:
            a, b = first[name], other[name]
            if np.shape(a) != np.shape(b):
                return every
            marks[name] |= _differ(a, b, None if slack is None else slack[name])
    return marks


def _differ(first: Array, second: Array, slack: Array | None) -> Array:
    apart = ~same(first, second)
    if slack is None or not is_inexact(first.dtype):
        return apart
    with np.errstate(all="ignore"):
        return apart & ~(np.abs(widest(first) - widest(second)) <= slack)


def _made(
    ir: IR,
    fill: int | None,
    names: Sequence[str] | None,
    values: Mapping[str, Any],
    symbols: Mapping[str, Number],
) -> dict[str, Any]:
    """The named values, all for None."""
    evaluation = Evaluation(ir, {}, dict(values), symbols=dict(symbols))
    made: dict[str, Any] = evaluation.given()
    order = nullcontext() if fill is None else written_in(_ORDERS[fill % len(_ORDERS)])
    with np.errstate(all="ignore"), order:
        for node in ir.nodes:
            if fill is not None and leaves_choice(node.op_type, node.attrs):
                results = _other_choice(evaluation, node, made)
            else:
                results = evaluation.evaluate(node, made)
            for meta in node.outputs:
                result: Any = results[meta.producer_output_idx]
                is_filled = fill is not None and node.op_type in VALUES_OPEN
                made[meta.name] = _filled(result, fill or 0) if is_filled else result
    return {name: made[name] for name in (made if names is None else names)}


def _other_choice(evaluation: Evaluation, node: OpNode, made: Mapping[str, Any]) -> list[Any]:
    """Results that name another one of equal elements, in another order where any is right."""
    results: list[Any] = [*evaluation.evaluate(node, made)]
    *values, indices = results
    own, dim = node.tensor("self"), node.argument("dim", -1)
    given = indices if own is None else np.asarray(made[own.name])
    if not given.ndim or not isinstance(dim, int):
        return results
    is_reduced = indices.ndim < given.ndim
    wide = np.expand_dims(indices, dim) if is_reduced else indices
    wide = np.take_along_axis(next_equal(given, axis(dim, given.ndim)), wide, dim)
    results = [*values, wide.squeeze(dim) if is_reduced else wide]
    if leaves_order_open(node.op_type, node.attrs):
        return [np.roll(result, 1, dim) for result in results]
    return results


def _filled(like: Array, fill: int) -> Array:
    if is_inexact(like.dtype):
        return np.full_like(like, _FILLS[fill])
    if is_bool(like.dtype):
        return np.full_like(like, fill % 2 == 0)
    info = np.iinfo(like.dtype)
    return np.full_like(like, (info.max, info.min, 1)[fill])


def lost_places(
    ir: IR,
    values: Mapping[str, Any],
    symbols: Mapping[str, Number],
    expected: Array,
    got: Array,
    steps: np.dtype[Any] | None = None,
) -> Array | None:
    """Mark what is not finite in one of two results of an operator that is written out.

    Beside an infinity or NaN, or where a square on the way overflows, a kernel that takes other
    steps gives another result: ``inf - inf`` where the program has ``inf``.

    Args:
        ir: The program of the operator.
        values: Its inputs.
        symbols: The symbols that are known.
        expected: What it means.
        got: What a kernel gave.
        steps: The type to which a kernel may round each step; None for that of each value.

    Returns:
        None where the two differ in nothing of that, or nothing on the way is not finite.
    """
    if not is_inexact(expected.dtype) or expected.shape != got.shape:
        return None
    lost = ~(np.isfinite(expected) & np.isfinite(got))
    if not np.any(lost & _differ(expected, got, None)):
        return None
    made = _made(ir, None, None, values, symbols)
    return lost if any(_may_overflow(value, steps) for value in made.values()) else None


def _may_overflow(value: Any, steps: np.dtype[Any] | None) -> bool:
    if not isinstance(value, np.ndarray) or not is_inexact(value.dtype):
        return False
    largest = float(ml_dtypes.finfo(steps or accumulated_in(value.dtype)).max)
    return bool(np.any(~(moduli(value) < np.sqrt(largest))))


def has_open_functions(ir: IR, node: OpNode) -> bool:
    """Return whether functions that a node calls read memory that nothing has written."""
    bodies = [ir.functions[name] for name in node.functions if name in ir.functions]
    return not all(VALUES_OPEN.isdisjoint(op_types(body)) for body in bodies)


def puts_twice(ir: IR) -> bool:
    """Return whether some call, of functions too, may put several values at one place."""
    return any(leaves_writes_open(node.op_type, node.attrs) for _, _, node in ir.walk())
