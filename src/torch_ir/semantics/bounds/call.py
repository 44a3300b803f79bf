"""The call of an operator and the parts that bounds are made of.

``u`` is half the distance from 1 to the next number of the type in which a kernel adds up: that of
the result, but float32 for 16-bit and narrower types. A rule states the error in that type; what
rounding it to the result's type adds is the same for all operators (:func:`rounding`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, log2, prod, sqrt
from typing import Any, TypeAlias, TypeVar

import ml_dtypes
import numpy as np

from torch_ir.semantics.dtypes import (
    Array,
    is_inexact,
    is_integer,
    real_of,
    widened,
    widest,
    working,
)
from torch_ir.semantics.numbers import flat
from torch_ir.semantics.registry import denotation

T = TypeVar("T")
Errors: TypeAlias = Sequence[Any]
"""For each result an array (or number) of errors, which broadcasts to it; None where 0."""
Rule: TypeAlias = "Callable[[BoundedCall], Errors]"

STREAM, BLOCK = 128, inf
"""Terms that reductions, and products of matrices, add one after the other before they combine
what they have: torch adds 4 vectors of at least 8 lanes in cascades, while libraries add the
blocks of a product one after the other."""
WALK = 1.5
"""How far a walk of one step after the other goes, in units of √n: of the greatest of many."""
LANES = 8
"""Numbers in a vector, whose errors are of either sign when they are added up."""
SUMS = 4
"""Sums on the way to a whole one, each half of the one after it, to which terms are added."""
ORDERED = 8
"""Parts of a row, one after the other, with roundings of their own."""
WALKED = 4
"""How far the walks of these parts go together, in units of the root of the squares of steps."""
EIGHTH = 1 / 8
"""How much of an element a sum's unit may be for roundings to be as often up as down."""


