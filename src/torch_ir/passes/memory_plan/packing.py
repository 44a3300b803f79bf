"""Offsets within a capacity: a search for the arenas that best fit cannot make small enough.

The search is SuperMalloc's, of the package omnimalloc: branch and bound over canonical solutions,
in which every piece rests on another or on the floor (MiniMalloc; Moffitt, ASPLOS 2023). It tries
pieces in a fixed order, and which order is lucky differs from one arena to the next. So many
orders are tried, with bounds on the nodes of the search tree that differ: of each bound, as many
as take the same effort in all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import permutations
from math import gcd
from typing import TYPE_CHECKING

from torch_ir.arguments import public
from torch_ir.errors import PassError
from torch_ir.passes.memory_plan.offsets import (
    Offsets,
    Piece,
    arena_size,
    busiest,
    meetings,
    most_at_once,
    place,
)

if TYPE_CHECKING:
    from omnimalloc._cpp import Partition

FAST, THOROUGH = 36_500, 2_000_000
"""Efforts: that of a second for what fits elsewhere too, that of a minute for what has to fit."""
_USUAL = 60
"""So many pieces that one is needed with; a node takes longer where these are more."""
_LARGEST = 1_500
"""With more pieces than that, best fit has the last word."""
_NODES = (500, 4_000, 32_000)
"""Bounds of one search: a lucky order needs few, and a signal waits until it ends."""
_LONGEST = 1 << 62
"""What the sizes in all, and the time, have to be less than for the search to count them."""
_ORDERS = tuple("".join(keys) for keys in permutations("TWAZCOUL", 3))
"""What comes first, by omnimalloc's letters: total of the sections, width (duration), area, size,
count of sections, overlaps, upper and lower end of the lifetime. The total of the sections, the
duration and the area are those of MiniMalloc's own orders."""
_QUICK, _SHRINKING, _LONG = (("TWA", 4_500), ("TAW", 4_500)), 15_000, 20_500
"""Efforts of an answer at once: for the smallest arena, for smaller ones, and for the smallest."""
_NEAR = 1.07
"""An arena that is as near as this to the smallest is not worth a long search."""
_STRIDE = 115
"""A step through the orders that meets each once, and after each one that is unlike it."""


