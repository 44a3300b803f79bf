"""Padding with elements of the tensor itself.

``padding`` names the elements to add before and after each axis, from the last axis on; a
negative number takes elements away. Data moves; no dtype changes anything.

Source: torch.nn.functional.pad and its modes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.dtypes import Array
from torch_ir.semantics.operators.joining import constant_pad_nd
from torch_ir.semantics.registry import denotes

Rule = Callable[[Array, int], Array]
"""From positions, of which 0 is the first element's, and a size to the elements to take."""


def _ends(padding: Sequence[int], rank: int) -> list[tuple[int, int, int]]:
    """Axis (from the end), elements before, elements after."""
    if len(padding) % 2 or len(padding) > 2 * rank:
        raise InvalidIRError(f"padding {list(padding)} does not pair with {rank} axes")
    pairs = zip(padding[::2], padding[1::2], strict=True)
    return [(-1 - place, before, after) for place, (before, after) in enumerate(pairs)]


def _taken(values: Array, padding: Sequence[int], rule: Rule) -> Array:
    """The elements that the rule names along each padded axis.

    Raises:
        InvalidIRError: Nothing is left of an axis, or an axis other than the batch is empty.
    """
    rank = len(padding) // 2
    if values.ndim not in (rank + 1, rank + 2) or 0 in values.shape[-rank - 1 :]:
        raise InvalidIRError(f"padding {list(padding)} is not for shape {list(values.shape)}")
    for axis, before, after in _ends(padding, values.ndim):
        size = values.shape[axis]
        if before + size + after < 1:
            raise InvalidIRError(f"an axis of {size} cannot be padded by {before} and {after}")
        values = values.take(rule(np.arange(-before, size + after), size), axis)
    return values


def _mirrored(positions: Array, size: int) -> Array:
    return size - 1 - np.abs(size - 1 - np.abs(positions))


def _nearest(positions: Array, size: int) -> Array:
    return np.clip(positions, 0, size - 1)


@denotes(
    "aten.reflection_pad1d.default",
    "aten.reflection_pad2d.default",
    "aten.reflection_pad3d.default",
)
def reflection_pad(self: Array, padding: Sequence[int]) -> Array:
    """Mirror the tensor at its first and last elements, which are not repeated.

    With size n, element -i is element i, and n - 1 + i is n - 1 - i.
    Shapes: [*, size] → [*, before + size + after].
    """
    for axis, before, after in _ends(padding, self.ndim):
        if max(before, after) >= self.shape[axis]:
            size = self.shape[axis]
            raise InvalidIRError(f"an axis of {size} reflects no {before} and {after} elements")
    return _taken(self, padding, _mirrored)


@denotes(
    "aten.replication_pad1d.default",
    "aten.replication_pad2d.default",
    "aten.replication_pad3d.default",
)
def replication_pad(self: Array, padding: Sequence[int]) -> Array:
    """Repeat the first and the last element of each axis.

    Shapes: [*, size] → [*, before + size + after].
    """
    return _taken(self, padding, _nearest)


@denotes("aten._pad_circular.default")
def pad_circular(self: Array, pad: Sequence[int]) -> Array:
    """Go on at the other end: element i is element i mod size.

    What negative numbers take away is taken away first.
    """
    values = constant_pad_nd(self, [min(number, 0) for number in pad])
    for axis, before, after in _ends(pad, self.ndim):
        if max(before, after) > self.shape[axis]:
            size = self.shape[axis]
            raise InvalidIRError(f"an axis of {size} goes not around {before} and {after}")
        size = values.shape[axis]
        positions = np.arange(-max(before, 0), size + max(after, 0))
        values = values.take(positions % max(size, 1), axis)
    return values


@denotes("aten.pad.default")
def pad(
    self: Array, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Array:
    """Pad with a number ("constant", 0 if None), or as one of the functions above."""
    if mode == "constant":
        return constant_pad_nd(self, pad, 0 if value is None else value)
    rules: dict[str, Callable[[Array, Sequence[int]], Array]] = {
        "reflect": reflection_pad,
        "replicate": replication_pad,
        "circular": pad_circular,
    }
    if mode not in rules:
        raise InvalidIRError(f"no padding mode is called {mode!r}", remedy=f"Use {list(rules)}.")
    return rules[mode](self, pad)
