"""The report of which executor runs which node of a traced program, and why others do not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch_ir.errors import counted
from torch_ir.ir import IR, Location, OpNode
from torch_ir.tables import Shown, report_text, table


@dataclass(frozen=True, slots=True)
class NodeReport:
    """What runs a node.

    Attributes:
        name: The node.
        operator: Its exact overload.
        executor: The name of the executor that runs it.
        refused: Why each executor that was preferred does not, by name.
        location: Where it is written.
    """

    name: str
    operator: str
    executor: str
    refused: Mapping[str, str]
    location: Location | None


@dataclass(frozen=True, slots=True)
class ExecutorReport(Shown):
    """What runs the program of a call.

    Attributes:
        title: The function, with the types of its tensors.
        nodes: Its nodes, in program order.
        subgraphs: In how many subgraphs each executor that takes parts has its nodes.
        refused: Why each preferred executor does not take the whole program, by name.
    """

    title: str
    nodes: tuple[NodeReport, ...] = field(repr=False)
    subgraphs: Mapping[str, int]
    refused: Mapping[str, str] = field(repr=False)

    def nodes_of(self, executor: str) -> tuple[str, ...]:
        """Return the names of the nodes that an executor runs."""
        return tuple([node.name for node in self.nodes if node.executor == executor])

    @property
    def executors(self) -> tuple[str, ...]:
        """The executors that run nodes, in the order of their first nodes."""
        return tuple(dict.fromkeys([node.executor for node in self.nodes]))

    def to_dict(self) -> dict[str, Any]:
        """Convert the report to plain values."""
        return {
            "title": self.title,
            "subgraphs": dict(self.subgraphs),
            "refused": dict(self.refused),
            "nodes": [
                {
                    "name": node.name,
                    "operator": node.operator,
                    "executor": node.executor,
                    "refused": dict(node.refused),
                    "location": "" if node.location is None else str(node.location),
                }
                for node in self.nodes
            ],
        }

    def __str__(self) -> str:
        shares = [self._share(executor) for executor in self.executors]
        lines = [f"{self.title}: {', '.join(shares) or 'no nodes'}"]
        rows: list[tuple[str, str]] = []
        for node in self.nodes:
            reasons = "; ".join([f"{name}: {why}" for name, why in node.refused.items()])
            text = f"%{node.name}: {node.operator}"
            rows.append((node.executor, f"{text}  ({reasons})" if reasons else text))
        lines += [table(rows, align=("left", "left"), indent="  ")] if rows else []
        idle = [name for name in self.refused if name not in self.executors]
        lines += [f"{name} does not run it: {self.refused[name]}" for name in idle]
        return report_text("\n".join(lines).split("\n"))

    def _share(self, executor: str) -> str:
        text = f"{executor} {len(self.nodes_of(executor))} of {counted(len(self.nodes), 'node')}"
        count = self.subgraphs.get(executor)
        return text if count is None else f"{text} in {counted(count, 'subgraph')}"


def whole(ir: IR, executor: str) -> tuple[NodeReport, ...]:
    """Return the rows of a program that one executor runs."""
    return tuple([row(node, executor, {}) for node in ir.nodes])


def row(node: OpNode, executor: str, refused: Mapping[str, str]) -> NodeReport:
    """Make the row of one node."""
    return NodeReport(node.name, node.op_type, executor, dict(refused), node.location)
