"""Losses over alignments (CTC), of logarithms of probabilities, and gradients of margin losses.

A labelling of l labels is read as ``[blank, label, blank, …, label, blank]`` of 2 l + 1 states. An
alignment of T steps begins in one of the first two and ends in one of the last two; at each step
it stays, goes on by one state, or by two where these are different labels.

Source: A. Graves et al., "Connectionist Temporal Classification", ICML 2006, equations 6 to 16;
torch.nn.CTCLoss, NLLLoss, MultiMarginLoss and MultiLabelMarginLoss.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.dtypes import Array, is_float, rounded, widened
from torch_ir.semantics.operators.indexing import in_range
from torch_ir.semantics.operators.reductions import wide_log_sum
from torch_ir.semantics.registry import denotes, restate

NONE, MEAN = 0, 1
"""How torch numbers no reduction, and the mean over a batch; 2 is the sum."""


@dataclass(frozen=True, slots=True)
class Labelling:
    """One element of a batch: its place, its steps, and the label of each state."""

    place: int
    steps: int
    states: Array

    @property
    def skips(self) -> Array:
        """Whether an alignment may come to each state from the one two before."""
        skips = np.zeros(self.states.shape, bool)
        skips[2:] = self.states[2:] != self.states[:-2]
        return skips

    def along(self, log_probs: Array) -> Array:
        """Return the logarithms of its states' probabilities, [steps, states]."""
        return widened(log_probs)[: self.steps, self.place][:, self.states]

    def reversed(self) -> Labelling:
        """Return the labelling read from its end."""
        return Labelling(self.place, self.steps, self.states[::-1])


def labellings(
    log_probs: Array,
    targets: Array,
    input_lengths: Sequence[int] | Array,
    target_lengths: Sequence[int] | Array,
    blank: int = 0,
) -> Iterator[Labelling]:
    """Yield the elements of a batch.

    Args:
        log_probs: Of shape [T, N, C].
        targets: The labels, [N, S] or all in one row.
        input_lengths: How many steps each element has.
        target_lengths: How many labels each has.
        blank: The label that stands for none.

    Raises:
        InvalidIRError: Lengths or shapes do not fit each other, or a label is none, or blank.
    """
    if log_probs.ndim != 3 or not is_float(log_probs.dtype) or log_probs.dtype.itemsize < 4:
        raise InvalidIRError(f"no loss of {log_probs.dtype} {list(log_probs.shape)}")
    steps, counts = (np.asarray(n, "int64").tolist() for n in (input_lengths, target_lengths))
    most, batch, classes = log_probs.shape
    fits = len(steps) == len(counts) == batch and all(0 <= n <= most for n in steps)
    in_rows = targets.ndim == 2
    wide = targets.shape[1] if in_rows else targets.size
    fits &= (max(counts, default=0) if in_rows else sum(counts)) <= wide
    if not (fits and min(counts, default=0) >= 0 and 0 <= blank < classes):
        raise InvalidIRError(f"lengths {steps} and {counts} are not of {list(log_probs.shape)}")
    start = 0
    for place, count in enumerate(counts):
        row = targets[place, :count] if in_rows else targets[start : start + count]
        start += count
        labels = in_range(row.astype("int64"), classes)
        if (labels == blank).any():
            raise InvalidIRError(f"a label is {blank}, which is blank")
        states = np.full(2 * count + 1, blank)
        states[1::2] = labels
        yield Labelling(place, steps[place], states)


def joined(terms: Array, axis: int = 0) -> Array:
    """Return ``log Σ exp`` along an axis; of nothing but -inf, -inf."""
    return np.squeeze(wide_log_sum(terms, axis), axis)


def befores(row: Array, skips: Array, least: float = -np.inf) -> Array:
    """Return, of each state, what the three before it have, [3, states]."""
    found = np.full((3, len(row)), least)
    found[0], found[1, 1:] = row, row[:-1]
    found[2, 2:] = np.where(skips[2:], row[:-2], least)
    return found


def alignments(along: Array, skips: Array) -> Array:
    """Return the logarithms of the alignments' probabilities up to each step and state.

    Args:
        along: The logarithms of the states' probabilities, [steps, states].
        skips: Whether an alignment may come to each state from two before.
    """
    found = np.full(along.shape, -np.inf)
    found[:1, :2] = along[:1, :2]
    for step in range(1, len(along)):
        found[step] = joined(befores(found[step - 1], skips)) + along[step]
    return found


@denotes("aten._ctc_loss.default", "aten._ctc_loss.Tensor")
def ctc_loss(
    log_probs: Array,
    targets: Array,
    input_lengths: Sequence[int] | Array,
    target_lengths: Sequence[int] | Array,
    blank: int = 0,
    zero_infinity: bool = False,
) -> tuple[Array, Array]:
    """``-log P(labels)``, and the logarithms of alignments up to each step and state.

    Shapes: [N] and [N, T, 2 S + 1], S the most labels. What is beyond an element's own steps and
    states is open but in the first step, and -inf here. ``zero_infinity`` counts for gradients.
    """
    found = [*labellings(log_probs, targets, input_lengths, target_lengths, blank)]
    shape = _shape_of(found, log_probs)
    losses, whole = np.zeros(len(found)), np.full(shape, -np.inf)
    for one in found:
        rows = alignments(one.along(log_probs), one.skips)
        whole[one.place, : one.steps, : len(one.states)] = rows
        if one.steps:
            losses[one.place] = -joined(rows[-1][-2:])
        else:
            losses[one.place] = 0 if len(one.states) == 1 else np.inf
    return rounded(losses, log_probs.dtype), rounded(whole, log_probs.dtype)


