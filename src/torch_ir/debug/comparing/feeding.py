"""The other side of a comparison, which feeds the parts of a program that is judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from torch_ir.backends.delegating import listed
from torch_ir.backends.partition import Partitioner
from torch_ir.backends.protocol import SUPPORTED, Support
from torch_ir.debug.comparing.sources import (
    AnySource,
    BackendSource,
    GraphSource,
    LoweredSource,
    PartSource,
    Symbols,
    TorchSource,
    Values,
    part_of,
)
from torch_ir.errors import (
    BackendError,
    InvalidIRError,
    TorchIRError,
    counted,
    error_text,
    raised_as,
)
from torch_ir.executor import IRExecutor
from torch_ir.ir import IR, OpNode
from torch_ir.ir.queries import live_out
from torch_ir.torch_memory import copied

Nodes = Sequence[OpNode]


class OwnKernels:
    """The kernels of a compiled graph, one node at a time."""

    name = "graph"

    def __init__(self, ir: IR):
        self._ir = ir

    def call(self, body: IR, values: Values, symbols: Symbols) -> Sequence[torch.Tensor]:
        """Run a part with the kernels that the graph has for it."""
        own = [self._ir.by_name.get(node.name, node) for node in body.nodes]
        kept = [
            node.replace(op_type=mine.op_type) if mine.inputs == node.inputs else node
            for node, mine in zip(body.nodes, own, strict=True)
        ]
        inputs = copied([values[name] for name in body.input_names])
        return IRExecutor(body.replace(nodes=kept), {}).graph.run(inputs, {})[0]


class _Taker:
    """A backend that takes nodes by name, for the partition of a runner."""

    def __init__(self, name: str, names: Mapping[str, int]):
        self.name = name
        self._names = names

    def supports(self, node: OpNode, ir: IR) -> Support:
        """Return whether the runner has the node in a delegate."""
        return SUPPORTED if node.name in self._names else Support.refused("torch runs it")


def parts_of(source: BackendSource, program: IR) -> tuple[Sequence[Nodes], Nodes]:
    """Return the nodes of each part that a backend or a runner takes, and an order of all nodes.

    In this order the nodes of a part stand side by side.
    """
    names = {name: index for index, key in enumerate(source.ready) for name in key[0]}
    if not names:
        partition = Partitioner(source.backend)(program)
        return partition.subgraphs, partition.order
    groups: list[Nodes] = [
        tuple([node for node in program.nodes if names.get(node.name) == index])
        for index in range(len(source.ready))
    ]
    partition = Partitioner(_Taker(source.name, names))(program)
    return partition.subgraphs or groups, partition.order


@dataclass
class BackendFeed:
    """A backend as the other side: it runs what it takes of a part, and torch the rest.

    Attributes:
        source: The backend.
        program: The program, of which parts are run.
    """

    source: BackendSource
    program: IR

    @property
    def name(self) -> str:
        """The backend's name."""
        return self.source.name

    @cached_property
    def _parts(self) -> list[tuple[tuple[str, ...], bool]]:
        """The names of nodes that run together, in an order in which they can, and by whom."""
        groups, order = parts_of(self.source, self.program)
        taken = {node.name: nodes for nodes in groups for node in nodes}
        found: dict[tuple[str, ...], bool] = {}
        for node in order:
            nodes = taken.get(node.name, (node,))
            found[tuple([inside.name for inside in nodes])] = node.name in taken
        return list(found.items())

    def call(self, body: IR, values: Values, symbols: Symbols) -> Sequence[torch.Tensor]:
        """Run a part.

        Raises:
            BackendError: The backend fails, or gives other results than were asked for.
        """
        inside = {node.name: node for node in body.nodes}
        known, sizes = dict(values), dict(symbols)
        for names, is_taken in self._parts:
            nodes = [inside[name] for name in names if name in inside]
            if is_taken and nodes:
                known |= self._delegated(body, nodes, known, sizes)
                continue
            for node in nodes:
                known |= TorchSource().results(body, node, known, sizes)
        return [known[meta.name] for meta in body.graph_outputs]

    def _delegated(
        self, body: IR, nodes: Nodes, known: Values, symbols: Symbols
    ) -> dict[str, torch.Tensor]:
        part = part_of(body, nodes, live_out(body, nodes))
        told = f"the backend {self.name!r}, of {counted(len(nodes), 'node')}, the first"
        told += f" {nodes[0].name!r}"
        with raised_as(
            lambda error: BackendError(f"{told}, failed: {error_text(error)}", node=nodes[0].name),
            passing=(TorchIRError,),
        ):
            made = listed(self.source.call(part, known, symbols))
        if len(made) != len(part.output_names):
            raise BackendError(
                f"{told}, gave {counted(len(made), 'result')}, not {len(part.output_names)}",
                node=nodes[0].name,
            )
        return dict(zip(part.output_names, made, strict=True))


def feeding(source: AnySource, program: IR) -> PartSource:
    """Return what makes the values of the other side.

    Args:
        source: The other side.
        program: The program that is compared.

    Raises:
        InvalidIRError: It cannot be fed.
    """
    if isinstance(source, GraphSource):
        return TorchSource("aten")
    if isinstance(source, LoweredSource):
        raise InvalidIRError(
            "a lowered program cannot be what is compared with",
            remedy="Give it as run=, and the program that it was made from as the first one.",
        )
    return BackendFeed(source, program) if isinstance(source, BackendSource) else source
