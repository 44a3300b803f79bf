"""The summary of a difference: how many changes of each kind, by operator and by function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from torch_ir.errors import printable
from torch_ir.tables import WIDTH, Rows, Shown, report_text, shortened, table

if TYPE_CHECKING:
    from torch_ir.ir.diff.structure import Change

KINDS = ("changed", "replaced", "added", "removed")
MAX_ROWS = 24
"""So many operators are listed; more are counted."""


@dataclass(frozen=True, slots=True)
class DiffStat(Shown):
    """How many changes there are between two programs.

    Attributes:
        added: What only the second has.
        removed: What only the first has.
        changed: What is in both with other details.
        replaced: What another one stands for.
        by_operator: Changes of nodes by operator; a replaced node counts for both of its.
        by_function: Changes by function, the program itself under the empty name.
    """

    added: int
    removed: int
    changed: int
    replaced: int
    by_operator: Mapping[str, int]
    by_function: Mapping[str, int]

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed or self.replaced)

    def __str__(self) -> str:
        """At most 40 lines."""
        if not self:
            return "no difference"
        lines = [self._headline(), *table(self._rows(self.by_operator, "operators")).splitlines()]
        if len(self.by_function) > 1 or "" not in self.by_function:
            named = {
                f"&{name}" if name else "(program)": n for name, n in self.by_function.items()
            }
            lines += ["by function:", *table(self._rows(named, "functions", 10)).splitlines()]
        return report_text([shortened(printable(line), WIDTH) for line in lines])

    def _headline(self) -> str:
        return ", ".join(f"{getattr(self, kind)} {kind}" for kind in KINDS if getattr(self, kind))

    def _rows(
        self, counts: Mapping[str, int], noun: str, most: int = MAX_ROWS
    ) -> list[tuple[str, str]]:
        rows = [(f"{count:,}", name) for name, count in counts.items()]
        more = sum(counts.values()) - sum(list(counts.values())[:most])
        return rows[:most] + (
            [(f"{more:,}", f"in {len(rows) - most} more {noun}")] if more else []
        )

    def _grid(self) -> Rows:
        return [("nodes", "operator"), *self._rows(self.by_operator, "operators")]

    def to_dict(self) -> dict[str, Any]:
        """Convert the summary to plain data, for JSON."""
        return asdict(self)


def stat_of(changes: Iterable[Change]) -> DiffStat:
    """Count changes."""
    kinds: Counter[str] = Counter()
    operators: Counter[str] = Counter()
    functions: Counter[str] = Counter()
    for change in changes:
        kinds[change.kind] += 1
        functions[change.function] += 1
        operators.update(dict.fromkeys(change.operators, 1))
    return DiffStat(
        *(kinds["added"], kinds["removed"], kinds["changed"], kinds["replaced"]),
        dict(sorted(operators.items(), key=lambda item: (-item[1], item[0]))),
        dict(sorted(functions.items(), key=lambda item: (-item[1], item[0]))),
    )
