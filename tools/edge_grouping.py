"""Dtype combinations as few rows that take exactly these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

from torch_ir.frozen import FrozenDict
from torch_ir.ops.dtype_constraints import NOT_GIVEN, DTypeTable

Combination: TypeAlias = tuple[str | None, ...]
"""The dtype of each argument and result, None where it is not given."""

Partition: TypeAlias = tuple[tuple[int, ...], ...]
"""Columns in groups that share an alias."""

MAX_PARTITIONS = 48


@dataclass(frozen=True, slots=True)
class _Box:
    """One row: for each group of columns the dtypes, and whether they may be left out."""

    partition: Partition
    choices: tuple[frozenset[str], ...]
    absent: tuple[bool, ...]

    def expand(self, optional: frozenset[int]) -> Iterator[dict[int, str | None]]:
        groups = [
            list(self._group(*part, optional))
            for part in zip(self.partition, self.choices, self.absent, strict=True)
        ]
        for parts in product(*groups):
            yield {column: value for part in parts for column, value in part.items()}

    @staticmethod
    def _group(
        columns: tuple[int, ...], dtypes: frozenset[str], absent: bool, optional: frozenset[int]
    ) -> Iterator[dict[int, str | None]]:
        for dtype in dtypes or {""}:
            options: list[list[str | None]] = []
            for column in columns:
                given: list[str | None] = [dtype] if dtype else []
                options.append([*given, None] if absent and column in optional else given)
            for values in product(*options):
                yield dict(zip(columns, values, strict=True))


def group(
    inherits: str,
    names: Sequence[str],
    observed: Iterable[Combination],
    required: frozenset[str],
    *,
    untied: frozenset[str] = frozenset(),
) -> DTypeTable:
    """Group observed combinations into a table whose rows take exactly these.

    Args:
        inherits: The operator in torch's spelling.
        names: What the columns are called.
        observed: The combinations.
        required: The names that are always given.
        untied: Names that share an alias with no other: numbers, whose kinds are no dtypes.

    Example:
        >>> pairs = [("int32", "float32"), ("float32", "float32"), ("float64", "float64")]
        >>> table = group("aten::exp", ["self", "__ret_0"], pairs, frozenset({"self", "__ret_0"}))
        >>> table.expand() == set(pairs), len(table.rows)
        (True, 2)
    """
    wanted = frozenset(observed)
    optional = frozenset(i for i, name in enumerate(names) if name not in required)
    alone = frozenset(i for i, name in enumerate(names) if name in untied)
    partitions = _partitions(wanted, alone)
    left = set(wanted)
    boxes: list[_Box] = []
    for combination in sorted(wanted, key=lambda c: (c.count(None), tuple(map(str, c)))):
        if combination not in left:
            continue
        candidates = [
            grown
            for partition in (_ties(combination, alone), *partitions)
            for order in (1, -1)
            if (grown := _grown(combination, partition, wanted, optional, order)) is not None
        ]
        best, covered = max(
            ((box, left & taken) for box, taken in candidates), key=lambda found: len(found[1])
        )
        boxes.append(best)
        left -= covered
    return _as_table(inherits, names, boxes, required)


def _ties(combination: Combination, alone: frozenset[int]) -> Partition:
    """Columns of equal dtype together; those that are not given each for itself."""
    groups: dict[object, list[int]] = {}
    for column, dtype in enumerate(combination):
        key = (column,) if dtype is None or column in alone else dtype
        groups.setdefault(key, []).append(column)
    return tuple(sorted(map(tuple, groups.values())))


def _partitions(wanted: frozenset[Combination], alone: frozenset[int]) -> list[Partition]:
    """Ways of tying columns that are worth trying: what occurs, and what two of these share."""
    counts: dict[Partition, int] = {}
    for combination in wanted:
        ties = _ties(combination, alone)
        counts[ties] = counts.get(ties, 0) + 1
    frequent = sorted(counts, key=lambda p: (-counts[p], p))[:12]
    shared = [_meet(a, b) for a in frequent for b in frequent]
    return list(dict.fromkeys([*frequent, *shared]))[:MAX_PARTITIONS]


def _meet(first: Partition, second: Partition) -> Partition:
    """Columns that both tie stay tied."""
    parts = [tuple(sorted({*a} & {*b})) for a in first for b in second]
    return tuple(sorted(filter(None, parts)))


def _grown(
    combination: Combination,
    partition: Partition,
    wanted: frozenset[Combination],
    optional: frozenset[int],
    order: int,
) -> tuple[_Box, set[Combination]] | None:
    """The row that begins at a combination and takes in what it can, and all that it takes."""
    choices: list[frozenset[str]] = []
    absent: list[bool] = []
    for columns in partition:
        given = {value for i in columns if (value := combination[i]) is not None}
        if len(given) > 1:
            return None
        choices.append(frozenset(given))
        absent.append(any(combination[i] is None for i in columns))
    box = _Box(partition, tuple(choices), tuple(absent))
    taken = _expanded(box, optional, len(combination))
    if not taken <= wanted:
        return None
    dtypes = sorted({value for c in wanted for value in c if value is not None})
    for position in range(len(partition))[::order]:
        for wider in _wider(box, position, dtypes, optional):
            if wider.choices == box.choices and wider.absent == box.absent:
                continue
            merged = _union(box, wider)
            grown = _expanded(merged, optional, len(combination))
            if grown <= wanted:
                box, taken = merged, grown
    return box, taken


def _wider(
    box: _Box, position: int, dtypes: Sequence[str], optional: frozenset[int]
) -> Iterator[_Box]:
    """The row with one thing more allowed in one group."""
    if not box.absent[position] and optional & {*box.partition[position]}:
        absent = (*box.absent[:position], True, *box.absent[position + 1 :])
        yield _Box(box.partition, box.choices, absent)
    for dtype in dtypes:
        if dtype in box.choices[position]:
            continue
        more = (*box.choices[:position], frozenset({dtype}), *box.choices[position + 1 :])
        yield _Box(box.partition, more, box.absent)


def _union(first: _Box, second: _Box) -> _Box:
    choices = [a | b for a, b in zip(first.choices, second.choices, strict=True)]
    absent = [a or b for a, b in zip(first.absent, second.absent, strict=True)]
    return _Box(first.partition, tuple(choices), tuple(absent))


def _expanded(box: _Box, optional: frozenset[int], width: int) -> set[Combination]:
    return {tuple([found[i] for i in range(width)]) for found in box.expand(optional)}


def _as_table(
    inherits: str, names: Sequence[str], boxes: Sequence[_Box], required: frozenset[str]
) -> DTypeTable:
    aliases: dict[str, frozenset[str]] = {}
    rows: list[Mapping[str, str]] = []
    for box in boxes:
        row: dict[str, str] = {}
        used: set[str] = set()
        for columns, dtypes, absent in zip(box.partition, box.choices, box.absent, strict=True):
            held = dtypes | {NOT_GIVEN} if absent else dtypes
            alias = _alias_for(held, aliases, used)
            used.add(alias)
            row.update({names[column]: alias for column in columns})
        rows.append(FrozenDict({name: row[name] for name in names}))
    return DTypeTable(inherits, FrozenDict(aliases), tuple(rows), required)


def _alias_for(held: frozenset[str], aliases: dict[str, frozenset[str]], used: set[str]) -> str:
    """An alias of these dtypes that the row does not use yet: sharing one would tie columns."""
    for name, dtypes in aliases.items():
        if dtypes == held and name not in used:
            return name
    name = f"T{len(aliases)}"
    aliases[name] = held
    return name
