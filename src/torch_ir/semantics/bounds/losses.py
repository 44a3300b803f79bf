"""Bounds of losses: over alignments, which add up logarithms step by step, by class, by margin.

What a step of a recursion adds to its error is carried on by the weights with which the states
before it count: these are positive and add up to 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, log2, sqrt
from typing import Any

import ml_dtypes
import numpy as np

from torch_ir.semantics.bounds.call import WALK, BoundedCall, Errors, moduli, repeats
from torch_ir.semantics.bounds.unwritten import unwritten
from torch_ir.semantics.dtypes import Array
from torch_ir.semantics.operators.losses import (
    MEAN,
    NONE,
    Labelling,
    alignments,
    as_rows,
    befores,
    joined,
    label_margins,
    labellings,
    least_slope,
    margins_of,
    picked_losses,
    share_of,
    through,
)

FEW = 4
"""Roundings of a product with the gradient, of the quotient, and of a function."""
STEP = 7
"""Those of exponentials of what is at most 0, their sum, and its logarithm."""
LEVELS = 8
"""Sums that kernels of losses by class keep, each of at least 16 of those of the level below."""


def _labellings(call: BoundedCall) -> Iterator[Labelling]:
    names = ("log_probs", "targets", "input_lengths", "target_lengths", "blank")
    return labellings(*[call.arguments.get(name, 0) for name in names])


def _one_way(call: BoundedCall) -> float:
    """Which part of the steps may round one way: those of equal probabilities; all in float64."""
    if call.dtype == np.float64:
        return 1.0
    return float(np.max(repeats(call["log_probs"], [0]), initial=0))


def _in_steps(along: Array, rows: Array, skips: Array, one_way: float) -> Array:
    """How far each logarithm of :func:`alignments` is off, in units of u.

    Roundings walk at random, but for the part of the steps that may go one way.
    """
    walk, sure = np.zeros(rows.shape), np.zeros(rows.shape)
    for step in range(1, len(along)):
        before = befores(rows[step - 1], skips)
        whole = joined(before)
        weights = np.where(np.isfinite(before), np.exp(before - whole), 0)
        few = np.where(np.sum(weights > 0, 0) > 1, STEP, 0)
        parts = np.stack([few, np.abs(whole), np.abs(rows[step])])
        parts = np.where(np.isfinite(parts), parts, 0)
        kept = [np.sum(weights * befores(e[step - 1], skips, 0.0), 0) for e in (walk, sure)]
        walk[step] = np.hypot(kept[0], np.sum(parts, 0))
        sure[step] = kept[1] + np.sum(parts, 0)
    return WALK * walk + one_way * sure


def alignment(call: BoundedCall) -> Errors:
    """Bound each step by the logarithms that it rounds, and what the steps before it were off."""
    losses, whole = call.results
    one_way, errors = _one_way(call), [np.zeros(losses.shape), np.zeros(whole.shape)]
    for one in _labellings(call):
        if not one.steps:
            continue
        along, skips = one.along(call["log_probs"]), one.skips
        rows = alignments(along, skips)
        off = _in_steps(along, rows, skips, one_way)
        ends = rows[-1][-2:]
        total = joined(ends)
        weights = np.where(np.isfinite(ends), np.exp(ends - total), 0)
        settled = np.where(np.isfinite(total), np.abs(total), 0)
        errors[0][one.place] = np.sum(weights * off[-1][-2:]) + settled + STEP * (ends.size > 1)
        errors[1][one.place, : one.steps, : len(one.states)] = off
    is_open = unwritten(call.op_type, 1, call.arguments, whole.shape)
    return [call.unit * errors[0], np.where(is_open, np.inf, call.unit * errors[1])]


def alignment_backward(call: BoundedCall) -> Errors:
    """Bound exponentials of sums by how far these are off, as :func:`alignment` from the end.

    Logarithms of one label's states are joined one after the other.
    """
    one_way, error = _one_way(call), np.zeros(call.results[0].shape)
    is_zeroed = call.arguments.get("zero_infinity", False)
    for one in _labellings(call):
        loss, gradient = (call.wide(n)[one.place] for n in ("neg_log_likelihood", "grad"))
        if is_zeroed and loss == np.inf:
            continue
        lines = call.wide("log_probs")[: one.steps, one.place]
        parts = through(one, call["log_probs"], call["log_alpha"])
        along, skips = one.along(call["log_probs"])[::-1, ::-1], one.reversed().skips
        off = _in_steps(along, alignments(along, skips), skips, one_way)[::-1, ::-1]
        off = off + np.abs(parts)
        made, moved = np.full(lines.shape, -np.inf), np.zeros(lines.shape)
        for label in np.unique(one.states):
            held = one.states == label
            count, own = np.sum(held), parts[:, held]
            whole = joined(own, 1)
            weights = np.where(np.isfinite(own), np.exp(own - whole[:, None]), 0)
            steps = WALK * np.sqrt(count - 1) + one_way * (count - 1)
            carried = np.sum(np.where(weights > 0, weights * off[:, held], 0), 1)
            made[:, label] = whole
            moved[:, label] = carried + steps * (np.abs(whole) + STEP)
        power = made + loss - lines
        relative = call.unit * (moved + np.abs(made + loss) + np.abs(power) + FEW)
        first, second = np.exp(lines), np.exp(power)
        off = np.where(second > 0, second * np.expm1(relative), 0) + call.unit * FEW * first
        error[: one.steps, one.place] = off * np.abs(gradient)
    return [error + call.unit * FEW * moduli(call.results[0])]


def entropy_slope(call: BoundedCall) -> Errors:
    """Bound relative to the result: each step rounds in the operand's own type."""
    (result,), least = call.results, float(ml_dtypes.finfo(call["self"].dtype).smallest_subnormal)
    (quotient,) = call.meant(weight=None, reduction=0)
    values, gradient = call.wide("self"), call.size("grad_output")
    slope = np.maximum((1 - values) * values, least_slope(call["self"].dtype))
    weight = 1.0 if call["weight"] is None else call.size("weight")
    count = result.size if _reduction(call) == 1 else 1
    # the products with the gradient, and of x with 1 - x, may be less than normal numbers
    lost = least * (1 / slope + np.abs(quotient) * (1 / slope + 1)) * weight / count
    error = call.result_unit * (FEW + 4) * moduli(result) + np.nan_to_num(lost, posinf=0)
    way = np.maximum(np.abs(quotient), gradient * np.abs(values - call.wide("target")))
    way = np.maximum(way, np.abs(quotient) * weight)
    way = np.where(np.isfinite(quotient), way, 0)
    return [call.opened(error, way, result.dtype)]