def is_written(*, log_probs: Array, zero_infinity: bool = False, **lengths: Any) -> Array:
    """Mark the logarithms of alignments that :func:`ctc_loss` defines: [N, T, 2 S + 1]."""
    found = [*labellings(log_probs, **lengths)]
    marks = np.zeros(_shape_of(found, log_probs), bool)
    marks[:, :1] = True
    for one in found:
        marks[one.place, : one.steps, : len(one.states)] = True
    return marks


def _shape_of(found: Sequence[Labelling], log_probs: Array) -> tuple[int, int, int]:
    """The shape of what is known of each element, step and state."""
    return len(found), len(log_probs), max((len(one.states) for one in found), default=1)


@denotes("aten._ctc_loss_backward.default", "aten._ctc_loss_backward.Tensor")
def ctc_loss_backward(
    grad: Array,
    log_probs: Array,
    targets: Array,
    input_lengths: Sequence[int] | Array,
    target_lengths: Sequence[int] | Array,
    neg_log_likelihood: Array,
    log_alpha: Array,
    blank: int,
    zero_infinity: bool = False,
) -> Array:
    """``grad · (exp(lp) - Σ exp(α + β + loss - lp))``, the sum over the states of each label.

    β is as α from the end. 0 beyond an element's steps, and where its loss is infinite, if
    ``zero_infinity`` is set.
    """
    result = np.zeros(log_probs.shape)
    for one in labellings(log_probs, targets, input_lengths, target_lengths, blank):
        loss = widened(neg_log_likelihood)[one.place]
        if zero_infinity and loss == np.inf:
            continue
        lines = widened(log_probs)[: one.steps, one.place]
        parts = through(one, log_probs, log_alpha)
        of_label = np.full(lines.shape, -np.inf)
        for label in np.unique(one.states):
            of_label[:, label] = joined(parts[:, one.states == label], 1)
        slopes = np.exp(lines) - np.exp(of_label + loss - lines)
        result[: one.steps, one.place] = slopes * widened(grad)[one.place]
    return rounded(result, log_probs.dtype)


def through(one: Labelling, log_probs: Array, log_alpha: Array) -> Array:
    """Return α + β: the logarithms of the alignments through each step and state."""
    back = one.reversed()
    ends = alignments(one.along(log_probs)[::-1, ::-1], back.skips)[::-1, ::-1]
    return widened(log_alpha)[one.place, : one.steps, : len(one.states)] + ends


# -- entropy --------------------------------------------------------------------------------------


def least_slope(dtype: np.dtype[Any]) -> float:
    """Return the least ``x (1 - x)`` that divides a gradient: 10⁻¹² as a float32, in a type.

    Example:
        >>> least_slope(np.dtype("float16"))
        0.0
    """
    return float(np.float32(1e-12).astype(dtype))


@denotes("aten.binary_cross_entropy_backward.default")
def binary_cross_entropy_backward(
    grad_output: Array,
    self: Array,
    target: Array,
    weight: Array | None = None,
    reduction: int = MEAN,
) -> Array:
    """``grad · (x - target) / max(x (1 - x), ε) · weight``, over the number of elements of a mean.

    ε is :func:`least_slope`: in float16 that is 0.
    """
    given = [part for part in (grad_output, target, weight) if part is not None]
    if not is_float(self.dtype) or any(part.dtype != self.dtype for part in given):
        raise InvalidIRError(f"no entropy of {self.dtype} by {[str(p.dtype) for p in given]}")
    values = widened(self)
    slope = np.maximum((1 - values) * values, least_slope(self.dtype))
    result = widened(grad_output) * (values - widened(target)) / slope
    result = result if weight is None else result * widened(weight)
    return rounded(result / self.size if reduction == MEAN else result, self.dtype)


# -- margins --------------------------------------------------------------------------------------


def as_rows(values: Array) -> Array:
    """Return a matrix; one row of a vector, or of a number.

    Raises:
        InvalidIRError: It has more than two axes, or is of no type that has these losses.
    """
    if values.ndim > 2 or not is_float(values.dtype) or values.dtype.itemsize < 4:
        raise InvalidIRError(f"no loss of {values.dtype} {list(values.shape)}")
    return widened(values).reshape(-1 if values.ndim == 2 else 1, max(values.shape[-1:] or (1,)))


def share_of(gradient: Array, rows: Array, reduction: int) -> Array:
    """Return what one margin weighs in each row, [N, 1]: the gradient over the classes (and N)."""
    count = rows.shape[1] * (len(rows) if reduction == MEAN else 1)
    return np.broadcast_to(widened(gradient).reshape(-1, 1) / count, (len(rows), 1))


