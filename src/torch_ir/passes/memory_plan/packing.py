"""Offsets within a capacity: a search for the arenas that best fit cannot make small enough.

Every piece is pushed down until it rests on another or on the floor, as in canonical solutions of
MiniMalloc (Moffitt, ASPLOS 2023). The search asks at one step of time after another, the step with
the fewest answers first, which piece comes next above what lies there. A dead end names the placed
pieces that it depends on, and the search goes back to the last of these (conflict-directed
backjumping; Prosser 1993). It begins anew after a number of places (Luby, Sinclair, Zuckerman
1993), with another order of preference, mostly one that is like the orders that came far.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, TypeAlias

from torch_ir.errors import PassError

if TYPE_CHECKING:
    import numpy as np

    Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

from torch_ir.passes.memory_plan.offsets import (
    Offsets,
    Piece,
    arena_size,
    busiest,
    most_at_once,
    place,
    steps_of,
)

FAST, THOROUGH = 5_000, 300_000
"""Efforts: that of an answer at once, and that of a minute for what has to fit."""
_RATIOS = (1.1, 1.05, 1.02, 1.0)
_LARGEST = 1_500
"""With more pieces than that, best fit has the last word."""
_SOLVED = -1
_FAR = 1 << 60
_POOL, _ISLAND = 12, 40
"""So many orders of preference are remembered, for so many turns."""


def arrange(
    pieces: Sequence[Piece],
    alignment: int = 1,
    capacity: int | None = None,
    effort: int = THOROUGH,
) -> Offsets | None:
    """Return offsets in a small arena, or in one of at most a capacity.

    Best fit comes first. Where its arena is larger than what is needed at one time, a short
    search makes it smaller; where it is larger than the capacity, a long one does.

    Args:
        pieces: The pieces.
        alignment: What every offset is a multiple of.
        capacity: The most bytes that the arena may have; with it, None is returned where no such
            offsets are found.
        effort: How many places to try for a capacity; see :func:`pack`.

    Example:
        >>> pieces = [Piece("a", 2, 0, 1), Piece("b", 1, 1, 2), Piece("c", 2, 2, 3)]
        >>> arrange(pieces), arrange(pieces, capacity=2)
        ({'a': 0, 'c': 0, 'b': 2}, None)
    """
    sizes = {piece.name: piece.size for piece in pieces}
    best = place(pieces, alignment)
    if capacity is not None:
        fits = arena_size(best, sizes) <= capacity
        return best if fits else pack(pieces, capacity, alignment, effort)
    least = most_at_once(_rounded(pieces, alignment))
    left = min(FAST, 30 * len(pieces))
    for ratio in _RATIOS if len(pieces) <= _LARGEST else ():
        target = int(least * ratio)
        if arena_size(best, sizes) > target:
            found, places = _packed(pieces, target, alignment, (left, 80))
            left -= places
            if found is None:
                break
            best = found
    return best


def spread(
    pieces: Sequence[Piece], alignment: int, banks: Mapping[str, int | None]
) -> dict[str, tuple[str, int]]:
    """Return the bank and the offset of each piece.

    Where the pieces do not fit in a bank, those that take most of its crowded times lie in the
    next.

    Args:
        pieces: The pieces.
        alignment: What every offset is a multiple of.
        banks: The bytes of each bank, the preferred first; None for an arena without a limit.

    Raises:
        PassError: The pieces do not fit.

    Example:
        >>> pieces = [Piece("a", 8, 0, 9), Piece("b", 4, 1, 2), Piece("c", 4, 3, 4)]
        >>> spread(pieces, 1, {"near": 4, "far": 64})
        {'b': ('near', 0), 'c': ('near', 0), 'a': ('far', 0)}
    """
    places: dict[str, tuple[str, int]] = {}
    rest = list(pieces)
    for index, (bank, capacity) in enumerate(banks.items(), 1):
        stay, rest = (rest, []) if capacity is None else _crowded(rest, capacity)
        effort = THOROUGH if index == len(banks) else FAST
        while (offsets := arrange(stay, alignment, capacity, effort)) is None:
            if index == len(banks):
                break
            most = max(stay, key=lambda p: (p.size * (p.death - p.birth + 1), p.name))
            stay, rest = [p for p in stay if p is not most], [*rest, most]
        places.update({name: (bank, offset) for name, offset in (offsets or {}).items()})
    if len(places) < len(pieces):
        total = sum(capacity or 0 for capacity in banks.values())
        least = most_at_once(pieces)
        raise PassError(
            f"the values do not fit in {total:,} bytes: {least:,} are needed at one time"
            + (", and no offsets were found that fit" if least <= total else ""),
            remedy="Give more, let nodes be reordered (reorder=True), or let results take the "
            "place of operands (in_place=True).",
        )
    return places


def _crowded(pieces: Sequence[Piece], capacity: int) -> tuple[list[Piece], list[Piece]]:
    """Return the pieces without those that make a time too crowded, and these."""
    stay = [piece for piece in pieces if piece.size <= capacity]
    left = [piece for piece in pieces if piece.size > capacity]
    while most_at_once(stay) > capacity:
        peak = busiest(stay)
        most = max(
            [p for p in stay if p.birth <= peak <= p.death],
            key=lambda p: (p.size * (p.death - p.birth + 1), p.name),
        )
        stay.remove(most)
        left.append(most)
    return stay, left


def _rounded(pieces: Iterable[Piece], alignment: int) -> list[Piece]:
    return [replace(p, size=-(-p.size // alignment) * alignment) for p in pieces]


def pack(pieces: Sequence[Piece], capacity: int, alignment: int, effort: int) -> Offsets | None:
    """Return offsets in an arena of a capacity, or None if none are found.

    Nothing depends on a clock: equal arguments give equal offsets.

    Args:
        pieces: The pieces.
        capacity: The bytes of the arena.
        alignment: What every offset is a multiple of.
        effort: How many places to try for each part of the pieces that shares no time with others;
            some 6,000 a second.

    Example:
        >>> rows = [("a", 2, 0, 1), ("b", 1, 1, 2), ("c", 2, 2, 3)]
        >>> pack([Piece(*row) for row in rows], 3, 1, 100)
        {'a': 0, 'b': 2, 'c': 0}
        >>> pack([Piece(*row) for row in rows], 2, 1, 100) is None
        True
    """
    return _packed(pieces, capacity, alignment, (effort, 150))[0]


def _packed(
    pieces: Sequence[Piece], capacity: int, alignment: int, limits: tuple[int, int]
) -> tuple[Offsets | None, int]:
    """Return offsets, and how many places were tried for the hardest part."""
    offsets: dict[str, int] = {piece.name: 0 for piece in pieces}
    most = 0
    for group in _apart(sorted([p for p in pieces if p.size], key=lambda p: (p.birth, p.name))):
        search = _GroupSearch(group, capacity, alignment)
        found = search.restarted(*limits)
        most = max(most, search.total)
        if found is None:
            return None, most
        offsets.update({p.name: at for p, at in zip(group, found, strict=True)})
    return offsets, most


def _apart(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Yield the pieces, ordered by birth, in groups that share no time."""
    group: list[Piece] = []
    end = -1
    for piece in pieces:
        if group and piece.birth > end:
            yield group
            group = []
        group.append(piece)
        end = max(end, piece.death)
    if group:
        yield group