@dataclass(frozen=True)
class BoundedCall:
    """One call of an operator and what it means.

    Attributes:
        op_type: The exact overload.
        arguments: What the denotation took, by name.
        results: The arrays that it gave.
        accumulate: The type in which the kernel computes, if not the usual one.
    """

    op_type: str
    arguments: Mapping[str, Any]
    results: Sequence[Array]
    accumulate: np.dtype[Any] | None = None
    _wide: dict[str, Array] = field(default_factory=dict[str, Array], repr=False)

    def __getitem__(self, name: str) -> Any:
        """Return an argument; None where it is absent."""
        return self.arguments.get(name)

    @property
    def arrays(self) -> dict[str, Array]:
        """The arguments that are arrays, by name."""
        return {n: value for n, value in self.arguments.items() if isinstance(value, np.ndarray)}

    def asked(self, found: Sequence[T]) -> list[T]:
        """Return what is found of each gradient, less those that ``output_mask`` leaves out."""
        return [one for one, is_asked in zip(found, self["output_mask"], strict=True) if is_asked]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type in which the kernel computes the first floating-point result."""
        made = next((r.dtype for r in self.results if is_inexact(r.dtype)), np.dtype("float32"))
        return accumulated_in(made) if self.accumulate is None else self.accumulate

    @property
    def unit(self) -> float:
        """``u``: half a unit in the last place of 1, in the type computed in."""
        return float(ml_dtypes.finfo(self.dtype).eps) / 2

    @property
    def result_unit(self) -> float:
        """The same in the first result's own type, to which some kernels round on the way."""
        made = next((r.dtype for r in self.results if is_inexact(r.dtype)), self.dtype)
        return float(ml_dtypes.finfo(real_of(made)).eps) / 2

    def stepped(self, count: Any, terms: Any) -> Any:
        """Return what so many products, each rounded to the first result's own type, are off.

        Below the normal numbers of it that is half of the least one, however small the terms are.
        """
        made = next((r.dtype for r in self.results if is_inexact(r.dtype)), self.dtype)
        least = float(ml_dtypes.finfo(real_of(made)).smallest_subnormal) / 2
        return count * (self.result_unit * terms + least)

    def depth(self, length: float, block: float = STREAM, one_way: Any = 0.0) -> Any:
        """Return :func:`depth`; in float64 all roundings may go one way, whatever is added."""
        return depth(length, block, 1.0 if self.dtype == np.float64 else one_way)

    def depth_in_lanes(self, length: float) -> Any:
        """Return the depth of a sum by vectors, each lane of which adds one after the other."""
        return max(self.depth(length), WALK * sqrt(length) / LANES)

    def repeats(
        self,
        values: str | Array,
        axes: Sequence[int],
        *,
        zeros: bool = False,
        keepdims: bool = False,
    ) -> Any:
        """Return :func:`repeats` of an argument or a value; 0 in float64, where nothing asks."""
        if self.dtype == np.float64 or not axes:
            return 0.0
        array = self.arguments[values] if isinstance(values, str) else values
        share = repeats(array, axes, zeros=zeros)
        return np.expand_dims(share, tuple(axes)) if keepdims else share

    def drift(
        self, terms: Array, axes: Sequence[int], unit: float = 0.0, *, keepdims: bool = True
    ) -> Array:
        """Return how far roundings of a row's sum go one way, in units; 0 if they only walk.

        A sum is a multiple of its own unit, so that a term adds to it what it is in whole units:
        nothing where it is less than half of one, and of terms alike each time as much too
        little, or too much. Kernels come to the sum through smaller ones, those of its beginning
        and of their lanes; parts of a row do not make up for each other, as it may be sorted.

        Args:
            terms: What is added, with signs.
            axes: The axes of a row.
            unit: That of the type in which it is added; of the one computed in by default.
            keepdims: Whether the result has these axes, of one element each.
        """
        axes, unit = tuple(axes), unit or self.unit
        total = np.sum(np.abs(terms), axis=axes, keepdims=True)
        whole = np.ldexp(unit, np.frexp(np.where(np.isfinite(total), total, 0))[1])
        parts = np.asarray(terms / whole)
        if not np.isfinite(total).all():
            parts = np.nan_to_num(parts, posinf=0.0, neginf=0.0)
        most, lost = np.zeros(total.shape), np.empty_like(parts)
        for halvings in range(SUMS):
            np.rint(parts, out=lost)
            lost -= parts
            added = _added_in_order(lost, axes)
            walked = WALKED * np.sqrt(np.sum(np.square(lost, out=lost), axis=axes, keepdims=True))
            most = np.maximum(most, np.where(added > walked, added, 0.0) / 2.0**halvings)
            parts *= 2
        found = np.nan_to_num(most * (whole / unit) / total)
        return found if keepdims else np.squeeze(found, axes)

    def one_way(self, share: Any, count: Any) -> Any:
        """Return which part of the roundings of so many additions may go one way.

        In the result's own type: of elements that are equal a share, and all where a sum may be
        so large that most of an element is less than half a unit in its last place. All in
        float64, where nothing asks which are equal.
        """
        if self.dtype == np.float64:
            return 1.0
        return np.where(np.asarray(count) * self.result_unit > EIGHTH, 1.0, share)

    @property
    def is_narrow(self) -> bool:
        """Whether results are rounded to a type narrower than the one computed in."""
        return self.result_unit > self.unit

    def rounds_to(self, dtype: np.dtype[Any]) -> bool:
        """Return whether a type is narrower than the one computed in."""
        return float(ml_dtypes.finfo(real_of(dtype)).eps) / 2 > self.unit

    def size(self, name: str) -> Array:
        """Return the moduli of an argument in float64."""
        return moduli(self.arguments[name])

    def wide(self, name: str) -> Array:
        """Return an argument in float64 or complex128, integers and truth values too."""
        if name not in self._wide:
            value = with_arrays(widened, self.arguments[name])
            self._wide[name] = widest(value) if isinstance(value, np.ndarray) else value
        return self._wide[name]

    def meant(self, op_type: str | None = None, /, **changed: Any) -> list[Array]:
        """Compute the results, or another operator's, in float64 for arguments partly replaced."""
        kept = {n: with_arrays(widened, a) for n, a in self.arguments.items() if n not in changed}
        arguments = {**kept, **changed}
        dtype = arguments.get("dtype")
        if isinstance(dtype, np.dtype) and is_inexact(dtype):
            arguments["dtype"] = working(dtype)
        given = denotation(op_type or self.op_type).function(**arguments)
        return [part for part in flat(given) if isinstance(part, np.ndarray)]

    def terms(self) -> list[Array]:
        """Compute Σ |terms| of what is linear in each argument: its value at their moduli."""
        absolute = {name: _absolute(name, value) for name, value in self.arguments.items()}
        return [moduli(part) for part in self.meant(**absolute)]

    def opened(self, error: Any, magnitude: Any, dtype: np.dtype[Any] | None = None) -> Array:
        """Return the error, infinite where what is added up overflows in the type computed in.

        Or in another type, to which kernels round on the way. What adds up to its largest number
        may overflow: 32800 + 16 + 32688 does in float16, where the first sum is rounded up.
        """
        largest = float(ml_dtypes.finfo(real_of(dtype or self.dtype)).max)
        return np.where(np.abs(magnitude) >= largest, np.inf, error)


