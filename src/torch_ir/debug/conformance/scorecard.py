"""The score card of a backend: what of each operator it gets right."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from torch_ir.errors import SerializationError, counted, raised_as
from torch_ir.serde import write_atomically
from torch_ir.tables import Rows, Shown, report_text, table

Status = Literal[
    "pass", "wrong", "nan", "shape", "dtype", "missing", "error", "crash", "timeout", "unsupported"
]


@dataclass(frozen=True, slots=True)
class CaseResult:
    """What came of one case.

    Attributes:
        operator: The exact overload.
        case: The case's id.
        dtype: Dtype of the first operand.
        status: ``"pass"``, what is wrong, or ``"unsupported"``.
        reason: Why, in words.
        models: The models, or kinds of shapes, in which it occurs.
    """

    operator: str
    case: str
    dtype: str
    status: Status
    reason: str = ""
    models: tuple[str, ...] = ()

    @property
    def is_failure(self) -> bool:
        """Whether the backend takes it and gets it wrong."""
        return self.status not in ("pass", "unsupported")


@dataclass(frozen=True, slots=True)
class Conformance(Shown):
    """What a backend gets right.

    Attributes:
        backend: Its name.
        rows: Every case, in the order of ids.
    """

    backend: str
    rows: tuple[CaseResult, ...] = field(repr=False)

    @property
    def score(self) -> float:
        """Cases that pass, as a part of those that the backend takes; 1 if it takes none."""
        taken = [row for row in self.rows if row.status != "unsupported"]
        return sum(row.status == "pass" for row in taken) / len(taken) if taken else 1.0

    @property
    def failures(self) -> tuple[CaseResult, ...]:
        """The cases that fail."""
        return tuple([row for row in self.rows if row.is_failure])

    def matrix(self) -> dict[str, dict[str, str]]:
        """Return, for each operator and model, ``"pass"``, ``"fail"`` or ``"unsupported"``."""
        found: dict[str, dict[str, str]] = {}
        for row in self.rows:
            told = "fail" if row.is_failure else row.status
            for model in row.models:
                known = found.setdefault(row.operator, {}).get(model, "pass")
                worst = max((told, known), key=("pass", "unsupported", "fail").index)
                found[row.operator][model] = worst
        return found

    def diff(self, older: Conformance) -> tuple[str, ...]:
        """Return what has changed since, one line each."""
        before = {row.case: row.status for row in older.rows}
        now = {row.case: row.status for row in self.rows}
        changed = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
        return tuple([f"{n}: {before.get(n, 'new')} -> {now.get(n, 'gone')}" for n in changed])

    def __str__(self) -> str:
        counts = Counter(row.status for row in self.rows)
        told = ", ".join(f"{count} {status}" for status, count in counts.most_common())
        lines = [f"{self.backend}: {self.score:.1%} of {counted(len(self.rows), 'case')} ({told})"]
        shown = self.failures[:20]
        rows = [(row.status, row.case, row.dtype, row.reason) for row in shown]
        lines += table(rows).split("\n")
        if len(self.failures) > len(shown):
            lines.append(f"and {len(self.failures) - len(shown)} more")
        return report_text(lines)

    def _rows(self) -> list[tuple[str, ...]]:
        by_operator: dict[str, Counter[str]] = {}
        for row in self.rows:
            told = "fail" if row.is_failure else row.status
            by_operator.setdefault(row.operator, Counter())[told] += 1
        heads = ("operator", "pass", "fail", "unsupported")
        kinds = heads[1:]
        return [heads, *[(n, *[str(c[k]) for k in kinds]) for n, c in sorted(by_operator.items())]]

    def _grid(self) -> Rows:
        return self._rows()

    def to_dict(self) -> dict[str, Any]:
        """Convert the card to plain data."""
        return {
            "backend": self.backend,
            "score": self.score,
            "rows": [asdict(row) for row in self.rows],
            "matrix": self.matrix(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Conformance:
        """Read a card from plain data.

        Raises:
            SerializationError: They are not those of a card.
        """
        names = ("operator", "case", "dtype", "status", "reason")
        with raised_as(lambda error: SerializationError(f"this is no score card: {error!r:.80}")):
            listed: list[Any] = data["rows"]
            rows = [CaseResult(*[r[n] for n in names], models=tuple(r["models"])) for r in listed]
            return cls(str(data["backend"]), tuple(rows))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the card as JSON, or as Markdown where the name ends in ``.md``."""
        if Path(path).suffix == ".md":
            lines = [" | ".join(row) for row in self._rows()]
            lines.insert(1, "---|---|---|---")
            text = f"# {str(self).splitlines()[0]}\n\n" + "\n".join(f"| {x} |" for x in lines)
        else:
            text = json.dumps(self.to_dict(), indent=1, sort_keys=True)
        write_atomically(path, f"{text}\n".encode())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Conformance:
        """Read a card from JSON.

        Raises:
            SerializationError: It cannot be read.
        """
        told = f"{path} cannot be read as a score card"
        with raised_as(lambda error: SerializationError(f"{told}: {error}")):
            return cls.from_dict(json.loads(Path(path).read_text()))
