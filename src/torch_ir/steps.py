"""Long work: counted for those who wait for it, and without collections of garbage."""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias, TypeVar

from torch_ir.errors import InvalidIRError

T = TypeVar("T")
Listener: TypeAlias = Callable[[int, int], None]
"""Takes how many steps are done, and of how many."""

MAX_SECONDS = 10_000_000
"""Of a limit of time: some months."""

_LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def counting(listener: Listener) -> Generator[None]:
    """Let a listener hear of the steps of what runs inside."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def steps(items: Collection[T]) -> Iterator[T]:
    """Yield the items; a listener of :func:`counting` hears of each, but of no steps inside them.

    Example:
        >>> with counting(lambda done, total: print(f"{done}/{total}")):
        ...     found = [letter for letter in steps("ab")]
        0/2
        1/2
        2/2
    """
    listener = _LISTENER.get()
    if listener is None:
        yield from items
        return
    token = _LISTENER.set(None)
    try:
        for done, item in enumerate(items):
            listener(done, len(items))
            yield item
        listener(len(items), len(items))
    finally:
        _LISTENER.reset(token)


def told(done: int, total: int) -> None:
    """Tell a listener how many steps are done, where no loop says so."""
    if listener := _LISTENER.get():
        listener(done, total)


def require_seconds(seconds: float) -> None:
    """Require that a limit of time is one that clocks and queues take.

    Raises:
        InvalidIRError: It is negative, no number, or of years.

    Example:
        >>> require_seconds(60.0)
    """
    if not 0 <= seconds <= MAX_SECONDS:
        raise InvalidIRError(
            f"a limit of time is from 0 to {MAX_SECONDS:,} seconds, got {seconds}"
        )


@contextmanager
def uncollected() -> Generator[None]:
    """Put off collections of garbage: each looks at all objects, and graphs leave few cycles."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()
