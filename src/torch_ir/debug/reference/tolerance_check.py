"""Agreement of two values of one node: within a tolerance, or to the bit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from torch_ir.debug.tensor_comparison import compare_tensors
from torch_ir.ir import OpNode
from torch_ir.semantics.arguments import arguments_of, as_array
from torch_ir.semantics.axes import axis
from torch_ir.semantics.bounds.moves import apart
from torch_ir.semantics.bounds.unwritten import may_leave, unwritten
from torch_ir.semantics.dtypes import Array, is_complex, is_inexact, widest
from torch_ir.semantics.numbers import same
from torch_ir.semantics.operators.sorting import in_order
from torch_ir.semantics.tolerance import overflow_edge, spacing

AT_ONCE = 2**18
"""Elements that are measured together: measures take some ten times their memory."""


@dataclass(frozen=True, slots=True)
class Error:
    """How far a value is from what it is compared with.

    Attributes:
        ulp: Greatest error, in units in the last place of the expected value; 0 for integers.
        absolute: Greatest absolute error.
        relative: Greatest error relative to the expected value, where that is not 0.
        part: Greatest error as a part of what is allowed: more than 1 where it is too much.
        reason: Why the two disagree; empty if they do not.
        loose: Why they cannot be said to agree, though nothing disagrees; empty if they do.
    """

    ulp: float = 0.0
    absolute: float = 0.0
    relative: float = 0.0
    part: float = 0.0
    reason: str = ""
    loose: str = ""

    @property
    def is_none(self) -> bool:
        """Whether the two are equal."""
        return not self.reason and self.absolute == 0 and self.part == 0

    def in_a_second_call(self) -> Error:
        """Return the same of a second call of what is judged."""
        return replace(self, reason=self.reason and f"{self.reason}, in a second call")

    def or_worse(self, other: Error) -> Error:
        """Return the greatest errors of two parts of a value that both agree."""
        return Error(
            max(self.ulp, other.ulp),
            max(self.absolute, other.absolute),
            max(self.relative, other.relative),
            max(self.part, other.part),
        )


def with_open_places(
    node: OpNode,
    inputs: Sequence[torch.Tensor],
    index: int,
    expected: torch.Tensor,
    got: torch.Tensor,
) -> torch.Tensor:
    """Return a result with another's values in the places that a call leaves as memory was."""
    if not may_leave(node.op_type, index) or expected.shape != got.shape:
        return expected
    values = {m.name: as_array(t) for m, t in zip(node.inputs, inputs, strict=True)}
    arguments = arguments_of(node, values.__getitem__, {})
    is_open = unwritten(node.op_type, index, arguments, expected.shape)
    return torch.where(torch.from_numpy(is_open).to(got.device), got, expected)


def same_bits(expected: torch.Tensor, got: torch.Tensor) -> Error:
    """Measure how far a tensor is from one that it must equal to the bit; NaN equals NaN.

    Example:
        >>> same_bits(torch.ones(2), torch.tensor([1.0, 1.5])).reason
        '1 of 2 values differ by up to 0.5'
    """
    difference = compare_tensors(expected, got)
    if difference.is_close:
        return Error()
    if expected.shape != got.shape or expected.dtype != got.dtype:
        return Error(part=np.inf, reason=difference.reason)
    first = as_array(expected.to_dense())
    error = within(first, as_array(got.to_dense()), np.zeros(first.shape))
    return Error(error.ulp, error.absolute, error.relative, np.inf, difference.reason)


def with_one_unit(bound: Array, expected: Array) -> Array:
    """Return a bound that leaves the last place of every number that is rounded to a kernel.

    Args:
        bound: How far each element may be off.
        expected: The elements.
    """
    if not is_inexact(expected.dtype):
        return bound
    with np.errstate(all="ignore"):
        return np.asarray(bound + np.nan_to_num(spacing(expected), posinf=0.0))


AT_A_TIME = 64
"""Elements whose terms are looked at together."""