def _luby(index: int) -> int:
    """Return a member of Luby's sequence 1, 1, 2, 1, 1, 2, 4, … (from index 1)."""
    bits = index.bit_length()
    return 1 << bits - 1 if index == (1 << bits) - 1 else _luby(index - (1 << bits - 1) + 1)


@dataclass(frozen=True, slots=True)
class _Taste:
    """A way to choose.

    Attributes:
        order: For each piece, how early it is preferred.
        branching: How much an answer more counts against a step of time, to a byte of height.
        slack: How much a byte that may be lost there does.
        gaps: Whether the gap that a piece leaves below it comes before that order (1: if there
            is one, 2: its bytes).
        learns: Whether a step counts more each time that it is a dead end.
    """

    order: Array
    branching: float
    slack: float
    gaps: int
    learns: bool


@dataclass(frozen=True, slots=True)
class _State:
    """Some pieces placed, and what that means for the others.

    Attributes:
        at: For each piece, the lowest place that is left to it.
        rests: The top of what lies below it: less than ``at`` where that place is floating.
        open: Which pieces are to be placed.
        load: For each step of time, the bytes of these.
        why: For each piece, a bit for each placed piece that its lowest place depends on.
        others: How many pieces wait in parts that share no time with these.
        whole: Whether the pieces may fall into such parts.
    """

    at: Array
    rests: Array
    open: Array
    load: Array
    why: list[int]
    others: int
    whole: bool


def _union(parts: Iterable[int]) -> int:
    return reduce(or_, parts, 0)


