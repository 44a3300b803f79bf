"""Profiles: times per node, per operator and per module, as a table and as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from torch_ir.errors import counted, printable
from torch_ir.ir.analysis.groups import Grouped, nested_spans
from torch_ir.tables import bytes_text, module_paths, number_text, report_text, table, time_text


@dataclass(frozen=True, slots=True)
class NodeProfile:
    """One node as it ran.

    Attributes:
        node: Its name.
        operator: The exact overload.
        module: Path of the module that made the call; empty for the root.
        location: The user's source line, or the empty string.
        inputs: Types of the tensors that it took, such as ``f32[2, 3]``.
        outputs: Types of the tensors that it made.
        seconds: Median wall time of a call.
        bytes_read: Bytes of the elements that it reads.
        bytes_written: Bytes of the elements that it writes; a view reads and writes none.
        flops: Arithmetic operations, or None if nobody knows.
        sources: The nodes whose results it takes, each once.
    """

    node: str
    operator: str
    module: str
    location: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    seconds: float
    bytes_read: int
    bytes_written: int
    flops: int | None
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """Some nodes together.

    Attributes:
        name: What they have in common.
        nodes: How many they are.
        seconds: Their time.
        share: Its part of the time of all nodes, from 0 to 1.
        bytes_read: Bytes that they read.
        bytes_written: Bytes that they write.
        flops: Arithmetic operations of those whose number is known.
        unknown: How many have no known number of operations.
    """

    name: str
    nodes: int
    seconds: float
    share: float
    bytes_read: int
    bytes_written: int
    flops: int
    unknown: int


@dataclass(frozen=True, slots=True)
class Profile(Grouped[NodeProfile, Group]):
    """Where the time of a program goes.

    Attributes:
        model_name: Name of the program.
        nodes: Every node, in program order.
        repeat: Number of runs whose medians these are.
        threads: Threads that torch computes with.
        device: Where it ran.
        plain_seconds: Median wall time of a whole run that nobody watches.
        watched_seconds: The same with the watch on every node: how much watching costs.
    """

    noun: ClassVar[str] = "a profile"

    model_name: str
    nodes: tuple[NodeProfile, ...] = field(repr=False)
    repeat: int
    threads: int
    device: str
    plain_seconds: float
    watched_seconds: float

    @property
    def seconds(self) -> float:
        """The sum over all nodes."""
        return sum(node.seconds for node in self.nodes)

    def _group(self, name: str, nodes: Sequence[NodeProfile]) -> Group:
        seconds = sum(node.seconds for node in nodes)
        return Group(
            name,
            len(nodes),
            seconds,
            seconds / (self.seconds or 1.0),
            sum(node.bytes_read for node in nodes),
            sum(node.bytes_written for node in nodes),
            sum(node.flops or 0 for node in nodes),
            sum(node.flops is None for node in nodes),
        )

    def _weight(self, group: Group) -> float:
        return group.seconds

    def __str__(self) -> str:
        return report_text(self.table().split("\n"))

    def table(self, by: str = "operator", top: int | None = None) -> str:
        """Format the groups as a table, under two lines on the whole run.

        Args:
            by: ``"node"``, ``"operator"`` or ``"module"``.
            top: Show only so many, those that take the most time; None for all.

        Raises:
            InvalidIRError: There are no such groups.
        """
        shown, more = self._top(by, top)
        labels = {group.name: group.name for group in shown}
        if by == "node":
            labels = {node.node: f"{node.node}  {node.operator}" for node in self.nodes}
        elif by == "module":
            labels = {path: _indented(path) for path in labels}
        rows = [("time", "share", "nodes", "read", "written", "FLOPs", by)]
        rows += [(*_cells(group), labels[group.name]) for group in shown]
        lines = [*map(printable, self._headline()), "", table(rows, align=_SIDES)]
        return "\n".join([*lines, *([f"and {more} more"] if more else [])])

    def _headline(self) -> list[str]:
        return [
            f"{self.model_name or '(no name)'}: {counted(len(self.nodes), 'node')} in "
            f"{time_text(self.seconds)}, on {self.device} with "
            f"{counted(self.threads, 'thread')}; medians of {counted(self.repeat, 'run')}",
            f"a whole run takes {time_text(self.plain_seconds)}, "
            f"{time_text(self.watched_seconds)} when watched",
        ]

    def to_dict(self) -> dict[str, Any]:
        """Convert the profile to plain data, with the groups."""
        data = asdict(self)
        for node in data["nodes"]:
            del node["sources"]  # the program says it
        return {
            **data,
            "seconds": self.seconds,
            "operators": [asdict(group) for group in self.by_operator()],
            "modules": [asdict(group) for group in self.by_module()],
        }

    def _picture(self) -> str:
        from torch_ir.viz.plots import plot

        return plot(self, "treemap").svg

    def to_chrome_trace(self) -> dict[str, Any]:
        """Convert the profile to the trace event format of chrome://tracing and Perfetto.

        The nodes stand end to end, each for its median time, inside slices for the modules.
        """
        return chrome_trace(self.model_name, self.nodes)


_SIDES = ("right", "right", "right", "right", "right", "right", "left")


def _indented(path: str) -> str:
    return "  " * (len(module_paths(path)) - 1) + path.rpartition(".")[2] if path else "(root)"


def _cells(group: Group) -> tuple[str, ...]:
    known = group.unknown < group.nodes
    flops = f"{'>=' if group.unknown else ''}{number_text(group.flops)}" if known else "unknown"
    return (
        time_text(group.seconds),
        f"{group.share:.1%}",
        str(group.nodes),
        bytes_text(group.bytes_read),
        bytes_text(group.bytes_written),
        flops,
    )


# -- traces ---------------------------------------------------------------------------------------


def chrome_trace(name: str, nodes: Sequence[NodeProfile]) -> dict[str, Any]:
    """Lay nodes end to end, inside slices for their modules, with arrows along the values.

    Times are in microseconds, to the nanosecond. Of events at one time, the slices around others
    come first and the arrows last: readers nest and bind them in the order of the file.
    """
    titles = [
        {"name": f"{kind}_name", "ph": "M", "pid": 0, "tid": 0, "args": {"name": title}}
        for kind, title in (("process", name or "model"), ("thread", "nodes"))
    ]
    events: list[dict[str, Any]] = []
    now = 0
    ends: dict[str, int] = {}
    arrows = 0
    for node in nodes:
        duration = round(node.seconds * 1e9)
        events.append(_slice(node.operator, "node", now, duration, _arguments(node)))
        for source in node.sources:
            if source in ends:
                arrows += 1
                events += [_arrow("s", arrows, ends[source]), _arrow("f", arrows, now)]
        ends[node.node] = now + max(duration - 1, 0)  # an arrow starts inside its slice
        now += duration
    inside = [(module_paths(node.module)[1:], round(node.seconds * 1e9)) for node in nodes]
    for _, path, start, end in nested_spans(inside):
        events.append(_slice(path, "module", start, end - start, {}))
    events.reverse()  # modules that take equal time were closed from the inside out
    events.sort(key=lambda event: (event["ts"], -event.get("dur", -1), event["cat"]))
    return {"traceEvents": [*titles, *events], "displayTimeUnit": "ns"}


def _slice(
    name: str, category: str, start: float, duration: float, arguments: dict[str, Any]
) -> dict[str, Any]:
    """One slice; both times come in nanoseconds."""
    times = {"ts": start / 1000, "dur": duration / 1000}
    return {
        "name": name, "cat": category, "ph": "X", **times, "pid": 0, "tid": 0, "args": arguments
    }  # fmt: skip


def _arrow(phase: str, number: int, at: int) -> dict[str, Any]:
    """One end of a flow event: the start in the node that makes a value, the end in its user."""
    flow = {"name": "value", "cat": "value", "ph": phase, "id": number, "ts": at / 1000}
    return {**flow, "pid": 0, "tid": 0, **({"bp": "e"} if phase == "f" else {})}


def _arguments(node: NodeProfile) -> dict[str, Any]:
    return {
        "node": node.node,
        "operator": node.operator,
        "inputs": list(node.inputs),
        "outputs": list(node.outputs),
        "source": node.location,
        "bytes_read": node.bytes_read,
        "bytes_written": node.bytes_written,
        "flops": node.flops,
    }
