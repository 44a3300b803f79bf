"""A value that a node made beside what it may be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from torch_ir.debug.reference.tolerance_check import Error, with_drift, within
from torch_ir.semantics.dtypes import Array
from torch_ir.semantics.spread import LOOSE

OPEN = "its values are open"

Drift: TypeAlias = Callable[[Array], Array]


@dataclass(frozen=True, slots=True)
class Allowance:
    """A value that a node made, and what it may be.

    Attributes:
        value: Its name; ``written x`` for what the node left in its input ``x``.
        expected: What it means.
        got: What it is.
        bound: How far each element may be off.
        share: Which part of the value that is, where several operators make it.
        subtracts: Whether kernels may subtract infinities on the way to it.
        is_open: Whether some elements are what was in memory; their bound is infinite.
        chosen: The elements that kernels may choose, in a value that is compared with its meaning
            alone, as two of them choose differently; None where nothing is to choose.
        reason: Why they may.
        drift: Says what single elements may be off besides, by their places in one row; asked of
            those that are off by more.
        unordered: The elements that follow from the order of writes to one place, if some do.
        is_relation: Whether these are the sides of an equation that holds for the value, not the
            value: of the factors of a matrix, the matrix and their product.
    """

    value: str
    expected: Array
    got: Array
    bound: Array
    share: float = 0.0
    subtracts: bool = True
    is_open: bool = False
    chosen: Array | None = None
    reason: str = OPEN
    drift: Drift | None = None
    unordered: Array | None = None
    is_relation: bool = False

    def off(self, expected: Array, bound: Array) -> Error:
        """Measure how far the value is from what a kernel may give, as a part of a bound."""
        found = within(expected, self.got, bound, subtracts=self.subtracts)
        if not found.reason or self.drift is None or expected.shape != self.got.shape:
            return found
        wider = with_drift(expected, self.got, bound, self.drift)
        return within(expected, self.got, wider, subtracts=self.subtracts)

    def in_its_order(self, other: Array) -> Array:
        """Return another value with what this one means where the order of writes decides."""
        if self.unordered is None or other.shape != self.expected.shape:
            return other
        return np.where(self.unordered, self.expected, other)

    @property
    def looseness(self) -> str:
        """Why nothing can be said of the value, whatever it is; empty if something can."""
        may_be = self.is_open or self.share > LOOSE or np.any(self.chosen)
        return self.error(self.bound).loose if may_be else ""

    def error(self, bound: Array) -> Error:
        """Measure how far the value is off, as a part of a bound.

        What is within so wide a bound that anything is, is not said to agree.
        """
        found = self.off(self.expected, bound)
        if found.reason and self.chosen is not None and self.chosen.any():
            found = self.off(self.expected, np.where(self.chosen, np.inf, bound))
            return found if found.reason else replace(found, loose=self.reason)
        if found.reason:
            return found
        if self.is_open:
            return replace(found, loose=OPEN)
        if found.is_none or self.share <= LOOSE:
            return found
        text = f"what its operators may round is more than {LOOSE} of the value"
        return replace(found, loose=text)
