"""What a piece of work costs, told by counts that are the same on every machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType


def calls_made(work: Callable[[], object]) -> int:
    """Count the functions that are called, of Python and of C."""
    count = 0

    def count_call(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(count_call)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def growth(work: Callable[[int], object], size: int) -> float:
    """Return how many times the calls of twice the size are those of the size: 2 where linear."""
    return calls_made(lambda: work(2 * size)) / calls_made(lambda: work(size))