@public
def arrange(
    pieces: Sequence[Piece],
    alignment: int = 1,
    capacity: int | None = None,
    effort: int = THOROUGH,
) -> Offsets | None:
    """Return offsets in a small arena, or in one of at most a capacity.

    Best fit comes first. Where its arena is larger than what is needed at one time, short
    searches ask for one as small as that, since a narrow arena leaves few answers to try; then
    others make it smaller bit by bit. Where it is larger than the capacity, a long one does.

    Args:
        pieces: The pieces.
        alignment: What every offset is a multiple of.
        capacity: The most bytes that the arena may have; with it, None is returned where no such
            offsets are found.
        effort: How many nodes to visit for a capacity; see :func:`pack`.

    Raises:
        PassError: The alignment is not positive, or two pieces have one name.

    Example:
        >>> pieces = [Piece("a", 2, 0, 1), Piece("b", 1, 1, 2), Piece("c", 2, 2, 3)]
        >>> arrange(pieces), arrange(pieces, capacity=2)
        ({'a': 0, 'c': 0, 'b': 2}, None)
    """
    sizes = {piece.name: piece.size for piece in pieces}
    if alignment < 1:
        raise PassError(f"the alignment of an arena is a positive integer, got {alignment}")
    if len(sizes) < len(pieces):
        name = next(name for name, count in Counter(p.name for p in pieces).items() if count > 1)
        raise PassError(f"two pieces of an arena have the name '{name}'")
    best = place(pieces, alignment)
    if capacity is not None:
        fits = arena_size(best, sizes) <= capacity
        return best if fits else pack(pieces, capacity, alignment, effort)
    least = most_at_once(_rounded(pieces, alignment))
    if arena_size(best, sizes) <= least or len(pieces) > _LARGEST:
        return best
    return _tightened(pieces, alignment, best)


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
        effort: How many nodes of search trees to visit, up to some 50,000 a second; where a piece
            meets more than 60 others, as many as take the same time. Sizes and times beyond 62
            bits, in the largest unit that all sizes are multiples of, are not searched.

    Example:
        >>> rows = [("a", 2, 0, 1), ("b", 1, 1, 2), ("c", 2, 2, 3)]
        >>> pack([Piece(*row) for row in rows], 3, 1, 500)
        {'a': 0, 'b': 2, 'c': 0}
        >>> pack([Piece(*row) for row in rows], 2, 1, 500) is None
        True
    """
    search = _Search(pieces, alignment)
    if search.least > capacity:
        return None
    if not search.solid:
        return search.unplaced
    return search.first_within(capacity, _attempts(search.nodes(effort)))


def _tightened(pieces: Sequence[Piece], alignment: int, offsets: Offsets) -> Offsets:
    """Return offsets in a smaller arena than those given, where short searches find some.

    Two ask for the smallest arena that there could be. Then each order is asked for a quarter less
    of what the arena has beyond it, and for any byte less. Orders that follow each other are not
    alike. A long search for the smallest is the last, where much is left.
    """
    search = _Search(pieces, alignment)
    least, quick = search.least, [(order, search.nodes(nodes)) for order, nodes in _QUICK]
    if (found := search.first_within(least, quick)) is not None:
        return found
    left, orders = search.nodes(_SHRINKING), len(_ORDERS)
    for order in [_ORDERS[index * _STRIDE % orders] for index in range(orders)]:
        for quarters in (1, 0):
            while left > 0 and (size := arena_size(offsets, search.sizes)) > least:
                less = max((size - least) * quarters // 4, search.unit)
                found = search.within(size - less, order, min(_NODES[0], left))
                left -= _NODES[0]
                if found is None:
                    break
                offsets = found
    if arena_size(offsets, search.sizes) <= _NEAR * least:
        return offsets
    return search.first_within(least, [(_QUICK[0][0], search.nodes(_LONG))]) or offsets


class _Search:
    """Searches for offsets of pieces, in one order and a number of nodes at a time.

    It counts in 64 bits: from the first event, in units that all sizes are multiples of.

    Args:
        pieces: The pieces.
        alignment: What every offset is a multiple of.
    """

    def __init__(self, pieces: Sequence[Piece], alignment: int):
        rounded = _rounded(pieces, alignment)
        self.sizes = {piece.name: piece.size for piece in rounded}
        self.least = most_at_once(rounded)
        self.unplaced = dict.fromkeys(self.sizes, 0)
        self.solid = [piece for piece in rounded if piece.size]
        self._first = min([piece.birth for piece in self.solid], default=0)
        self.unit = gcd(*[piece.size for piece in self.solid])
        self._total = sum(piece.size for piece in self.solid) // max(self.unit, 1)

    def nodes(self, effort: int) -> int:
        """Return how many nodes take about the time of an effort; none where it cannot count."""
        lengths = [piece.death - self._first for piece in self.solid]
        if not lengths or max(self._total, *lengths) >= _LONGEST:
            return 0
        return int(effort * min(1, _USUAL / meetings(self.solid)))

    @cached_property
    def _whole(self) -> Partition:
        # its public allocators are bounded by a clock alone; imported here, as plans are rare
        from omnimalloc import Allocation
        from omnimalloc._cpp import Partition

        first, unit = self._first, self.unit
        rows = [(p.name, p.size // unit, p.birth - first, p.death - first + 1) for p in self.solid]
        return Partition.from_allocations(
            [
                Allocation(id=name, size=size, start=start, end=end)
                for name, size, start, end in rows
            ]
        )

    def first_within(self, capacity: int, attempts: Iterable[tuple[str, int]]) -> Offsets | None:
        """Return offsets in an arena of a capacity by the first search that finds some."""
        found = (self.within(capacity, order, nodes) for order, nodes in attempts if nodes)
        return next((offsets for offsets in found if offsets is not None), None)

    def within(self, capacity: int, order: str, nodes: int) -> Offsets | None:
        """Return offsets in an arena of a capacity, if a search of so many nodes finds some."""
        from omnimalloc._cpp import try_solve_many

        bound = min(capacity // self.unit, self._total) + 1
        found = try_solve_many(
            [self._whole.reorder(order).with_bound(bound)],
            bound,
            nodes,
            canonical=True,
            dominance=True,
            floor_inference=True,
            monotonic_floor=True,
            decompose=True,
            timeout=None,
            num_threads=1,
        )
        if found is None:
            return None
        placed = {str(one.id): (one.offset or 0) * self.unit for one in found.allocations}
        return self.unplaced | placed


def _attempts(effort: int) -> Iterator[tuple[str, int]]:
    """Yield orders and bounds for them; each bound in turn has had the least effort so far."""
    spent = dict.fromkeys(_NODES, 0)
    left = effort
    while left > 0 and spent:
        nodes = min(spent, key=lambda each: spent[each])
        at = spent[nodes] // nodes
        if at == len(_ORDERS):
            del spent[nodes]
            continue
        yield _ORDERS[at], min(nodes, left)
        spent[nodes] += nodes
        left -= nodes
