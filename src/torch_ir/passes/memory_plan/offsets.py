"""Offsets in one arena for pieces of memory that are needed at different times."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import accumulate
from typing import TypeAlias

from torch_ir.errors import PassError


@dataclass(frozen=True, slots=True, order=True)
class Piece:
    """Memory that is needed for a time.

    Attributes:
        name: A name, unique among the pieces of an arena.
        size: Bytes.
        birth: The first step in which it is needed.
        death: The last one.

    Raises:
        PassError: The size is negative, or the last step comes before the first.
    """

    name: str
    size: int
    birth: int
    death: int

    def __post_init__(self) -> None:
        if self.size < 0 or self.death < self.birth:
            raise PassError(
                f"the piece '{self.name}' has {self.size} bytes from step {self.birth} to "
                f"{self.death}",
                remedy="Give a size that is not negative, and a last step not before the first.",
            )


Offsets: TypeAlias = Mapping[str, int]
"""The first byte of each piece, by its name."""


def place(pieces: Iterable[Piece], alignment: int) -> Offsets:
    """Choose offsets at which no two pieces that are needed at one time overlap.

    Pieces are placed one by one, each in the smallest gap in which it fits. That is done twice,
    the largest first and the earliest first, and the smaller arena is the result. The order in
    which the pieces are given does not matter.

    Args:
        pieces: The pieces.
        alignment: What every offset is a multiple of.

    Example:
        >>> pieces = [Piece("a", 100, 0, 1), Piece("b", 40, 1, 2), Piece("c", 100, 2, 3)]
        >>> dict(sorted(place(pieces, 16).items()))
        {'a': 0, 'b': 112, 'c': 0}
    """
    given = list(pieces)
    _, births, ends = steps_of(given)  # times at which nothing begins make no difference
    given = [
        replace(piece, birth=birth, death=end - 1)
        for piece, birth, end in zip(given, births, ends, strict=True)
    ]
    sizes = {piece.name: piece.size for piece in given}
    orders: tuple[Callable[[Piece], object], ...] = (
        lambda piece: (-piece.size, piece.birth, piece.death, piece.name),
        lambda piece: (piece.birth, -piece.size, piece.death, piece.name),
    )
    way = _placed_in_a_crowd if _is_crowded(given, alignment) else _placed
    plans = [way(sorted(given, key=order), alignment) for order in orders]  # type: ignore[arg-type]  # tuples of one form compare
    return min(plans, key=lambda plan: arena_size(plan, sizes))


def arena_size(offsets: Offsets, sizes: Mapping[str, int]) -> int:
    """Return the bytes of the arena."""
    return max((offset + sizes[name] for name, offset in offsets.items()), default=0)


def most_at_once(pieces: Iterable[Piece]) -> int:
    """Return the most bytes that are needed at one time: no arena is smaller.

    Example:
        >>> most_at_once([Piece("a", 8, 0, 1), Piece("b", 8, 1, 2), Piece("c", 4, 2, 2)])
        16
    """
    return max([live for live, _ in _profile(pieces)], default=0)


def least_arena(pieces: Iterable[Piece], alignment: int) -> int:
    """Return the bytes that pieces take at least, whose offsets are multiples of an alignment.

    Of those that are needed at one time, each takes its size rounded up, but the last of them:
    at best the one that is rounded up most.

    Example:
        >>> least_arena([Piece("a", 100, 0, 1), Piece("b", 40, 1, 2)], 64)
        164
    """
    least = taken = 0
    open_: list[tuple[int, int]] = []  # what rounding adds, negated, and the last step
    ends: list[tuple[int, int]] = []
    for piece in sorted(pieces, key=lambda piece: piece.birth):
        rounded = -(-piece.size // alignment) * alignment
        while ends and ends[0][0] < piece.birth:
            taken -= heappop(ends)[1]
        while open_ and open_[0][1] < piece.birth:
            heappop(open_)
        heappush(open_, (piece.size - rounded, piece.death))
        heappush(ends, (piece.death, rounded))
        taken += rounded
        least = max(least, taken + open_[0][0])
    return least


def busiest(pieces: Iterable[Piece]) -> int:
    """Return the first time at which most bytes are needed.

    Example:
        >>> busiest([Piece("a", 8, 0, 1), Piece("b", 8, 1, 2)])
        1
    """
    return -max([(live, -time) for live, time in _profile(pieces)], default=(0, 0))[1]


def _profile(pieces: Iterable[Piece]) -> Iterator[tuple[int, int]]:
    """Yield the bytes that are needed from each time on at which that changes."""
    changes: dict[int, int] = {}
    for piece in pieces:
        changes[piece.birth] = changes.get(piece.birth, 0) + piece.size
        changes[piece.death + 1] = changes.get(piece.death + 1, 0) - piece.size
    times = sorted(changes)
    yield from zip(accumulate(changes[time] for time in times), times, strict=True)


def steps_of(pieces: Sequence[Piece]) -> tuple[int, list[int], list[int]]:
    """Return the number of times between two events, and the first and the end of each piece.

    Example:
        >>> steps_of([Piece("a", 8, 0, 500), Piece("b", 8, 90, 90), Piece("c", 8, 95, 99)])
        (5, [0, 1, 3], [5, 2, 4])
    """
    times = sorted({time for piece in pieces for time in (piece.birth, piece.death + 1)})
    at = {time: index for index, time in enumerate(times)}
    births = [at[piece.birth] for piece in pieces]
    return max(len(times) - 1, 0), births, [at[piece.death + 1] for piece in pieces]


def overlapping(pieces: Iterable[Piece], offsets: Offsets) -> Iterator[tuple[str, str]]:
    """Yield the pairs of pieces that are needed at one time and share a byte.

    It knows nothing of how offsets are found: pieces come and go in the order of time, and each
    that comes is compared with its neighbors.

    Example:
        >>> pieces = [Piece("a", 8, 0, 1), Piece("b", 8, 1, 2)]
        >>> list(overlapping(pieces, {"a": 0, "b": 4}))
        [('a', 'b')]
        >>> list(overlapping(pieces, {"a": 0, "b": 8}))
        []
    """
    live: list[tuple[int, int, str]] = []  # offset, end, name; sorted
    events = [
        event
        for piece in pieces
        if piece.size
        for event in ((piece.birth, 1, piece), (piece.death + 1, 0, piece))
    ]
    for _, comes, piece in sorted(events):
        start = offsets[piece.name]
        item = (start, start + piece.size, piece.name)
        if not comes:
            live.remove(item)
            continue
        at = bisect_left(live, item)
        first = at
        while first and live[first - 1][1] > start:
            first -= 1
        last = at
        while last < len(live) and live[last][0] < item[1]:
            last += 1
        yield from ((other[2], piece.name) for other in live[first:last])
        insort(live, item)


# -- placing --------------------------------------------------------------------------------------


def _placed(pieces: Sequence[Piece], alignment: int) -> Offsets:
    timeline = _Timeline(max((piece.death for piece in pieces), default=0) + 1)
    offsets: dict[str, int] = {}
    for piece in pieces:
        if not piece.size:
            offsets[piece.name] = 0
            continue
        taken = sorted((offsets[other.name], other.size) for other in timeline.needed_with(piece))
        offsets[piece.name] = _best_gap(taken, piece.size, alignment)
        timeline.add(piece)
    return offsets


def _best_gap(taken: Iterable[tuple[int, int]], size: int, alignment: int) -> int:
    """The start of the smallest gap that fits, or the end of all that is taken."""
    best: tuple[int, int] | None = None
    free = 0
    for offset, other in taken:
        gap = offset - free
        if gap >= size and (best is None or gap < best[0]):
            best = gap, free
        free = max(free, -(-(offset + other) // alignment) * alignment)
    return free if best is None else best[1]


_CROWD = 64
"""Where a piece meets fewer others, they are looked at one by one."""


def _is_crowded(pieces: Sequence[Piece], alignment: int) -> bool:
    """Whether pieces meet so many others that arrays of all of them are faster."""
    largest = sum(piece.size + alignment for piece in pieces)
    return largest < 1 << 62 and meetings(pieces) > max(_CROWD, len(pieces) / _CROWD)


def meetings(pieces: Sequence[Piece]) -> float:
    """Return how many pieces, itself among them, a piece is needed with, in the mean.

    Example:
        >>> meetings([Piece("a", 8, 0, 1), Piece("b", 8, 1, 2), Piece("c", 4, 3, 3)])
        1.6666666666666667
    """
    births = sorted(piece.birth for piece in pieces)
    deaths = sorted(piece.death for piece in pieces)
    met = [bisect_right(births, p.death) - bisect_left(deaths, p.birth) for p in pieces]
    return sum(met) / max(len(pieces), 1)


def _placed_in_a_crowd(pieces: Sequence[Piece], alignment: int) -> Offsets:
    """The offsets of :func:`_placed`, where most pieces meet many others."""
    import numpy as np  # as arenas of so many pieces are rare

    offsets = {piece.name: 0 for piece in pieces}
    solid = [piece for piece in pieces if piece.size]
    placed = np.zeros((4, len(solid)), np.int64)  # offset, end, birth and death; by offset
    for count, piece in enumerate(solid):
        starts, ends, births, deaths = placed[:, :count]
        met = (births <= piece.death) & (deaths >= piece.birth)
        free = np.maximum.accumulate(np.append(0, ends[met]))
        gaps = starts[met] - free[:-1]
        gaps[gaps < piece.size] = 1 << 62
        best = int(gaps.argmin()) if len(gaps) else 0
        offset = int(free[best] if len(gaps) and gaps[best] < 1 << 62 else free[-1])
        end = -(-(offset + piece.size) // alignment) * alignment
        at = int(np.searchsorted(starts, offset))
        placed[:, at + 1 : count + 1] = placed[:, at:count]
        placed[:, at] = offset, end, piece.birth, piece.death
        offsets[piece.name] = offset
    return offsets


class _Timeline:
    """Pieces by the steps in which they are needed."""

    def __init__(self, steps: int):
        self._leaves = 1
        while self._leaves < steps:
            self._leaves *= 2
        self._over: list[list[Piece]] = [[] for _ in range(2 * self._leaves)]
        self._births: list[tuple[int, str]] = []
        self._by_name: dict[str, Piece] = {}

    def add(self, piece: Piece) -> None:
        insort(self._births, (piece.birth, piece.name))
        self._by_name[piece.name] = piece
        low, high = piece.birth + self._leaves, piece.death + self._leaves + 1
        while low < high:
            if low & 1:
                self._over[low].append(piece)
                low += 1
            if high & 1:
                high -= 1
                self._over[high].append(piece)
            low //= 2
            high //= 2

    def needed_with(self, piece: Piece) -> Iterator[Piece]:
        """The pieces that are needed at a time at which this one is."""
        step = piece.birth + self._leaves
        while step:  # those that are needed when it begins
            yield from self._over[step]
            step //= 2
        first = bisect_right(self._births, (piece.birth, "\U0010ffff"))
        last = bisect_right(self._births, (piece.death, "\U0010ffff"))
        yield from (self._by_name[name] for _, name in self._births[first:last])
