"""Runs of nodes of one module, for text that shows a large model at a glance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from torch_ir.errors import InvalidIRError, counted, printable
from torch_ir.ir.graph import IR
from torch_ir.ir.node import OpNode
from torch_ir.ir.tensor import TensorMeta


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive nodes of one module.

    Attributes:
        module: Path of the module, cut at the depth that was asked for.
        module_type: Its class without the package, or empty if no node names it.
        count: How many nodes.
        inputs: What they take from other nodes and from the graph's inputs.
        outputs: What other nodes and the graph take from them.
    """

    module: str
    module_type: str
    count: int
    inputs: tuple[TensorMeta, ...]
    outputs: tuple[TensorMeta, ...]

    def __str__(self) -> str:
        kind = f" ({self.module_type})" if self.module_type else ""
        nodes = counted(self.count, "node")
        flow = " -> ".join(", ".join(map(str, metas)) for metas in (self.inputs, self.outputs))
        return printable(f"# {self.module}{kind}: {nodes}, {flow}".rstrip())


def runs(ir: IR, depth: int) -> Iterator[Run | OpNode]:
    """Yield the nodes, each run of one module at that depth folded; nodes of the root stay.

    Raises:
        InvalidIRError: The depth is less than 1.
    """
    if depth < 1:
        raise InvalidIRError(
            f"the depth of folding is at least 1, got {depth}",
            remedy="Depth 1 folds the model's own children.",
        )
    types = {
        node.location.module: node.location.module_type.rpartition(".")[2]
        for node in reversed(ir.nodes)
        if node.location is not None
    }
    last_use = _last_uses(ir)
    start = 0
    for module, group in groupby(ir.nodes, lambda node: _module(node, depth)):
        nodes = list(group)
        if not module:
            yield from nodes
        else:
            kind = types.get(module, "")
            yield _run(ir, module, kind, nodes, start + len(nodes), last_use)
        start += len(nodes)


def _module(node: OpNode, depth: int) -> str:
    path = node.location.module if node.location is not None else ""
    return ".".join(path.split(".")[:depth])


def _last_uses(ir: IR) -> dict[str, int]:
    """The last node that takes each value; one more than all for what the graph gives back."""
    uses = {meta.name: index for index, node in enumerate(ir.nodes) for meta in node.inputs}
    kept = [*ir.graph_outputs, *(mutation.value for mutation in ir.mutations)]
    return uses | {meta.name: len(ir.nodes) for meta in kept}


def _run(
    ir: IR, module: str, kind: str, nodes: list[OpNode], stop: int, last_use: dict[str, int]
) -> Run:
    external = ir.external_values()
    made = {meta.name: meta for node in nodes for meta in node.outputs}
    taken = {
        meta.name: meta
        for node in nodes
        for meta in node.inputs
        if meta.name not in made and meta.name not in external
    }
    left = tuple([meta for name, meta in made.items() if last_use.get(name, -1) >= stop])
    return Run(module, kind, len(nodes), tuple(taken.values()), left)