class _Instance:
    """A group of pieces as arrays, and the states of a search for their places."""

    def __init__(self, pieces: Sequence[Piece], capacity: int, alignment: int):
        import numpy as np

        self.np = np
        steps, births, ends = steps_of(pieces)
        sizes = [-(-piece.size // alignment) * alignment for piece in pieces]
        self.unit = int(np.gcd.reduce(sizes))
        self.capacity = capacity // self.unit
        self.size = np.array(sizes) // self.unit
        self.birth, self.end = np.array(births), np.array(ends)
        time = np.arange(steps)
        self.lives = (self.birth[:, None] <= time) & (time < self.end[:, None])
        self.meets = (self.birth[:, None] < self.end) & (self.birth < self.end[:, None])
        # the pieces of each step, one step after another
        self.step_of, self.piece_of = np.nonzero(self.lives.T)
        self.starts = np.searchsorted(self.step_of, time)
        self.ends = np.append(self.starts[1:], len(self.piece_of))
        self.load = (self.lives * self.size[:, None]).sum(0)

    def placed(self, state: _State, piece: int) -> _State:
        np = self.np
        top = state.at[piece] + self.size[piece]
        meets = self.meets[piece]
        raised = meets & state.open & (state.at < top)
        still = state.open.copy()
        still[piece] = False
        load = state.load.copy()
        load[self.birth[piece] : self.end[piece]] -= self.size[piece]
        why = state.why.copy()
        reason = why[piece] | 1 << piece
        for other in np.flatnonzero(raised).tolist():
            why[other] = reason
        rests = np.where(meets, np.maximum(state.rests, top), state.rests)
        at = np.where(raised, top, state.at)
        return _State(at, rests, still, load, why, state.others, True)

    def parts(self, state: _State, left: int) -> list[_State]:
        """Return the parts of a state that share no time, the largest first, if there are some."""
        np = self.np
        found = np.flatnonzero(state.open)  # by birth
        reach = np.maximum.accumulate(self.end[found])
        cuts = np.flatnonzero(self.birth[found][1:] >= reach[:-1]) + 1
        states: list[_State] = []
        for part in sorted(np.split(found, cuts), key=len, reverse=True) if len(cuts) else ():
            left -= len(part)
            members = np.zeros(len(self.size), bool)
            members[part] = True
            load = np.where(self.lives[part].any(0), state.load, 0)
            others = state.others + left
            states.append(replace(state, open=members, load=load, others=others, whole=False))
        return states

    def column(self, state: _State, step: int) -> int:
        """Return what all that lives at a step depends on."""
        pieces = self.piece_of[self.starts[step] : self.ends[step]].tolist()
        return _union([state.why[p] if state.open[p] else 1 << p for p in pieces])


class _GroupSearch(_Instance):
    """The search for one group of pieces."""

    total = 0  # places tried in all

    def restarted(self, effort: int, patience: int) -> list[int] | None:
        """Search with one taste after another; return an offset for each piece."""
        np, count = self.np, len(self.size)
        if self.load.max() > self.capacity:
            return None
        random = np.random.default_rng(0)
        best: list[tuple[int, _Taste]] = []
        turn = 0
        while self.total < effort:
            turn += 1
            if turn % _ISLAND == 0:
                best.clear()
            if best and random.random() < 0.6:
                rank = min(int(random.exponential(3)), len(best) - 1)
                spread = random.choice([0.03, 0.1, 0.3]) * random.normal(size=count)
                taste = replace(best[rank][1], order=best[rank][1].order * np.exp(spread))
            else:
                taste = self._fresh(random)
            limit = min(effort - self.total, count + patience * _luby(turn))
            found = self._run(taste, limit)
            self.total += self.places
            if found is not None:
                return [int(at) * self.unit for at in found]
            best = sorted([*best, (self.deepest, taste)], key=lambda entry: -entry[0])[:_POOL]
        return None

    def _fresh(self, random: Any) -> _Taste:
        """Prefer long pieces, large ones and those of crowded times, each more or less."""
        np = self.np
        crowd = np.where(self.lives, self.load, 0).max(1) / self.capacity
        long, large, crowded = random.uniform(0, 1.5, 3)
        large *= random.choice([0.1, 1])  # time tells more than size
        order = (self.end - self.birth) ** long * self.size**large * crowd ** (2 * crowded)
        order = order * np.exp(random.choice([0, 0.1, 0.4]) * random.normal(size=len(order)))
        return _Taste(
            order,
            float(random.choice([0.01, 1, 8, 32])) * self.capacity / 1024,
            float(random.choice([0, 0.3, 1])),
            int(random.integers(3)),
            bool(random.integers(2)),
        )

    # -- one search

    def _run(self, taste: _Taste, limit: int) -> Array | None:
        np, count = self.np, len(self.size)
        self.taste = taste
        self.weight = np.ones(len(self.load))
        self.places = self.deepest = 0
        self.refuted: dict[bytes, int] = {}
        self.offsets = np.zeros(count, dtype=np.int64)
        floor = np.zeros(count, dtype=np.int64)
        start = _State(floor, floor, np.ones(count, bool), self.load, [0] * count, 0, True)
        stack, answer = [self._visit(start)], None
        while stack:
            try:
                state = stack[-1].send(answer)
            except StopIteration as end:
                stack.pop()
                answer = end.value
                continue
            self.places += 1
            if self.places > limit:
                return None
            stack.append(self._visit(state))
            answer = None
        return self.offsets if answer == _SOLVED else None

    def _visit(self, state: _State) -> Generator[_State, Any, int]:
        """Yield the states to visit from one; return the placed pieces that refute it, as bits."""
        np = self.np
        left = int(np.count_nonzero(state.open))
        self.deepest = max(self.deepest, len(self.size) - state.others - left)
        if not left:
            return _SOLVED
        high = state.open & (state.at + self.size > self.capacity)
        if high.any():
            return state.why[int(high.argmax())]
        lowest = np.where(state.open, state.at, _FAR)
        places = lowest[self.piece_of]
        floor = np.minimum.reduceat(places, self.starts)
        slack = self.capacity - state.load - floor
        lost = (floor < _FAR) & (slack < 0)
        if lost.any():
            self.weight[lost] += self.taste.learns
            return self.column(state, int(lost.argmax()))
        key = lowest.tobytes()
        if key in self.refuted:
            return self.refuted[key]
        parts = self.parts(state, left) if state.whole else ()
        if parts:
            answer = yield from self._each(parts)
        else:
            possible = (places == floor[self.step_of]) & (state.open & (state.rests >= state.at))[
                self.piece_of
            ]
            answer = yield from self._branch(state, floor, slack, possible)
        if answer != _SOLVED:
            self.refuted[key] = answer
        return answer

    @staticmethod
    def _each(parts: Sequence[_State]) -> Generator[_State, Any, int]:
        for part in parts:
            answer = yield part
            if answer != _SOLVED:
                return answer
        return _SOLVED

    def _branch(
        self, state: _State, floor: Array, slack: Array, possible: Array
    ) -> Generator[_State, Any, int]:
        """Try the pieces that can come next at one step of time, then none of them."""
        np, taste = self.np, self.taste
        answers = np.add.reduceat(possible, self.starts, dtype=np.int64)
        if not answers.any():
            steps = np.flatnonzero(floor < _FAR).tolist()
            return _union([self.column(state, step) for step in steps])
        cost = (answers + (slack > 0)) * taste.branching + floor + taste.slack * slack
        cost = cost / self.weight
        step = int(np.where(answers > 0, cost, np.inf).argmin())
        span = slice(self.starts[step], self.ends[step])
        pieces = self.piece_of[span][possible[span]]
        conflict = 0
        for piece in self._preferred(pieces, state, floor):
            self.offsets[piece] = state.at[piece]
            answer = yield self.placed(state, piece)
            if answer == _SOLVED or not answer >> piece & 1:
                return answer
            conflict |= answer & ~(1 << piece)
        conflict |= self.column(state, step)
        if slack[step]:  # what comes next rests on something that is not placed yet
            raised = state.open & self.lives[:, step] & (state.at <= floor[step])
            at = np.where(raised, floor[step] + 1, state.at)
            why = state.why.copy()
            for piece in np.flatnonzero(raised).tolist():
                why[piece] = conflict
            answer = yield replace(state, at=at, why=why, whole=False)
            conflict = _SOLVED if answer == _SOLVED else conflict | answer
        return conflict

    def _preferred(self, pieces: Array, state: _State, floor: Array) -> list[int]:
        """Return pieces in the order of the taste, of equal ones the first."""
        np = self.np
        gap = np.zeros(len(pieces))
        if self.taste.gaps:
            below = np.concatenate([[0], np.cumsum(np.where(floor < _FAR, floor, 0))])
            filled = below[self.end[pieces]] - below[self.birth[pieces]]
            gap = state.at[pieces] * (self.end - self.birth)[pieces] - filled
            gap = gap if self.taste.gaps == 2 else gap > 0
        ordered = pieces[np.lexsort((-self.taste.order[pieces], gap))].tolist()
        kinds = {(self.birth[p], self.end[p], self.size[p]): p for p in reversed(ordered)}
        return [p for p in ordered if kinds[self.birth[p], self.end[p], self.size[p]] == p]
