"""Memory after a write to a tensor several of whose elements are one place in it.

An operator means a value for each element. Where those of one place are not the same, it depends
on how the operator works what the place holds in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from torch_ir.infer.storage import elements_are_apart
from torch_ir.ir import Mutation
from torch_ir.semantics.dtypes import Array, is_inexact
from torch_ir.semantics.numbers import same


def settle_repeated(
    mutations: Sequence[Mutation],
    left: Mapping[str, tuple[str, torch.Tensor]],
    held: Mapping[str, Array],
    told: Sequence[dict[str, Any]],
    again: Callable[[Mapping[str, Array]], Mapping[str, Any]],
) -> dict[str, Array]:
    """Replace values that are written where several elements are one place by what stands there.

    Args:
        mutations: What is written, and the values.
        left: The tensors that are written, with their names outside.
        held: What they held.
        told: The values, and how far they may be off; both are changed.
        again: What the values are if tensors held something else.

    Returns:
        Which elements depend on the order of writes, by value.
    """
    found: dict[str, Array] = {}
    made = dict(told[0])
    for mutation in mutations:
        target, name = mutation.target, mutation.value.name
        if target not in left or np.shape(made[name]) != held[target].shape:
            continue

        def after(other: Array, target: str = target, name: str = name) -> Array:
            if other is held[target]:
                return made[name]
            with np.errstate(all="ignore"):
                return again({target: other})[name]

        places = _places(left[target][1], held[target], after)
        if places is not None:
            found[name] = places.is_open
            for values in told:
                whole = np.broadcast_to(values[name], places.source.shape)
                values[name] = whole.ravel()[places.source]
    return found


class _Places(NamedTuple):
    """What a tensor holds after a write, element by element.

    Attributes:
        source: The element of the operator's result that stands there, counted in row-major order.
        is_open: Whether it depends on the order in which a kernel writes what stands there.
    """

    source: Array
    is_open: Array


def _places(
    written: torch.Tensor, before: Array, after: Callable[[Array], Array]
) -> _Places | None:
    """Return what a tensor holds after a write; None where each element has a place of its own.

    A kernel may leave elements alone, and write to others what does not depend on what was there:
    such a write holds whatever the order. So does one that gives the same again if it is repeated.

    Args:
        written: The tensor that is written.
        before: What it held.
        after: What the operator means, given what the tensor holds.
    """
    if before.shape != written.shape or elements_are_apart(written.shape, written.stride()):
        return None
    places = np.zeros((), np.int64)
    for size, stride in zip(written.shape, written.stride(), strict=True):
        places = np.add.outer(places, np.arange(size) * stride)
    _, place = np.unique(places.ravel(), return_inverse=True)
    made, other = after(before), _other(before)
    moved = after(other)
    is_fixed = same(made, moved).ravel()
    is_kept = (same(made, before) & same(moved, other)).ravel() & ~is_fixed
    source, differs = _agreed(made, place, is_fixed)
    alike, differs_alike = _agreed(made, place, np.ones_like(is_fixed))
    differs[place[~(is_fixed | is_kept)]] = True
    differs_alike[place[~same(after(made), made).ravel()]] = True
    found = np.where(differs, alike, source)[place]
    own = np.arange(found.size)
    shape = before.shape
    is_open = (differs & differs_alike)[place].reshape(shape)
    return _Places(np.where(found < 0, own, found).reshape(shape), is_open)


def _agreed(values: Array, place: Array, which: Array) -> tuple[Array, Array]:
    """For each place, an element there out of some of them, or -1; and whether two differ."""
    chosen = np.full(place.max(initial=-1) + 1, -1)
    (those,) = np.nonzero(which)
    chosen[place[those]] = those
    differs = np.zeros(chosen.shape, bool)
    flat = values.ravel()
    differs[place[those[~same(flat[those], flat[chosen[place[those]]])]]] = True
    return chosen, differs


def _other(values: Array) -> Array:
    """Other values than those given, in sign and size: equal ones become equal ones."""
    if not is_inexact(values.dtype):
        return ~values
    with np.errstate(all="ignore"):
        other = np.where(np.real(values) > 0, -2 * values - 1, 1 - 2 * values)
        return np.where(values == values, other, 1).astype(values.dtype)