def margins(call: BoundedCall) -> Errors:
    """Bound slopes by their margins, which roundings decide about near 0; a target adds up all."""
    (result,), rows = call.results, as_rows(call["self"])
    places = np.arange(len(rows)), call["target"].reshape(-1)
    edge, share = call["margin"], np.abs(share_of(call["grad_output"], rows, _reduction(call)))
    found = margins_of(rows, places[1], edge)
    reach = np.abs(edge) + np.abs(rows) + np.abs(rows[places])[:, None]
    off = call.opened(2 * call.unit * reach, reach)
    if call["weight"] is not None:
        share = share * call.size("weight")[places[1]][:, None]
    is_squared = call["p"] == 2
    slopes = np.where(found > 0, 2 * found if is_squared else 1, 0)
    moved = np.where(found > -off, 2 * off, 0) if is_squared else np.abs(found) <= off
    error = moved + call.unit * FEW * slopes
    error[places], slopes[places] = 0, 0
    adds = call.depth(rows.shape[1], np.inf, repeats(found, [1])) if is_squared else 0.0
    adds = adds + np.sum(slopes > 0, 1) / 2  # equal ones round by up to half of the sum so far
    error[places] = np.sum(error, 1) + call.unit * (FEW + adds) * np.sum(slopes, 1)
    return [(error * share).reshape(result.shape)]


def label_counts(call: BoundedCall) -> Errors:
    """Bound sums of one share by how many these are, and by margins next to 0."""
    (result,), rows = call.results, as_rows(call["self"])
    share = np.abs(share_of(call["grad_output"], rows, _reduction(call)))
    counts, moved = np.zeros(rows.shape), np.zeros(rows.shape)
    for number, label, found in label_margins(rows, call["target"], call["is_target"]):
        reach = 1 + np.abs(rows[number]) + np.abs(rows[number, label])
        near = np.abs(found) <= call.opened(2 * call.unit * reach, reach)
        counts[number] += found > 0
        counts[number, label] += np.sum(found > 0)
        moved[number] += near
        moved[number, label] += np.sum(near)
    error = call.unit * (FEW + counts / 2) * counts + moved
    return [(error * share).reshape(result.shape)]


def by_class(call: BoundedCall) -> Errors:
    """Bound sums of losses and of weights, in cascades in the type itself, and their quotient."""
    ignored = call.arguments.get("ignore_index", -100)
    losses, weights = picked_losses(call["self"], call["target"], call["weight"], ignored)
    loss, *totals = call.results
    weighed, exact = np.sum(np.abs(weights)), call["weight"] is None
    of_weights = 0.0 if exact else _cascade(call, weights) * weighed
    errors: list[Any] = [call.unit * moduli(loss)]
    if _reduction(call) != NONE:
        added = np.sum(np.abs(losses))
        error = _cascade(call, losses) * added
        if call.is_narrow:  # what is less than the least normal number rounds by itself
            error = error + losses.size * float(ml_dtypes.finfo(loss.dtype).smallest_subnormal)
        if _reduction(call) == MEAN:
            total = np.abs(np.sum(weights)) - of_weights
            error = (error + of_weights * moduli(loss)) / total
            error = error + call.result_unit * FEW * moduli(loss)
            error = np.where(total > 0, error, 0.0 if exact else np.inf)
        errors = [call.opened(error, np.maximum(added, weighed), loss.dtype)]
    return [*errors, *[call.opened(of_weights, weighed, loss.dtype) for _ in totals]]


def _cascade(call: BoundedCall, terms: Array) -> Any:
    """What a sum is off, relatively: roundings of 16-bit types are to the type at each step.

    Each level adds one sum after the other. Those of terms alike round one way, and so are terms
    lost that are less than what a level's sum rounds.
    """
    moved, count = np.abs(terms[terms != 0]), max(terms.size, 1)
    if not moved.size:
        return 0.0
    if not call.is_narrow:
        return call.unit * (FEW + call.depth(count, one_way=call.repeats(terms.reshape(-1), [0])))
    length = 2 ** max(4, ceil(log2(count) / LEVELS))
    lost = np.mean(moved < 2 * call.result_unit * length * np.max(moved))
    one_way = np.maximum(call.repeats(terms.reshape(-1), [0]), lost)
    steps, left = 0.0, float(count)
    while left > 1:
        steps += (min(left, length) + 1) / 2
        left /= length
    return call.result_unit * (WALK * sqrt(min(count, length)) + one_way * steps)


def _reduction(call: BoundedCall) -> int:
    return int(call.arguments.get("reduction", 1))
