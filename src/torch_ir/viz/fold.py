"""Grouping nodes into few boxes along the module tree, so that a large graph can be drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from torch_ir.ir import OpNode
from torch_ir.ir.node import module_of


@dataclass(frozen=True, slots=True)
class Box:
    """Nodes that are drawn as one.

    Attributes:
        nodes: The nodes, in program order.
        module: Path of the module that made them all; empty for the root, or if there is no one
            module.
    """

    nodes: tuple[OpNode, ...]
    module: str = ""


def short_operator(op_type: str) -> str:
    """Shorten an operator's name by the library and the overload that most have.

    Example:
        >>> short_operator("aten.relu.default"), short_operator("aten.add.Tensor")
        ('relu', 'add.Tensor')
    """
    return op_type.removeprefix("aten.").removesuffix(".default")


def count_operators(nodes: Sequence[OpNode]) -> list[tuple[str, int]]:
    """Count the calls of each operator, the most frequent first, then by name."""
    counts = Counter(node.op_type for node in nodes)
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def module_path(node: OpNode) -> tuple[str, ...]:
    """Return the module path of a node, as parts; empty where it is the root or unknown."""
    module = module_of(node)
    return tuple(module.split(".")) if module else ()


def fold(nodes: Sequence[OpNode], limit: int) -> list[Box]:
    """Group the nodes in at most ``limit`` boxes, each of one node where that is few enough.

    The module tree is opened as deep as the limit allows, everywhere to one depth. Where not even
    its top level fits, neighbors are put together.
    """
    if len(nodes) <= limit:
        return [Box((node,)) for node in nodes]
    depth = max((len(module_path(node)) for node in nodes), default=0)
    for level in range(depth, 0, -1):
        for group in (_by_module(level), _by_module_and_run(nodes, level)):
            boxes = _boxes(nodes, group, level)
            if len(boxes) <= limit:
                return boxes
    boxes = _boxes(nodes, _by_module(1), 1) if depth else [Box((node,)) for node in nodes]
    size = -(-len(boxes) // limit)
    chunks = [boxes[start : start + size] for start in range(0, len(boxes), size)]
    return [
        chunk[0] if len(chunk) == 1 else Box(tuple(node for box in chunk for node in box.nodes))
        for chunk in chunks
    ]


Key = Callable[[OpNode], object]


def _by_module(level: int) -> Key:
    """One box for each module at this level; what is called above it stays alone."""
    return lambda node: path[:level] if len(path := module_path(node)) >= level else node.name


def _by_module_and_run(nodes: Sequence[OpNode], level: int) -> Key:
    """As by module, but neighbors that are called above the level share a box too."""
    runs: dict[str, object] = {}
    for index, (path, run) in enumerate(groupby(nodes, lambda node: module_path(node)[:level])):
        for node in run:
            runs[node.name] = path if len(path) == level else index
    return lambda node: runs[node.name]


def _boxes(nodes: Sequence[OpNode], key: Key, level: int) -> list[Box]:
    groups: dict[object, list[OpNode]] = {}
    for node in nodes:
        groups.setdefault(key(node), []).append(node)
    return [
        Box(tuple(group), ".".join(module_path(group[0])[:level])) for group in groups.values()
    ]
