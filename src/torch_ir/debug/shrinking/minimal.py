"""The smallest part of a list that still fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def minimal(items: list[T], fails: Callable[[list[T]], bool]) -> list[T]:
    """Return a part of a list that fails, none of whose elements can be left out.

    This is delta debugging: Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing
    Input, 2002.

    Args:
        items: What fails as a whole.
        fails: Says whether a part, in order and never empty, fails.

    Example:
        >>> minimal(list(range(10)), lambda part: {2, 7} <= set(part))
        [2, 7]
    """
    pieces = 2
    while len(items) > 1:
        size = -(-len(items) // pieces)
        chunks = [items[i : i + size] for i in range(0, len(items), size)]
        found = next((chunk for chunk in chunks if fails(chunk)), None)
        if found is not None:
            items, pieces = found, 2
            continue
        rests = (
            [item for other in chunks if other is not chunk for item in other] for chunk in chunks
        )
        rest = next((rest for rest in rests if len(chunks) > 2 and fails(rest)), None)
        if rest is not None:
            items, pieces = rest, max(pieces - 1, 2)
        elif size == 1:
            break
        else:
            pieces = min(len(items), pieces * 2)
    return items
