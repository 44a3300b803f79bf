"""Alignment of two sequences: corresponding elements, by a short edit in near-linear time.

What is rare anchors the rest: elements that occur once on both sides are matched first, the gaps
between them by Myers' greedy algorithm with a bound on the edits, and what is left over again
under a weaker notion of equality.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TypeAlias

Keys: TypeAlias = Sequence[Hashable]
Pair: TypeAlias = tuple[int, int]
Block: TypeAlias = tuple[int, int, int, int]
"""A part of both sequences: from, to in the first; from, to in the second."""

MAX_EDITS = 128
"""So many edits are the fewest possible; a longer list of edits may be longer than necessary."""

MAX_ROUNDS = 20
"""How often anchors are looked for within the gaps of anchors."""


def align(levels: Sequence[tuple[Keys, Keys]], start: int = 0) -> list[Pair]:
    """Match positions of two sequences, increasing on both sides.

    Args:
        levels: The keys of both sequences under each notion of equality, the strictest first.
        start: This many elements at the beginning are matched already.

    Example:
        >>> align([("abcd", "axcd"), ("vcvc", "vcvc")])
        [(0, 0), (1, 1), (2, 2), (3, 3)]
        >>> align([("abcd", "acdx")])
        [(0, 0), (2, 1), (3, 2)]
    """
    pairs = [(index, index) for index in range(start)]
    first, second = levels[0]
    gaps: list[Block] = [(start, len(first), start, len(second))]
    for a, b in levels:
        remaining: list[Block] = []
        for gap in gaps:
            found = _match(a, b, gap)
            pairs.extend(found)
            remaining.extend(_gaps(gap, found))
        gaps = remaining
    return sorted(pairs)


def _gaps(block: Block, pairs: Sequence[Pair]) -> Iterator[Block]:
    """What lies between pairs on both sides, from the first to the last."""
    i, last_i, j, last_j = block
    for next_i, next_j in [*pairs, (last_i, last_j)]:
        if i < next_i and j < next_j:
            yield i, next_i, j, next_j
        i, j = next_i + 1, next_j + 1


def _match(a: Keys, b: Keys, block: Block) -> list[Pair]:
    """Pairs of equal keys within a block, in order."""
    pairs: list[Pair] = []
    stack = [(block, 0)]
    while stack:
        (i, i_stop, j, j_stop), depth = stack.pop()
        while i < i_stop and j < j_stop and a[i] == b[j]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        while i < i_stop and j < j_stop and a[i_stop - 1] == b[j_stop - 1]:
            i_stop, j_stop = i_stop - 1, j_stop - 1
            pairs.append((i_stop, j_stop))
        if i == i_stop or j == j_stop:
            continue
        inner = (i, i_stop, j, j_stop)
        anchors = _anchors(a, b, inner) if depth < MAX_ROUNDS else []
        if anchors:
            pairs.extend(anchors)
            stack.extend((gap, depth + 1) for gap in _gaps(inner, anchors))
        else:
            pairs.extend(_short_edit(a, b, inner))
    return sorted(pairs)


def _anchors(a: Keys, b: Keys, block: Block) -> list[Pair]:
    """The longest increasing run of keys that occur once on each side."""
    i, i_stop, j, j_stop = block
    once_a = Counter(a[i:i_stop])
    once_b = Counter(b[j:j_stop])
    where = {key: index for index, key in enumerate(b[j:j_stop], j) if once_b[key] == 1}
    candidates = [
        (index, where[key])
        for index, key in enumerate(a[i:i_stop], i)
        if once_a[key] == 1 and key in where
    ]
    return _longest_increasing(candidates)


def _longest_increasing(pairs: Sequence[Pair]) -> list[Pair]:
    """The longest part of pairs, sorted by their first, that is sorted by their second too."""
    ends: list[int] = []  # the smallest second that ends an increasing run of each length
    last: list[int] = []  # which pair that is
    before: list[int] = []  # the pair before each pair
    for index, (_, second) in enumerate(pairs):
        length = bisect_left(ends, second)
        before.append(last[length - 1] if length else -1)
        ends[length : length + 1] = [second]
        last[length : length + 1] = [index]
    run: list[Pair] = []
    index = last[-1] if last else -1
    while index >= 0:
        run.append(pairs[index])
        index = before[index]
    return run[::-1]


def _short_edit(a: Keys, b: Keys, block: Block) -> list[Pair]:
    """Myers' O(ND) algorithm, started anew where it got to after every ``MAX_EDITS`` edits."""
    i, i_stop, j, j_stop = block
    pairs: list[Pair] = []
    while i < i_stop and j < j_stop:
        history, x, y = _explore(a, b, (i, i_stop, j, j_stop))
        pairs.extend([(i + step_x, j + step_y) for step_x, step_y in _trace(history, x, y)])
        i, j = i + x, j + y
    return pairs


def _explore(a: Keys, b: Keys, block: Block) -> tuple[list[dict[int, int]], int, int]:
    """How far each diagonal was reached before each edit, and the end of the best path."""
    i0, i_stop, j0, j_stop = block
    n, m = i_stop - i0, j_stop - j0
    reach: dict[int, int] = {1: 0}
    history: list[dict[int, int]] = []
    for edits in range(min(n + m, MAX_EDITS) + 1):
        history.append(dict(reach))
        for k in range(-edits, edits + 1, 2):
            x = _step(reach, k, edits)
            while x < n and x - k < m and a[i0 + x] == b[j0 + x - k]:
                x += 1
            reach[k] = x
            if x >= n and x - k >= m:
                return history, n, m
    edits = len(history) - 1
    ends = [(reach[k], reach[k] - k) for k in range(-edits, edits + 1, 2)]
    x, y = max([(x, y) for x, y in ends if x <= n and y <= m], key=sum)
    return history, x, y


def _step(reach: Mapping[int, int], k: int, edits: int) -> int:
    """Where a diagonal is entered: from above (an addition) or from the left (a removal)."""
    down = k == -edits or (k != edits and reach[k - 1] < reach[k + 1])
    return reach[k + 1] if down else reach[k - 1] + 1


def _trace(history: Sequence[dict[int, int]], x: int, y: int) -> list[Pair]:
    """The matches on the path that Myers' algorithm took, from the end to the start."""
    matches: list[Pair] = []
    for edits in range(len(history) - 1, -1, -1):
        k = x - y
        entered = _step(history[edits], k, edits) if edits else 0
        while x > entered and y > entered - k:
            x, y = x - 1, y - 1
            matches.append((x, y))
        if edits:
            down = entered == history[edits].get(k + 1)
            x, y = (x, y - 1) if down else (x - 1, y)
    return matches[::-1]