def with_drift(meaning: Array, got: Array, bound: Array, drift: Callable[[Array], Array]) -> Array:
    """Return a bound that is wider where a kernel's result is out of it, up to where that is not.

    Args:
        meaning: What the denotation gives.
        got: What the kernel gave.
        bound: How far each element may be off.
        drift: Says how much more some elements may be off, by their places in one row.
    """
    wider = np.array(np.broadcast_to(bound, meaning.shape), "float64")
    with np.errstate(all="ignore"):
        flat, off = wider.reshape(-1), apart(meaning, got).reshape(-1)
    places = np.flatnonzero(off > flat)
    for start in range(0, len(places), AT_A_TIME):
        here = places[start : start + AT_A_TIME]
        flat[here] += drift(here)
        if np.any(off[here] > flat[here]):
            break
    return wider


def within(meaning: Array, got: Array, allowed: Array, *, subtracts: bool = True) -> Error:
    """Measure how far a kernel's result is from the denotation.

    NaN is as far from all else as anything can be, an infinity as what rounds to it. Where
    elements need not be equal, NaN may stand for an infinity, if kernels may subtract two on the
    way; and of a complex number only that some part is not finite is compared.

    Args:
        meaning: What the denotation gives.
        got: What the kernel gave.
        allowed: How far each element may be off.
        subtracts: Whether kernels may subtract two infinities on the way.

    Example:
        >>> within(np.float32([1, 2]), np.float32([1, 2.5]), np.float64([0.1, 0.1])).reason
        '1 of 2 values are off by up to 0.5, which is 5 times what is allowed'
    """
    if meaning.shape != got.shape or meaning.dtype != got.dtype:
        told, wanted = (f"{a.dtype} of shape {list(a.shape)}" for a in (got, meaning))
        return Error(part=np.inf, reason=f"it is {told}, and means {wanted}")
    if not is_inexact(meaning.dtype):
        return _exactly(meaning, got, allowed)
    bounds = np.broadcast_to(allowed, meaning.shape)
    flat = [np.reshape(array, -1) for array in (meaning, got, bounds)]
    measured = [
        _measured(*[array[start : start + AT_ONCE] for array in flat], subtracts=subtracts)
        for start in range(0, meaning.size, AT_ONCE)
    ]
    parts = [part for part in measured if part is not None]
    if not parts:
        return Error()
    ulp, off, relative, worst, _, size = map(float, np.max(parts, axis=0))
    wrong = sum(int(part[-2]) for part in parts)
    return Error(ulp, off, relative, worst, _too_much(worst, wrong, size, meaning.size))


def _measured(
    meaning: Array, got: Array, bound: Array, *, subtracts: bool
) -> tuple[float, ...] | None:
    """Measure some elements: the worst ulp, difference, relative one and part of the bound.

    Then how many are off by more than the bound, and by how much; None where all are equal.
    """
    with np.errstate(invalid="ignore"):
        other = ~same(meaning, got)
    units = spacing(meaning[other])
    first, second = widest(meaning[other]), widest(got[other])
    bound = bound[other]
    open_ones = np.zeros(first.shape, bool)
    if subtracts:
        open_ones |= np.isinf(first) & np.isnan(second) & (bound > 0)
    if is_complex(meaning.dtype):
        open_ones |= ~np.isfinite(first) & ~np.isfinite(second) & (bound > 0)
    if open_ones.all():
        return None
    first, second, bound, units = (part[~open_ones] for part in (first, second, bound, units))
    with np.errstate(all="ignore"):
        off = np.abs(first - second)
        off = np.where(np.isnan(off), np.inf, off)
        size, clipped = np.abs(first), off
        if not is_complex(meaning.dtype):
            edge = overflow_edge(meaning.dtype)
            clipped = np.abs(np.clip(first, -edge, edge) - np.clip(second, -edge, edge))
            clipped = np.where(np.isnan(clipped), np.inf, clipped)
        parts = np.where(bound > 0, clipped / bound, np.inf)
        parts = np.where(bound == np.inf, 0, parts)  # open: something overflows on the way
        relative = np.where(size > 0, off / size, np.inf)
        ulp = off / units
    relative = np.nan_to_num(relative, nan=np.inf, posinf=0)
    beyond = off[parts > 1]
    worst = [float(measure.max()) for measure in (ulp, off, relative, parts)]
    return (*worst, float(beyond.size), float(beyond.max(initial=0.0)))


