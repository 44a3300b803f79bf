"""The programs of a traced function, by the calls that they stand for."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from typing import Any, NamedTuple

from torch_ir.traced.call_key import Flat
from torch_ir.traced.entry import CacheEntry
from torch_ir.traced.guards.closure import Closure
from torch_ir.traced.guards.explain import Description, differences


class CacheInfo(NamedTuple):
    """How often a traced function found a program for a call.

    Attributes:
        hits: Calls that ran a program which was there.
        misses: Calls that were traced.
        maxsize: How many programs are kept.
        currsize: How many there are.
    """

    hits: int
    misses: int
    maxsize: int
    currsize: int


class ProgramCache:
    """Keeps the entries of a traced function, those used last before all others.

    Only :meth:`find` may be called without holding the turn.

    Args:
        maxsize: How many entries are kept.

    Attributes:
        turn: The lock of all that changes the cache.
        misses: How many calls were traced.
    """

    def __init__(self, maxsize: int):
        self.turn = threading.RLock()
        self.misses = 0
        self._maxsize = maxsize
        self._entries: OrderedDict[Any, list[CacheEntry]] = OrderedDict()
        self._hits = 0

    def find(self, key: Any, flat: Flat) -> CacheEntry | None:
        """Return the entry that fits a call as it is."""
        for entry in self._entries.get(key, ()):
            if entry.closure.guard.holds() and entry.fits(flat):
                self._hits += 1
                with contextlib.suppress(KeyError):  # another thread may have forgotten it
                    self._entries.move_to_end(key)
                return entry
        return None

    def move(self, key: Any, flat: Flat, closure: Closure) -> CacheEntry | None:
        """Return an entry whose guards match by value though the guarded objects changed."""
        entries = self._entries.get(key, [])
        for position, entry in enumerate(entries):
            if entry.closure.is_alike(closure):
                moved = entry.moved(closure, flat)
                if moved.fits(flat):
                    entries[position] = moved
                    self._hits += 1
                    return moved
        return None

    def peek(self, key: Any, flat: Flat, closure: Closure) -> CacheEntry | None:
        """Return the entry that fits a call by value, and count nothing."""
        for entry in self._entries.get(key, ()):
            if entry.closure.is_alike(closure) and entry.fits(flat):
                return entry
        return None

    def difference(self, call: Description) -> list[str]:
        """Return what tells a call from the closest one that was traced."""
        known = [entry.description for entries in self._entries.values() for entry in entries]
        if not known:
            return ["no call has been traced"]
        found = [differences(description, call) for description in reversed(known)]
        return min(found, key=len) or ["an object is another one"]

    def keep(self, key: Any, entry: CacheEntry) -> None:
        """Put an entry first, and forget those that have not been used for longest."""
        self._entries[key] = [entry, *self._entries.get(key, ())][: max(self._maxsize, 1)]
        self._entries.move_to_end(key)
        while len(self._entries) > 1 and self._size() > self._maxsize:
            self._entries.popitem(last=False)
        if self._maxsize == 0:
            self._entries.clear()

    def info(self) -> CacheInfo:
        """Return how often an entry was found."""
        with self.turn:
            return CacheInfo(self._hits, self.misses, self._maxsize, self._size())

    def clear(self) -> None:
        """Forget every entry."""
        with self.turn:
            self._entries.clear()
            self._hits = self.misses = 0

    def _size(self) -> int:
        return sum(map(len, self._entries.values()))