def _added_in_order(values: Array, axes: tuple[int, ...]) -> Array:
    """The moduli of the sums of a row's parts in order, added up."""
    first = max(axes, key=lambda axis: values.shape[axis] > 1, default=None)
    if first is None or not values.size:
        return np.abs(np.sum(values, axis=axes, keepdims=True))
    rest = np.sum(values, axis=tuple(a for a in axes if a != first), keepdims=True)
    starts = np.unique(np.arange(ORDERED) * values.shape[first] // ORDERED)
    return np.sum(np.abs(np.add.reduceat(rest, starts, axis=first)), axis=first, keepdims=True)


def accumulated_in(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the real type in which kernels compute: float32 for narrower types."""
    real = real_of(dtype)
    return np.dtype("float32") if real.itemsize < 4 else real


def least_normal(dtype: np.dtype[Any]) -> float:
    """Return the least normal number of a type."""
    return float(ml_dtypes.finfo(real_of(dtype)).smallest_normal)


def moduli(value: Any) -> Array:
    """Return the moduli of an array or number in float64."""
    # of integers in float64: the least one has no modulus in its type
    return np.asarray(np.abs(widest(np.asarray(value))))


def with_arrays(change: Callable[[Array], Array], value: Any) -> Any:
    """Return an argument with each array changed, in lists too; all else unchanged."""
    if isinstance(value, list | tuple):
        return type(value)(with_arrays(change, item) for item in value)
    return change(value) if isinstance(value, np.ndarray) else value


def _absolute(name: str, value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_absolute(name, item) for item in value)
    if isinstance(value, np.ndarray):
        if is_inexact(value.dtype):
            return np.abs(widened(value))
        if not is_integer(value.dtype) or name != "self" or value.dtype.kind == "u":
            return value
        return np.abs(np.maximum(value, -np.iinfo(value.dtype).max))
    scales = name in ("alpha", "beta", "value") or isinstance(value, float | complex)
    return abs(value) if scales and not isinstance(value, bool) else value


def depth(length: Any, block: float = STREAM, one_way: Any = 0.0) -> Any:
    """Return how the rounding errors of a sum of so many terms grow, in units of Σ |terms|.

    Within a block they add up like a random walk; blocks are combined in pairs. Where terms are
    equal, each rounding may go the way of the last, by half a unit of the sum so far.

    Args:
        length: How many terms are added.
        block: How many of these one after the other.
        one_way: The part of the terms that are equal to others (:func:`repeats`).

    Example:
        >>> depth(100), depth(131072), depth(100, one_way=0.5)
        (10.0, 21.31370849898476, 60.0)
    """
    if block == inf:
        return WALK * np.sqrt(length) + one_way * length
    walk = min(sqrt(length), sqrt(block)) + log2(max(length / block, 1))
    return walk + one_way * min(length, block)


def repeats(values: Array, axes: Sequence[int], *, zeros: bool = False) -> Array:
    """Return which part of each row's elements the row has more than once.

    Args:
        values: The operand.
        axes: The axes of a row; of a long one, elements at regular places are looked at.
        zeros: Whether zeros count, which add nothing to a sum, but to a variance.

    Returns:
        An array without these axes, from 0 to 1.

    Example:
        >>> import numpy as np
        >>> repeats(np.array([[1.0, 2.0, 3.0], [5.0, 5.0, 5.0]]), [1])
        array([0., 1.])
    """
    most = max(round(LOOKED_AT ** (1 / max(len(axes), 1))), 2)
    for axis in axes:
        step = max(values.shape[axis] // most, 1)
        values = values[(slice(None),) * (axis % values.ndim) + (slice(None, None, step),)]
    of_row = {axis % values.ndim for axis in axes}
    kept = [axis for axis in range(values.ndim) if axis not in of_row]
    if not values.size:
        return np.zeros([values.shape[axis] for axis in kept])
    rows = values.transpose(*kept, *of_row).reshape(*(values.shape[axis] for axis in kept), -1)
    count = rows.shape[-1]
    if count <= SHORT:  # a sort of each row takes longer
        columns = [rows[..., place] for place in range(count)]
        same = np.zeros(rows.shape[:-1])
        for place, column in enumerate(columns):
            is_again = np.zeros(column.shape, bool)
            for other in columns[:place]:
                is_again |= column == other
            same += is_again & (zeros | (column != 0))
        return np.asarray(same / max(count - 1, 1))
    rows = np.sort(rows, axis=-1)
    is_same = (rows[..., 1:] == rows[..., :-1]) & (zeros | (rows[..., 1:] != 0))
    return np.asarray(np.sum(is_same, axis=-1) / (count - 1))


LOOKED_AT, SHORT = 64, 8
"""Elements of a row that are looked at for equal ones, and how many are compared in pairs."""


def length(call: BoundedCall) -> int:
    """Count the terms that a result of a reduction has: the elements of its operand to one."""
    sizes = [value.size for value in call.arrays.values()]
    least = min((result.size for result in call.results if result.size), default=1)
    return max(max(sizes, default=1) // least, 1)


def length_along(values: Array, axes: tuple[int, ...]) -> int:
    """Count the elements that a reduction over axes takes together, at least one."""
    return max(prod(values.shape[place] for place in axes), 1)


def spacing(values: Array) -> Array:
    """Return one unit in the last place of each value's modulus, in float64.

    Of what is less than twice the least normal number (of float32, for narrower types), all of
    that: vector kernels may make it 0.
    """
    return _units(moduli(values), values.dtype)


def _units(sizes: Array, dtype: np.dtype[Any]) -> Array:
    info: Any = ml_dtypes.finfo(real_of(dtype))
    normal = least_normal(accumulated_in(dtype))
    _, exponents = np.frexp(np.where(np.isfinite(sizes), sizes, 0))
    least = float(info.smallest_subnormal)
    units = np.maximum(np.ldexp(1.0, exponents - 1 - info.nmant), least)
    return np.where(sizes < 2 * normal, max(2 * normal, least), units)


def rounding(values: Array, *, narrow: bool, error: Any = 0.0) -> Array:
    """Return what rounding adds: half a unit in the last place for the meaning's.

    A kernel that rounds to a narrower type than it computes in may come to lie on the other side
    of a tie: half a unit more, of what it computed, which its error may bring beyond a power of
    2. Below the least normal numbers all of these.

    Args:
        values: What the meaning gives.
        narrow: Whether the kernel rounds to the type of values from a wider one.
        error: How far what it rounds may be from the meaning.
    """
    units = spacing(values)
    if narrow:
        return (units + _units(moduli(values) + error, values.dtype)) / 2
    normal = least_normal(accumulated_in(values.dtype))
    return np.where(units > 2 * normal, units / 2, units)
