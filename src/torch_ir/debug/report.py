"""Profiles: times per node, per operator and per module, as a table and as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from torch_ir.debug.trace import chrome_trace
from torch_ir.errors import counted, printable
from torch_ir.ir.analysis.groups import Grouped
from torch_ir.tables import bytes_text, module_paths, number_text, table, time_text


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
        return self.table()

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
