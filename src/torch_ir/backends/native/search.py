"""The search for delegates that a runtime takes and gets right: by halving what it does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from torch_ir.backends.delegate import function_of
from torch_ir.backends.native.attempts import Attempt, Attempts
from torch_ir.backends.native.choices import OTHERWISE, chosen_otherwise
from torch_ir.backends.native.native_backend import facts_of
from torch_ir.backends.native.withheld import withheld
from torch_ir.backends.partition import Partition, Partitioner
from torch_ir.backends.protocol import Support, support_of
from torch_ir.ir import IR, OpNode


@dataclass(frozen=True, slots=True)
class Searched:
    """What a runtime runs of a program.

    Attributes:
        partition: The subgraphs, each of which was tried.
        attempts: The attempt at each of them, by the name of its first node.
        refused: The attempts at single nodes that it refuses or gets wrong, by name; and those
            that were not tried alone, as the time was up.
    """

    partition: Partition
    attempts: Mapping[str, Attempt]
    refused: Mapping[str, Attempt]


@dataclass(slots=True)
class Search:
    """Finds what a runtime runs of a program.

    Halves of a subgraph in program order are convex: no path leads out of one and back.
    """

    attempts: Attempts
    refused: dict[str, Attempt] = field(default_factory=dict[str, Attempt])

    def run(self) -> Searched:
        """Partition the program, try each subgraph, halve what fails, and partition again."""
        partition = self._partition()
        if self._leave_choices([node for nodes in partition.subgraphs for node in nodes]):
            partition = self._partition()
        pieces = [piece for nodes in partition.subgraphs for piece in self._pieces(nodes)]
        if self.refused and not self.attempts.is_late:
            partition = self._partition()
            pieces = [piece for nodes in partition.subgraphs for piece in self._pieces(nodes)]
        reasons = {
            **partition.reasons,
            **{name: self.reason(name) for name in self.refused},
        }
        done = replace(partition, subgraphs=tuple(pieces), reasons=reasons)
        tried = {nodes[0].name: self.attempts.of(nodes) for nodes in pieces}
        return Searched(done, tried, self.refused)

    def _leave_choices(self, nodes: Sequence[OpNode]) -> bool:
        """Refuse the nodes that choose otherwise on torch; return whether there are any."""
        tries = self.attempts
        if tries.options.verify is False:
            return False
        for node in chosen_otherwise(tries.ir, nodes, tries.samples):
            body = function_of(tries.ir, [node], node.outputs, node.name, tries.backend.name)
            self.refused[node.name] = Attempt(body, {}, reason=OTHERWISE)
        return bool(self.refused)

    def reason(self, name: str) -> str:
        """Return why a node is refused."""
        return self.refused[name].reason

    def _partition(self) -> Partition:
        return Partitioner(_Denying(self))(self.attempts.ir)

    def _pieces(self, nodes: Sequence[OpNode]) -> list[tuple[OpNode, ...]]:
        """The parts of a subgraph that are right, as large as halving finds them."""
        nodes = [node for node in nodes if node.name not in self.refused]
        if not nodes:
            return []
        attempt = self.attempts.of(nodes)
        if not attempt.reason:
            return [tuple(nodes)]
        if len(nodes) == 1 or self.attempts.is_late:
            if len(nodes) > 1:
                late = f"the time is up for finding the node that is at fault: {attempt.reason}"
                attempt = replace(attempt, reason=late)
            self.refused.update(dict.fromkeys([node.name for node in nodes], attempt))
            return []
        half = len(nodes) // 2
        return [*self._pieces(nodes[:half]), *self._pieces(nodes[half:])]


@dataclass(frozen=True, slots=True)
class _Denying:
    """The backend of a search, without the nodes that it was found to refuse."""

    search: Search

    @property
    def name(self) -> str:
        return self.search.attempts.backend.name

    def supports(self, node: OpNode, ir: IR) -> Support:
        if node.name in self.search.refused:
            return Support.refused(self.search.reason(node.name))
        if reason := withheld(node, ir):
            return Support.refused(reason)
        options, inexact = self.search.attempts.options, facts_of(self.name).inexact
        if node.op_type in inexact and options.tolerance is None and options.verify is not False:
            return Support.refused(inexact[node.op_type])
        return support_of(self.search.attempts.backend, node, ir)
