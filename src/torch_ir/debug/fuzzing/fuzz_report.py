"""The report of fuzzing a backend: its findings, and what was tried."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from torch_ir.debug.comparing.comparison import NodeDivergence
from torch_ir.debug.shrinking.reduced import Reduced
from torch_ir.errors import counted
from torch_ir.ir import IR
from torch_ir.tables import Shown, html_table, report_text, table


@dataclass(frozen=True, slots=True)
class FuzzFinding(Shown):
    """A divergence, made small.

    Attributes:
        reduced: The smallest program that shows it.
        kind: How the values differ, as a comparison tells it.
        operator: The operator to blame.
        dtypes: The class of its result's dtype: ``"float"``, ``"half"``, ``"integer"``, ``"bool"``
            or ``"complex"``.
        seed: What :func:`random_program` made the whole program from.
        comparison: What differs in the smallest program.
    """

    reduced: Reduced
    kind: str
    operator: str
    dtypes: str
    seed: int
    comparison: NodeDivergence

    @property
    def ir(self) -> IR:
        """The smallest program."""
        return self.reduced.ir

    @property
    def weights(self) -> Mapping[str, torch.Tensor]:
        """Its weights."""
        return self.reduced.weights

    @property
    def inputs(self) -> tuple[torch.Tensor, ...]:
        """Its inputs."""
        return self.reduced.inputs

    @property
    def name(self) -> str:
        """A name for its folder."""
        return f"{self.operator}-{self.kind}-{self.dtypes}"

    def __str__(self) -> str:
        return f"{self.name} (seed {self.seed}):\n{self.comparison}\n{self.ir}"


@dataclass(frozen=True, slots=True)
class FuzzReport:
    """What came of trying a backend with random programs.

    Attributes:
        backend: Its name.
        programs: How many programs were tried.
        findings: The distinct divergences.
        operators: How often each operator was called.
        dtypes: How often each dtype was the type of a value.
        refused: How many programs could not be compared, by reason.
        seconds: How long it took.
    """

    backend: str
    programs: int
    findings: tuple[FuzzFinding, ...]
    operators: Mapping[str, int] = field(repr=False)
    dtypes: Mapping[str, int] = field(repr=False)
    refused: Mapping[str, int] = field(repr=False)
    seconds: float

    def __str__(self) -> str:
        rate = f"{self.programs / self.seconds:.1f} a second" if self.seconds else ""
        lines = [
            f"{self.backend}: {counted(len(self.findings), 'finding')} in "
            f"{counted(self.programs, 'program')} ({rate}), {len(self.operators)} overloads, "
            f"{len(self.dtypes)} dtypes"
        ]
        lines += [f"  not compared ({count}): {why}"[:100] for why, count in self.refused.items()]
        rows = self._rows()
        lines += [line[:100] for line in table(rows).splitlines()] if self.findings else []
        return report_text(lines)

    def _rows(self) -> list[tuple[str, ...]]:
        rows = [("operator", "kind", "dtypes", "nodes", "seed", "reason")]
        for found in self.findings:
            told = (found.operator, found.kind, found.dtypes, str(len(found.ir.nodes)))
            rows.append((*told, str(found.seed), found.comparison.reason))
        return rows

    def _repr_html_(self) -> str:
        return html_table(str(self).split("\n", 1)[0], self._rows())

    def to_dict(self) -> dict[str, Any]:
        """Convert the report to plain data, with the programs as text."""
        names = ("kind", "operator", "dtypes", "seed")
        found = [
            {**{n: getattr(f, n) for n in names}, **f.reduced.to_dict()} for f in self.findings
        ]
        counts = {"operators": dict(self.operators), "dtypes": dict(self.dtypes)}
        whole = {"backend": self.backend, "programs": self.programs, "seconds": self.seconds}
        return {**whole, **counts, "refused": dict(self.refused), "findings": found}
