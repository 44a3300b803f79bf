"""Long work: counted for those who wait for it, and without collections of garbage."""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias, TypeVar

T = TypeVar("T")
Listener: TypeAlias = Callable[[int, int], None]
"""Takes how many steps are done, and of how many."""

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
