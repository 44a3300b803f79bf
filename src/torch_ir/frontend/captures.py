"""Constants that a body holds itself, such as ``torch.tensor([1.0, 2.0])`` in a branch.

A body gets everything through its inputs: they become constants of the program, handed in by each
call on the way down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, cast

import torch

from torch_ir.errors import InvalidIRError
from torch_ir.frontend.attributes import tensor_meta
from torch_ir.ir import IR, Attribute, Container, OpNode, Signature, TensorLeaf, TensorMeta
from torch_ir.ir.builder import Names
from torch_ir.ops.bodies import last_argument

Captured: TypeAlias = dict[str, torch.Tensor]
"""The constants of one graph, by the name of the value that holds each."""


@dataclass(slots=True)
class Captures:
    """The constants that one graph holds, and those of the bodies that it calls.

    Attributes:
        own: Its own, and those that it hands to bodies.
        of_bodies: The constants of each body.
        given: What each body has been given, after its first call.
    """

    own: Captured = field(default_factory=dict[str, torch.Tensor])
    of_bodies: dict[str, Captured] = field(default_factory=dict[str, Captured])
    given: dict[str, tuple[tuple[str, str], ...]] = field(
        default_factory=dict[str, tuple[tuple[str, str], ...]]
    )

    def hand_in(self, node: OpNode, functions: dict[str, IR], names: Names) -> OpNode:
        """Add the constants of a call's bodies to its inputs.

        Args:
            node: A node that may call bodies.
            functions: The functions of the graph; those that get more inputs are replaced.
            names: Those that the graph leaves free.

        Raises:
            InvalidIRError: The operator has no place for them.
        """
        called = node.functions
        wanted = [(name, key) for name in called for key in self.of_bodies.get(name, {})]
        if not wanted:
            return node
        argument = last_argument(node.op_type)
        if argument is None or any(
            self.given.get(name, tuple(wanted)) != tuple(wanted) for name in called
        ):
            raise InvalidIRError(
                f"a body of {node.op_type} holds a tensor that is no argument: {wanted[0][1]}",
                remedy="Make it a buffer, or make the tensor outside of the body.",
            )
        for name in called:
            if name not in self.given:
                self.given[name] = tuple(wanted)
                functions[name] = self._with_inputs(functions[name], name, wanted)
        metas = [self._handed(name, key, names) for name, key in wanted]
        return _with_operands(node, argument, metas)

    def _handed(self, name: str, key: str, names: Names) -> TensorMeta:
        tensor = self.of_bodies[name][key]
        for known, held in self.own.items():
            if held is tensor:
                return tensor_meta(known, held)
        own = names.beside(name, key)
        self.own[own] = tensor
        return tensor_meta(own, tensor)

    def _with_inputs(self, body: IR, name: str, wanted: Sequence[tuple[str, str]]) -> IR:
        names = Names((*body.value_names, *self.of_bodies.get(name, ())))
        metas = [
            tensor_meta(
                key if owner == name else names.beside(owner, key),
                self.of_bodies[owner][key],
            )
            for owner, key in wanted
        ]
        signature = cast(Signature, body.signature)
        positional, named = cast(Container, signature.inputs).children
        leaves = tuple([TensorLeaf(meta.name) for meta in metas])
        given = Container("tuple", (*cast(Container, positional).children, *leaves))
        return body.replace(
            graph_inputs=(*body.graph_inputs, *metas),
            signature=Signature(Container("tuple", (given, named)), signature.outputs),
        )


def _with_operands(node: OpNode, argument: str, metas: Sequence[TensorMeta]) -> OpNode:
    """The node with more tensors at the end of a list argument."""
    count = len(node.inputs)
    operands = dict(node.slots)
    slots = cast(tuple[int | None, ...], operands.get(argument, ()))
    attrs: dict[str, Attribute] = dict(node.attrs)
    others = cast(tuple[Attribute, ...], attrs.pop(argument, ()))
    if others:  # numbers between the tensors: each list has None where the other has an item
        attrs[argument] = (*others, *([None] * len(metas)))
        slots = slots or (None,) * len(others)
    slots = (*slots, *range(count, count + len(metas)))
    operands[argument] = slots
    return node.replace(inputs=(*node.inputs, *metas), attrs=attrs, operands=operands)