def _too_much(worst: float, wrong: int, size: float, count: int) -> str:
    if not wrong:
        return ""
    if not np.isfinite(size):
        return f"{wrong} of {count} values differ: NaN or infinity is where the other has none"
    how = f"which is {worst:.3g} times what is allowed" if np.isfinite(worst) else "and must not"
    return f"{wrong} of {count} values are off by up to {size:.3g}, {how}"


def _exactly(meaning: Array, got: Array, allowed: Array) -> Error:
    """Compare integers, which are off only where numbers on the way to them may be."""
    wrong = meaning != got
    if np.any(allowed):
        wrong &= ~(np.abs(widest(meaning) - widest(got)) <= allowed)
    if not wrong.any():
        return Error()
    off = float(np.abs(widest(meaning[wrong]) - widest(got[wrong])).max())
    text = f"{int(wrong.sum())} of {meaning.size} values differ"
    return Error(absolute=max(off, 1.0), part=np.inf, reason=text)


def ties_resolved(
    arguments: Mapping[str, Any], mine: Array, theirs: Array, slack: Array | None = None
) -> Array:
    """Replace indices of the denotation by the kernel's where both choose equal elements.

    Of one row no element may be chosen twice.

    Args:
        arguments: What the operator took, by name.
        mine: The indices of the meaning.
        theirs: The indices of the kernel.
        slack: How far each element may be off: those within it of each other are equal.
    """
    if mine.shape != theirs.shape or not mine.size:
        return mine
    values, dim = np.atleast_1d(arguments["self"]), arguments.get("dim")
    first, second = np.atleast_1d(mine), np.atleast_1d(theirs)
    if dim is None and mine.size == 1:  # of all elements, or of the only row
        values, first, second = values.reshape(-1), first.reshape(-1), second.reshape(-1)
    if not isinstance(dim, int) or isinstance(dim, bool):
        dim = -1
    if first.ndim < values.ndim:
        first, second = np.expand_dims(first, dim), np.expand_dims(second, dim)
    size = values.shape[dim]
    inside = (second >= 0) & (second < size)
    chosen = [np.take_along_axis(values, np.clip(i, 0, size - 1), dim) for i in (first, second)]
    are_equal = same(*chosen)
    if slack is not None and slack.any():
        off = slack.reshape(values.shape)
        room = [np.take_along_axis(off, np.clip(i, 0, size - 1), dim) for i in (first, second)]
        are_equal |= np.abs(widest(chosen[0]) - widest(chosen[1])) <= room[0] + room[1]
    ordered = np.sort(second, dim)
    are_equal &= (np.diff(ordered, axis=dim) != 0).all(dim, keepdims=True)
    return np.where((are_equal & inside).reshape(mine.shape), theirs, mine)


def as_ordered(
    arguments: Mapping[str, Any],
    values: Array | None,
    indices: Array | None,
    arrays: Sequence[Array],
) -> list[Array]:
    """Bring arrays with an element for each that is chosen into the order that a kernel chose.

    Args:
        arguments: What ``topk`` took, by name.
        values: The elements that the kernel gave, if they are known.
        indices: Their indices, if they are known: these tell.
        arrays: In the order of the meaning; such as its values, indices, and bounds.

    Example:
        >>> arguments = {"self": np.float32([5, 1, 7]), "k": 2}
        >>> as_ordered(arguments, None, np.int64([0, 2]), [np.float32([7, 5]), np.int64([2, 0])])
        [array([5., 7.], dtype=float32), array([0, 2])]
    """
    given = np.atleast_1d(arguments["self"])
    place = axis(arguments.get("dim", -1), given.ndim)
    if indices is not None and indices.ndim == given.ndim:
        inside = np.clip(indices, 0, given.shape[place] - 1)
        values = np.take_along_axis(given, inside, place)
    if values is None or values.ndim != given.ndim:
        return [*arrays]
    order = in_order(values, place, descending=arguments.get("largest", True))
    places = np.argsort(order, axis=place)
    return [
        np.take_along_axis(array, places, place) if array.shape == places.shape else array
        for array in arrays
    ]
