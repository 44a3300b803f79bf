"""The assignment of a program's nodes to backends, in order of preference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch_ir.backends.delegate import BACKEND, delegated
from torch_ir.backends.partition import Partition, Partitioner
from torch_ir.backends.protocol import DelegateBackend
from torch_ir.errors import BackendError, CompileError, counted
from torch_ir.ir import IR, OpNode
from torch_ir.ir.diagnostics import Diagnostic, about, at
from torch_ir.ir.functions import written_out
from torch_ir.tables import table


@dataclass(frozen=True, slots=True, repr=False)
class Assignment:
    """What of a program each of several backends takes.

    Attributes:
        ir: The program with the subgraphs of each backend as functions, each called by one node.
        nodes: The nodes of the program as it was, in order.
        takers: The name of the backend that takes a node, by the node's name.
        reasons: Why each backend that was asked does not take a node, by the node's name.

    Its ``str`` is a table with a row for each node.
    """

    ir: IR
    nodes: tuple[OpNode, ...]
    takers: Mapping[str, str]
    reasons: Mapping[str, Mapping[str, str]]

    def __repr__(self) -> str:
        parts = [f"{name}: {count}" for name, count in self.counts.items()]
        return f"Assignment({', '.join([*parts, f'left: {len(self.left)}'])})"

    def __str__(self) -> str:
        rows = [("node", "operator", "backend", "why not the others")]
        for node in self.nodes:
            why = [f"{name}: {reason}" for name, reason in self.reasons.get(node.name, {}).items()]
            taker = self.takers.get(node.name, "")
            rows.append((f"%{node.name}", node.op_type, taker, "; ".join(why)))
        return table(rows)

    @property
    def counts(self) -> Mapping[str, int]:
        """How many nodes each backend takes that was asked, by its name."""
        taken = Counter(self.takers.values())
        asked = [name for why in self.reasons.values() for name in why]
        return {name: taken[name] for name in (*taken, *asked)}

    @property
    def left(self) -> tuple[OpNode, ...]:
        """The nodes that no backend takes."""
        return tuple([node for node in self.nodes if node.name not in self.takers])

    def after(self, backend: str, partition: Partition) -> Assignment:
        """Return the assignment after one more backend took its part of what was left.

        Args:
            backend: Its name.
            partition: What it takes of the program, and why not the rest.
        """
        taken = {n.name: backend for nodes in partition.subgraphs for n in nodes}
        reasons = {name: dict(why) for name, why in self.reasons.items()}
        own = {node.name for node in self.nodes}
        for name, reason in partition.reasons.items():
            if name in own:
                reasons.setdefault(name, {})[backend] = reason
        return Assignment(delegated(partition), self.nodes, {**self.takers, **taken}, reasons)

    def subgraphs(self, backend: str) -> int:
        """Count the subgraphs that a backend takes."""
        return sum(f.metadata.get(BACKEND) == backend for f in self.ir.functions.values())


def assign(ir: IR, backends: Sequence[DelegateBackend]) -> Assignment:
    """Let each backend in turn take the nodes that it can of those left.

    Args:
        ir: A functional program.
        backends: The backends, the preferred first.

    Raises:
        BackendError: Two backends have one name.
        PassError: A node of the program writes to memory.

    Example:
        >>> from torch_ir import parse
        >>> from torch_ir.backends import SUPPORTED, Support
        >>> class One:
        ...     def __init__(self, name, operator):
        ...         self.name, self.operator = name, operator
        ...     def supports(self, node, ir):
        ...         taken = node.op_type == self.operator
        ...         return SUPPORTED if taken else Support.refused(f"it is no {self.operator}")
        >>> ir = parse('''ir {
        ...   input %x: f32[2]
        ...   %a: f32[2] = aten.relu.default(%x)
        ...   %b: f32[2] = aten.neg.default(%a)
        ...   return %b
        ... }''')
        >>> found = assign(ir, [One("m", "aten.neg.default"), One("n", "aten.relu.default")])
        >>> dict(found.takers), found.left
        ({'b': 'm', 'a': 'n'}, ())
        >>> found
        Assignment(m: 1, n: 1, left: 0)
        >>> print(found)
        node  operator           backend  why not the others
        %a    aten.relu.default  n        m: it is no aten.neg.default
        %b    aten.neg.default   m
    """
    require_own_names(backends)
    ir = written_out(ir)
    found = Assignment(ir, tuple(ir.nodes), {}, {})
    for backend in backends:
        found = found.after(backend.name, Partitioner(backend)(found.ir))
    return found


def require_own_names(backends: Sequence[DelegateBackend]) -> None:
    """Require that no two backends of a program have one name, by which delegates are known.

    Raises:
        BackendError: Two have.
    """
    names = [backend.name for backend in backends]
    for name in names:
        if names.count(name) > 1:
            raise BackendError(
                f"{names.count(name)} of the backends are named {name!r}",
                remedy="Name each once; delegates are known by the names of their backends.",
            )


def left_over(
    found: Assignment,
    backends: Sequence[str],
    remedy: str = "Let torch run the rest: add 'aten' to the executors.",
) -> CompileError:
    """Return the error for nodes that no backend takes, with reason and source of each."""
    left = {node.name for node in found.left}
    reasons = {name: list(why.values()) for name, why in found.reasons.items() if name in left}
    if len(backends) > 1:
        reasons = {name: [f"{b}: {w}" for b, w in found.reasons[name].items()] for name in left}
    return refused_nodes(found.left, found.nodes, backends, reasons, remedy)


def refused_nodes(
    left: Sequence[OpNode],
    nodes: Sequence[OpNode],
    backends: Sequence[str],
    reasons: Mapping[str, Sequence[str]],
    remedy: str,
) -> CompileError:
    """Return the error for nodes that backends refuse, with the reasons for each."""
    found = [about(Diagnostic("not-taken", "; ".join(reasons[node.name])), node) for node in left]
    names = " and ".join([repr(name) for name in backends])
    return CompileError(
        f"{names} {'does' if len(backends) == 1 else 'do'} not take {len(left)} of "
        f"{counted(len(nodes), 'node')}",
        picture="\n".join([f"- {not_taken(diagnostic)}" for diagnostic in found]),
        remedy=remedy,
        diagnostics=tuple(found),
    )


def not_taken(found: Diagnostic) -> str:
    """Return the line about a node that no backend takes."""
    return f"%{found.node}: {found.op_type}: {found.message}{at(found.location, ' ({})')}"
