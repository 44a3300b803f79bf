"""Axes of a tensor, from the numbers that name them."""

from __future__ import annotations

from collections.abc import Sequence

from torch_ir.errors import InvalidIRError, counted


def axis(dim: int, rank: int) -> int:
    """Return the axis, from 0, that ``dim`` means among ``rank``; negatives count from the end.

    A tensor without dimensions takes 0 and −1, as one of rank 1 would.

    Raises:
        InvalidIRError: There is no such axis.

    Example:
        >>> axis(-1, 3), axis(-1, 0)
        (2, 0)
    """
    bound = max(rank, 1)
    if not -bound <= dim < bound:
        raise InvalidIRError(f"a tensor of {counted(rank, 'dimension')} has no dimension {dim}")
    return dim % bound


def distinct_axes(dims: Sequence[int], rank: int) -> tuple[int, ...]:
    """Return the axes that ``dims`` mean, in their order; none for a tensor without dimensions.

    Raises:
        InvalidIRError: One does not exist or is named twice.
    """
    found = tuple(axis(dim, rank) for dim in dims)
    if len(set(found)) != len(found):
        raise InvalidIRError(f"dimensions {list(dims)} name one twice")
    return found if rank else ()


def reduced_axes(dims: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Return the axes to reduce: those named, or all where none is named.

    Raises:
        InvalidIRError: One does not exist or is named twice.

    Example:
        >>> reduced_axes(None, 2), reduced_axes([], 2), reduced_axes(-1, 2)
        ((0, 1), (0, 1), (1,))
    """
    named = (dims,) if isinstance(dims, int) else tuple(dims or ())
    return distinct_axes(named, rank) if named else tuple(range(rank))
