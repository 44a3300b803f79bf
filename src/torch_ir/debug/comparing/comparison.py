"""The report of a comparison: the first node that is wrong, and what was not seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from re import findall
from typing import Any, Literal

from torch_ir.debug.validation import Compared, plain_data
from torch_ir.errors import counted
from torch_ir.tables import Rows, Shown, report_text, table

_WORDS = 8
"""So many words of an error tell it from others; numbers and what follows change with sizes."""

Kind = Literal["missing", "extra", "shape", "dtype", "nan", "numeric", "error"]
FeedMode = Literal["isolated", "accumulated"]


@dataclass(frozen=True, slots=True)
class NodeDivergence(Shown):
    """A value that differs, with the node of the compared program that is to blame.

    Attributes:
        node: Name of the node; empty in a program without nodes.
        operator: What it calls.
        value: Name of the value.
        location: The user's source line, or the empty string.
        kind: ``"missing"`` (fewer results), ``"extra"`` (a lowered program returns or writes
            more), ``"shape"``, ``"dtype"``, ``"nan"`` (NaN or infinity where the other has none,
            or none where it has), ``"numeric"``, or ``"error"`` (it raised).
        mode: Whether it was fed what the other side made, or ran on what it made itself.
        region: Names of the nodes among which the fault is; one wherever it can be told.
        sample: 0 for the inputs, then the samples.
        reason: In what the value differs, or what was raised.
        ulp: Greatest error in units in the last place.
        absolute: Greatest absolute error.
        relative: Greatest relative error.
        part: Greatest error as a part of what is allowed.
    """

    node: str
    operator: str
    value: str
    location: str
    kind: Kind
    mode: FeedMode
    region: tuple[str, ...]
    sample: int = 0
    reason: str = ""
    ulp: float = 0.0
    absolute: float = 0.0
    relative: float = 0.0
    part: float = 0.0

    @property
    def failure(self) -> str:
        """What a smaller program has to show: kind, operator, and the words of an error."""
        words = findall(r"[^\W\d]{3,}", self.reason)[:_WORDS] if self.kind == "error" else ()
        return " ".join([self.kind, "of", self.operator, *words])

    def __str__(self) -> str:
        place = f"node {self.node!r} ({self.operator})" if self.node else "no node"
        lines = [f"{place}: {self.kind} of %{self.value}"]
        lines += [f"at {self.location}"] if self.location else []
        lines += [self.reason] if self.reason else []
        if len(self.region) > 1:
            lines.append(f"together with {', '.join(self.region[:-1])}")
        lines += [f"on sample {self.sample}"] if self.sample else []
        return report_text([lines[0], *[f"    {line}" for line in lines[1:]]])


@dataclass(frozen=True, slots=True)
class Comparison(Compared[NodeDivergence]):
    """What came of comparing two readers of a program.

    Attributes:
        model_name: Name of the program.
        run: What was judged.
        against: With what.
        nodes: How many nodes the program has.
        divergences: All that differ, in program order, those in isolation first.
        compared: Nodes whose own value was seen.
        covered: Nodes inside of a region whose results agree.
        not_compared: Why other nodes were not compared, by name.
        whole_run: Why a run as a whole, which was asked for, was not compared; empty if it was.
    """

    model_name: str
    run: str
    against: str
    nodes: int
    divergences: tuple[NodeDivergence, ...]
    compared: tuple[str, ...] = field(repr=False)
    covered: tuple[str, ...] = field(repr=False)
    not_compared: Mapping[str, str] = field(repr=False)
    whole_run: str = field(default="", repr=False)

    def worst(self) -> NodeDivergence | None:
        """Return the divergence that is off by the greatest part of what is allowed."""
        return max(self.divergences, key=lambda found: found.part, default=None)

    def table(self, top: int | None = None) -> str:
        """Format the divergences as a table, in program order; ``top`` many at most."""
        return table(self._rows(top)) if self.divergences else "no divergence"

    def _rows(self, top: int | None) -> list[tuple[str, ...]]:
        rows = [("node", "operator", "value", "kind", "mode", "ulp", "part", "location")]
        for found in self.divergences[:top]:
            place = found.location.partition(" in ")[0]
            numbers = f"{found.ulp:.3g}", f"{found.part:.3g}"
            told = (found.node, found.operator, found.value, found.kind, found.mode)
            rows.append((*told, *numbers, place))
        return rows

    def __str__(self) -> str:
        name = self.model_name or "the program"
        seen = f"{len(self.compared)} compared, {len(self.covered)} covered of {self.nodes}"
        verb = {"agree": "agrees with", "disagree": "DISAGREES with"}.get(
            self.verdict, "was NOT wholly compared with"
        )
        lines = [f"{self.run} {verb} {self.against} on {name}: {seen}"]
        for reason, count in Counter(self.not_compared.values()).items():
            names = [node for node, why in self.not_compared.items() if why == reason][:3]
            more = ", …" if count > 3 else ""
            lines.append(f"  not compared: {', '.join(names)}{more} ({count}): {reason}")
        if self.whole_run and self.whole_run not in self.not_compared.values():
            lines.append(f"  each node was compared alone, and the run was not: {self.whole_run}")
        if self.divergences:
            nodes = len({found.node for found in self.divergences})
            lines.append(f"  {counted(nodes, 'node')} diverge{'s' if nodes == 1 else ''}; first:")
            lines += [f"  {line}" for line in str(self.divergences[0]).split("\n")]
        return report_text(lines)

    def _grid(self) -> Rows:
        return self._rows(50)

    def to_dict(self) -> dict[str, Any]:
        """Convert the report to plain data; numbers that are not finite become text."""
        plain = {**asdict(self), "not_compared": dict(self.not_compared)}
        return {**plain_data(plain), "verdict": self.verdict}