@denotes("aten.multi_margin_loss_backward.default")
def multi_margin_loss_backward(
    grad_output: Array,
    self: Array,
    target: Array,
    p: int,
    margin: float,
    weight: Array | None = None,
    reduction: int = MEAN,
) -> Array:
    """The gradient of ``Σ max(0, margin - x[target] + x)^p / C`` over all other classes."""
    rows = as_rows(self)
    if not self.size or p not in (1, 2):
        raise InvalidIRError(f"there is no such loss of {list(self.shape)} by power {p}")
    classes = in_range(target.reshape(-1), rows.shape[1])
    lines = np.arange(len(rows))
    margins = margins_of(rows, classes, margin)
    slopes = np.where(margins > 0, 2 * np.abs(margins) if p == 2 else 1.0, 0.0)
    if weight is not None:
        slopes = slopes * widened(weight)[classes][:, None]
    slopes[lines, classes] = 0
    slopes[lines, classes] = -np.sum(slopes, 1)
    result = slopes * share_of(grad_output, rows, reduction)
    return rounded(result.reshape(self.shape), self.dtype)


def margins_of(rows: Array, classes: Array, margin: float) -> Array:
    """Return ``margin - x[target] + x`` of each row."""
    return margin - rows[np.arange(len(rows)), classes][:, None] + rows


def label_margins(
    rows: Array, target: Array, is_target: Array
) -> Iterator[tuple[int, int, Array]]:
    """Yield row, label and ``1 - x[label] + x`` of the other classes; NaN at labels.

    Raises:
        InvalidIRError: A target is no class.
    """
    labels = target.reshape(rows.shape)
    others = is_target.reshape(rows.shape) == 0
    for number, row in enumerate(rows):
        ends = np.flatnonzero(labels[number] < 0)
        kept = labels[number][: ends[0]] if ends.size else labels[number]
        for label in in_range(kept, rows.shape[1]).tolist():
            yield number, label, np.where(others[number], 1 - row[label] + row, np.nan)


@denotes("aten.multilabel_margin_loss_backward.default")
def multilabel_margin_loss_backward(
    grad_output: Array, self: Array, target: Array, reduction: int, is_target: Array
) -> Array:
    """The gradient of ``Σ max(0, 1 - x[label] + x[other]) / C``; labels stand before a -1."""
    rows = as_rows(self)
    counts: Any = np.zeros(rows.shape)
    for number, label, margins in label_margins(rows, target, is_target):
        counts[number] += margins > 0
        counts[number, label] -= np.sum(margins > 0)
    result = counts * share_of(grad_output, rows, reduction)
    return rounded(result.reshape(self.shape), self.dtype)


# -- logarithms of probabilities ------------------------------------------------------------------


@denotes("aten.nll_loss_forward.default", "aten.nll_loss2d_forward.default")
def nll_loss_forward(
    self: Array,
    target: Array,
    weight: Array | None = None,
    reduction: int = MEAN,
    ignore_index: int = -100,
) -> tuple[Array, Array]:
    """``-w[t] self[t]`` of each target t but ``ignore_index``, its sum, or that by ``Σ w[t]``.

    Shapes: [N, C, *] and [N, *], or [C] and []. Without weights all are 1. What is ignored is 0,
    and of no weight.

    Returns:
        The losses, or one number, and ``Σ w[t]``; 0 for losses of a batch.
    """
    losses, weights = picked_losses(self, target, weight, ignore_index)
    total = np.sum(weights)
    if reduction == NONE:
        result = losses
        total = total if self.ndim == 1 else np.zeros(())
    else:
        result = np.sum(losses) / total if reduction == MEAN else np.sum(losses)
    return rounded(np.asarray(result), self.dtype), rounded(np.asarray(total), self.dtype)


restate(
    *(nll_loss_forward, "aten.nll_loss.default", "aten.nll_loss2d.default"),
    *("aten.nll_loss_nd.default",),
    part=0,
)


def picked_losses(
    self: Array, target: Array, weight: Array | None, ignore_index: int
) -> tuple[Array, Array]:
    """Return the loss and the weight of each target in float64, 0 where it is ignored.

    Raises:
        InvalidIRError: A target is no class, or shapes do not fit each other.
    """
    place = min(self.ndim - 1, 1)
    classes = self.shape[place] if self.ndim else 0
    fits = is_float(self.dtype) and target.shape == self.shape[:place] + self.shape[place + 1 :]
    fits = fits and (weight is None or weight.shape == (classes,))
    if not fits or (target.size and not classes):
        raise InvalidIRError(f"no loss of {self.dtype} {list(self.shape)} at {list(target.shape)}")
    counted = target != ignore_index
    labels = in_range(np.where(counted, target, 0).astype("int64"), classes)
    found = np.take_along_axis(widened(self), np.expand_dims(labels, place), place)
    weights = np.ones(target.shape) if weight is None else widened(weight)[labels]
    losses = -np.squeeze(found, place) * weights
    return np.where(counted, losses, 0.0), np.where(counted, weights, 0.0)
