"""The support report: nodes that a backend runs, reasons for the rest, and its share of work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from torch_ir.arguments import public
from torch_ir.backends.backend_registry import find_backend, instance_of
from torch_ir.backends.partition import Partitioner
from torch_ir.backends.protocol import DelegateBackend, Supporting
from torch_ir.errors import ExecutionError, counted
from torch_ir.ir import IR, Location, OpNode, TensorMeta
from torch_ir.ir.diagnostics import at
from torch_ir.ops.flops import flops
from torch_ir.tables import Shown, report_text


@dataclass(frozen=True, slots=True)
class OperatorSupport:
    """The calls of one operator that fare alike.

    Attributes:
        operator: The exact overload.
        reason: Why the backend does not run them; empty where it does.
        nodes: Their names, in program order.
        flops: Floating-point operations of those whose count is known.
        unknown_flops: How many have none: an operator without a formula, or symbolic sizes.
        location: Where the first one that has a source line is written.
    """

    operator: str
    reason: str
    nodes: tuple[str, ...]
    flops: int
    unknown_flops: int
    location: Location | None

    def to_dict(self) -> dict[str, Any]:
        """Convert the record to plain values."""
        place = self.location
        return {
            "operator": self.operator,
            "supported": not self.reason,
            "reason": self.reason,
            "count": len(self.nodes),
            "nodes": list(self.nodes),
            "flops": self.flops,
            "unknown_flops": self.unknown_flops,
            "location": "" if place is None else str(place),
        }


@dataclass(frozen=True, slots=True)
class SupportReport(Shown):
    """What a backend runs of a program.

    Attributes:
        model: The name of the program.
        backend: The name of the backend.
        subgraphs: How many nodes each subgraph has that the backend takes.
        operators: The calls by operator and reason; first what is not supported, most calls first.
    """

    model: str
    backend: str
    subgraphs: tuple[int, ...]
    operators: tuple[OperatorSupport, ...] = field(repr=False)

    @property
    def supported_nodes(self) -> int:
        """How many nodes the backend runs."""
        return sum(len(row.nodes) for row in self.operators if not row.reason)

    @property
    def nodes(self) -> int:
        """How many nodes the program has."""
        return sum(len(row.nodes) for row in self.operators)

    @property
    def supported_flops(self) -> int:
        """The known floating-point operations that the backend runs."""
        return sum(row.flops for row in self.operators if not row.reason)

    @property
    def flops(self) -> int:
        """The known floating-point operations of the program."""
        return sum(row.flops for row in self.operators)

    @property
    def unknown_flops(self) -> int:
        """How many nodes have no count of floating-point operations."""
        return sum(row.unknown_flops for row in self.operators)

    def to_dict(self) -> dict[str, Any]:
        """Convert the report to plain values."""
        return {
            "model": self.model,
            "backend": self.backend,
            "nodes": self.nodes,
            "supported_nodes": self.supported_nodes,
            "flops": self.flops,
            "supported_flops": self.supported_flops,
            "unknown_flops": self.unknown_flops,
            "subgraphs": list(self.subgraphs),
            "operators": [row.to_dict() for row in self.operators],
        }

    def __str__(self) -> str:
        flops = f"{_share(self.supported_flops, self.flops)} of {self.flops:,} FLOPs"
        if self.unknown_flops:
            flops += f" (and {counted(self.unknown_flops, 'node')} without a count)"
        title = (
            f"{self.model or 'the program'} on {self.backend}: {self.supported_nodes} of "
            f"{counted(self.nodes, 'node')} in {counted(len(self.subgraphs), 'subgraph')}, {flops}"
        )
        refused = [row for row in self.operators if row.reason]
        taken = [row for row in self.operators if not row.reason]
        lines = [title]
        for heading, rows in (("not supported", refused), ("supported", taken)):
            lines += ["", heading] if rows else []
            for row in rows:
                lines.append(f"  {len(row.nodes):>5}  {row.operator}")
                lines += [f"         {row.reason}"] if row.reason else []
                if row.reason and row.location is not None:
                    lines.append(at(row.location, "         first {}"))
        return report_text(lines)


@public
def support(ir: IR, backend: Supporting | Partitioner) -> SupportReport:
    """Report which nodes of a program a backend runs, and why not the rest.

    Args:
        ir: A functional program; a runtime is asked about what it would be split up into.
        backend: The backend, or a partitioner with one.

    Raises:
        PassError: A node of the program writes to memory.
        InvalidIRError: The program is not well-formed.

    Example:
        >>> from torch_ir import parse
        >>> from torch_ir.backends import Support
        >>> class Nothing:
        ...     name = "nothing"
        ...     def supports(self, node, ir):
        ...         return Support.refused("it does nothing")
        >>> ir = parse('''ir "Relu" {
        ...   input %x: f32[2]
        ...   %a: f32[2] = aten.relu.default(%x)
        ...   return %a
        ... }''')
        >>> print(support(ir, Nothing()))
        Relu on nothing: 0 of 1 node in 0 subgraphs, 0% of 2 FLOPs
        <BLANKLINE>
        not supported
              1  aten.relu.default
                 it does nothing
    """
    ir.check(strict=True)
    partitioner = backend if isinstance(backend, Partitioner) else Partitioner(backend)
    if isinstance(partitioner.backend, DelegateBackend):
        ir = partitioner.backend.prepare(ir)
    partition = partitioner(ir)
    groups: dict[tuple[str, str], list[OpNode]] = {}
    for node in partition.ir.nodes:
        key = node.op_type, partition.reasons.get(node.name, "")
        groups.setdefault(key, []).append(node)
    rows = [_row(operator, reason, nodes) for (operator, reason), nodes in groups.items()]
    rows.sort(key=lambda row: (not row.reason, -len(row.nodes), row.operator, row.reason))
    sizes = tuple([len(nodes) for nodes in partition.subgraphs])
    return SupportReport(ir.model_name, partition.backend, sizes, tuple(rows))


def delegate_backend(name: str) -> DelegateBackend:
    """Look up the delegate backend of a name.

    Raises:
        ExecutionError: There is no backend of that name, or it says nothing of single operators.
    """
    return require_delegate(name, name if ":" in name else f"the backend {name!r}")


def require_delegate(found: object, name: str) -> DelegateBackend:
    """Return the backend that something is, which must report support per node.

    Raises:
        ExecutionError: It is none.
    """
    found = find_backend(found) if isinstance(found, str) else instance_of(found, name)
    if not isinstance(found, DelegateBackend):
        raise ExecutionError(
            f"{name} takes whole programs: it does not say which operators it supports",
            remedy="A backend that does is an instance of torch_ir.backends.DelegateBackend.",
        )
    return found


def _row(operator: str, reason: str, nodes: list[OpNode]) -> OperatorSupport:
    counts = [_flops(node) for node in nodes]
    places = [node.location for node in nodes if node.location is not None]
    return OperatorSupport(
        operator,
        reason,
        tuple([node.name for node in nodes]),
        sum(number for number in counts if number is not None),
        counts.count(None),
        places[0] if places else None,
    )


def _flops(node: OpNode) -> int | None:
    if not all(meta.is_static for meta in (*node.inputs, *node.outputs)):
        return None
    if node.operands is None:
        return None
    return flops(node.op_type, node.arguments(_shapes(node.inputs)), _shapes(node.outputs))


def _shapes(metas: Sequence[TensorMeta]) -> list[tuple[int, ...]]:
    return [cast(tuple[int, ...], meta.shape) for meta in metas]


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "0%"
