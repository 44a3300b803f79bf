"""Helpers for building a changed graph: fresh names, and values in place of others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from torch_ir.ir.graph import IR
from torch_ir.ir.node import OpNode
from torch_ir.ir.tensor import TensorMeta
from torch_ir.ir.tree import Container, TensorLeaf, Tree


class Names:
    """Gives names that no value or node of a graph has yet.

    Example:
        >>> names = Names({"relu"})
        >>> names.fresh("relu"), names.fresh("relu"), names.fresh("add")
        ('relu_1', 'relu_2', 'add')
    """

    def __init__(self, taken: Iterable[str] = ()):
        self._taken = set(taken)
        self._next: dict[str, int] = {}

    @classmethod
    def of(cls, ir: IR) -> Names:
        """Return the names that a graph leaves free."""
        names = cls(meta.name for meta in ir.graph_inputs)
        names._taken.update(ir.external_values())
        for node in ir.nodes:
            names._taken.add(node.name)
            names._taken.update(meta.name for meta in node.outputs)
        return names

    def fresh(self, wanted: str) -> str:
        """Return the wanted name, or the first of ``wanted_1``, ``wanted_2``, … that is free."""
        if wanted not in self._taken:
            self._taken.add(wanted)
            return wanted
        stem = re.sub(r"_\d+$", "", wanted)
        number = self._next.get(stem, 1)
        while (name := f"{stem}_{number}") in self._taken:
            number += 1
        self._next[stem] = number + 1
        self._taken.add(name)
        return name


def with_inputs(node: OpNode, values: Mapping[str, TensorMeta]) -> OpNode:
    """Replace those inputs of a node that are named."""
    if not any(meta.name in values for meta in node.inputs):
        return node
    return node.replace(inputs=tuple([values.get(meta.name, meta) for meta in node.inputs]))


def renamed(node: OpNode, name: str) -> OpNode:
    """Rename a node and its outputs."""

    def output(meta: TensorMeta) -> TensorMeta:
        suffix = meta.name[len(node.name) :] if meta.name.startswith(node.name) else ""
        return meta.replace(name=name + suffix, producer_node=name)

    return node.replace(name=name, outputs=tuple([output(meta) for meta in node.outputs]))


def with_leaves(tree: Tree, values: Mapping[str, TensorMeta]) -> Tree:
    """Replace those leaves of a tree that are named."""
    if isinstance(tree, TensorLeaf):
        return TensorLeaf(values[tree.name].name) if tree.name in values else tree
    if isinstance(tree, Container):
        children = tuple([with_leaves(child, values) for child in tree.children])
        return Container(tree.type, children, tree.keys, tree.context)
    return tree
