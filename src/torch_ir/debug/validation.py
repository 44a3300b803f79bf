"""The report of a validation: every node compared with its denotation and with eager."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import Any, Generic, Literal, TypeVar

from torch_ir.errors import counted, printable
from torch_ir.ir.diagnostics import at
from torch_ir.tables import Shown, report_text, table

Reader = Literal["memory", "denotation", "eager"]
FaultKind = Literal["place", "view", "copy", "shared", "changed", "spill", "state"]
"""What is wrong with the memory of a value: it is read from another place than that where it was
made, is a view of the wrong place, a copy and no view, lies where it must not, has changed though
nothing wrote to it, is written beside what is meant, or is left in another state."""
Verdict = Literal["agree", "disagree", "not compared"]
"""What a comparison comes to; that nothing was compared is not that all is equal."""

EXIT_STATUS: Mapping[Verdict, int] = {"agree": 0, "disagree": 1, "not compared": 3}
"""The exit status of a command for each verdict."""

_NAMED = 3
"""How many nodes that were not compared the first line names."""


@dataclass(frozen=True, slots=True)
class NodeError:
    """A value of a node that is not exactly what another reader of the IR gives.

    Attributes:
        node: Name of the node.
        operator: Its operator.
        value: Name of the value; ``written x`` for what the node left in its input ``x``.
        reader: What it was compared with: ``"denotation"``, ``"eager"``, or ``"memory"`` (itself,
            as it was when it was made).
        ulp: Greatest error, in units in the last place of the expected value; 0 for integers.
        absolute: Greatest absolute error.
        relative: Greatest error relative to the expected value, where that is not 0.
        part: Greatest error as a part of what is allowed.
    """

    node: str
    operator: str
    value: str
    reader: Reader
    ulp: float
    absolute: float
    relative: float
    part: float


@dataclass(frozen=True, slots=True)
class Divergence(Shown):
    """A node on which two readers of the IR disagree.

    Attributes:
        node: Name of the node; empty for an input or weight that no node reads.
        text: Its IR text.
        location: The user's source line and module; empty if unknown.
        value: Name of the value that differs.
        reader: What disagrees with the compiled graph.
        reason: How.
        memory: What is wrong with its memory, or None.
        delegate: Name of the function that a backend ran; empty for what torch ran.
    """

    node: str
    text: str
    location: str
    value: str
    reader: Reader
    reason: str
    memory: FaultKind | None = None
    delegate: str = ""

    def __str__(self) -> str:
        place = [at(self.location)] if self.location else []
        place += [f"in the delegate {self.delegate!r}"] if self.delegate else []
        readers = {"memory": "a later read", "denotation": "the denotation", "eager": "eager"}
        other = readers[self.reader] if self.memory in (None, "changed") else "its memory"
        reason = f"%{self.value} and {other} disagree: {self.reason}"
        if not self.node:
            return printable(reason)
        disagree = f"node {self.node!r}: {reason}"
        return "\n    ".join(map(printable, (disagree, self.text, *place)))


D = TypeVar("D")


class Compared(Shown, Generic[D]):
    """A report on nodes that readers were asked about, and where these diverge."""

    __slots__ = ()
    divergences: tuple[D, ...]
    not_compared: Mapping[str, str]

    @property
    def verdict(self) -> Verdict:
        """What the comparison comes to.

        A divergence is a disagreement, and where there is none, a node that no reader read leaves
        the program not compared.
        """
        if self.divergences:
            return "disagree"
        return "not compared" if self.not_compared else "agree"

    @property
    def first(self) -> D | None:
        """The first divergence, or None."""
        return self.divergences[0] if self.divergences else None


@dataclass(frozen=True, slots=True)
class ValidationReport(Compared[Divergence]):
    """Every node of a run, compared.

    Attributes:
        model_name: Name of the program.
        against: What the nodes were compared with.
        nodes: How many there are.
        compared: How many were compared with each reader, by their values; where an operator
            leaves values open, as ``empty_like``, shape and type are all that there is.
        decomposed: How many were denoted by what they are made of.
        random: Names of those of which only shapes and types could be compared, as they draw
            random numbers.
        undenoted: Why nodes could not be denoted, by name.
        errors: Every value that is not exactly what a reader gives, in program order.
        divergences: Those that differ by more than is allowed, in program order.
        not_compared: Why no reader that was asked for read the values of a node, by name.
        run_by_torch: How many delegates of a backend torch ran in its place, by its name.
        taken: How many nodes of how many each backend that was asked takes, by its name.
    """

    model_name: str
    against: tuple[Reader, ...]
    nodes: int
    compared: Mapping[str, int]
    decomposed: int
    random: tuple[str, ...] = field(repr=False)
    undenoted: Mapping[str, str] = field(repr=False)
    errors: tuple[NodeError, ...] = field(repr=False)
    divergences: tuple[Divergence, ...] = field(repr=False)
    not_compared: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    run_by_torch: Mapping[str, int] = field(default_factory=dict[str, int], repr=False)
    taken: Mapping[str, tuple[int, int]] = field(
        default_factory=dict[str, tuple[int, int]], repr=False
    )

    @property
    def is_valid(self) -> bool:
        """Whether the verdict is that all agree."""
        return self.verdict == "agree"

    def worst(self, reader: Reader = "denotation") -> dict[str, NodeError]:
        """Find for each operator the value that uses up most of its tolerance; the worst first."""
        found: dict[str, NodeError] = {}
        for error in self.errors:
            known = found.get(error.operator)
            if error.reader == reader and (known is None or error.part > known.part):
                found[error.operator] = error
        return dict(sorted(found.items(), key=lambda item: -item[1].part))

    def table(self, top: int | None = None) -> str:
        """Format the worst value of each operator against its denotation as a table."""
        rows: list[tuple[str, ...]] = [
            ("operator", "value", "ulp", "absolute", "relative", "of allowed")
        ]
        for operator, error in list(self.worst().items())[:top]:
            numbers = (error.ulp, error.absolute, error.relative, error.part)
            rows.append((operator, f"%{error.value}", *[f"{number:.3g}" for number in numbers]))
        if len(rows) == 1:
            return "all values are exactly what they mean"
        return table(rows, align=("left", "left", "right", "right", "right", "right"))

    def __str__(self) -> str:
        lines = [self._headline()]
        for reader in self.against:
            extra = f", {self.decomposed} by decomposition" if reader == "denotation" else ""
            lines.append(f"  {reader}: {self.compared[reader]} compared{extra}")
        if self.random:
            lines.append(f"  random, shapes and types only: {', '.join(self.random)}")
        if self.undenoted:
            lines.append(f"  without denotation: {self._undenoted()}")
        for reason, count in Counter(self.not_compared.values()).items():
            lines.append(f"  not compared: {reason} ({count})")
        for backend, (count, nodes) in self.taken.items():
            lines.append(f"  backend {backend!r}: {count} of {counted(nodes, 'node')}")
        for backend, count in self.run_by_torch.items():
            were = f"{counted(count, 'delegate')} {'was' if count == 1 else 'were'}"
            lines.append(f"  {were} run by torch, not by backend {backend!r}")
        if self.divergences:
            count = len({divergence.node for divergence in self.divergences})
            lines.append(f"  {counted(count, 'node')} diverge{'s' if count == 1 else ''}; first:")
            lines += f"  {self.divergences[0]}".split("\n")
        return report_text(lines)

    def _headline(self) -> str:
        name = self.model_name or "the program"
        if self.divergences:
            return f"readers DISAGREE on {name}: {counted(self.nodes, 'node')}"
        is_whole = all(self.compared[reader] == self.nodes for reader in self.against)
        if is_whole and self.is_valid:
            return f"all readers agree on {name}: {counted(self.nodes, 'node')}"
        read = [f"{reader} {self.compared[reader]} of {self.nodes}" for reader in self.against]
        left = list(self.not_compared)
        names = ", ".join([*left[:_NAMED], *["\u2026"] * (len(left) > _NAMED)])
        told = [", ".join(read)] if read else []
        told += [f"{len(left)} NOT compared ({names})"] if left else []
        return f"no reader disagrees on {name}: {'; '.join(told)}"

    def _undenoted(self) -> str:
        reasons = Counter(self.undenoted.values())
        return "; ".join(f"{reason} ({count})" for reason, count in reasons.items())

    def _picture(self) -> str:
        from torch_ir.viz.plots import plot

        return plot(self).svg if self.errors else ""

    def to_dict(self) -> dict[str, Any]:
        """Convert the report to plain data; numbers that are not finite become text."""
        return {**plain_data(asdict(self)), "verdict": self.verdict, "is_valid": self.is_valid}


def plain_data(value: Any) -> Any:
    """Convert a value to what JSON has: numbers that are not finite become text."""
    if isinstance(value, dict):
        return {key: plain_data(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_data(item) for item in value]
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    return value
