"""Tensors that layers make of plain values: each call of a layer's function has its own.

torch.export keeps such a tensor as a constant, numbered in the order of the program.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch

from torch_ir.ir import IR, OpNode, TensorMeta
from torch_ir.ir.builder import Names
from torch_ir.ir.functions import rerooted

_LITERAL = re.compile(r"(?P<stem>(?:.*\.)?lifted_tensor_)(?P<number>\d+)")
"""What torch.export calls a tensor that is no attribute of the model."""


def is_literal(key: str) -> bool:
    """Return whether a key is that of a tensor that is no attribute of the model."""
    return _LITERAL.fullmatch(key) is not None


class Literals:
    """The literals of a program whose layers become calls, with the keys of the flat program.

    Args:
        ir: The program; its constants are weights.
    """

    def __init__(self, ir: IR):
        self._names = Names.of(ir)
        self._keys = {
            name: found
            for name, key in ir.weight_name_mapping.items()
            if (found := _LITERAL.fullmatch(key))
        }
        self._renamed: dict[str, str] = {}
        self._added: dict[str, tuple[TensorMeta, torch.Tensor]] = {}
        self._passed = self._next = self._first = 0

    def meet(self, node: OpNode) -> None:
        """Number the literals of a node of the program itself."""
        for meta in node.inputs:
            found = self._keys.get(meta.name)
            if found is not None and found[0] not in self._renamed:
                number = int(found["number"]) + self._passed
                self._renamed[found[0]] = f"{found['stem']}{number}"
                self._next = number + 1

    def enter(self, count: int) -> None:
        """Begin the call of a layer that has some literals."""
        self._first = self._next
        self._next += count
        self._passed += count

    def add(self, body: IR, key: str, root: str, place: str) -> TensorMeta:
        """Return a literal of the layer whose call began last.

        Args:
            body: The layer as a program.
            key: The key of the literal there.
            root: The module path of the layer that was traced.
            place: That of the layer that is called.
        """
        constant = body.constants[key]
        module, _, number = key.rpartition("lifted_tensor_")
        module = rerooted(module.rstrip("."), root, place)
        own = f"{module}.lifted_tensor_{int(number) + self._first}"
        name = self._names.fresh(f"c_{own.replace('.', '_')}")
        meta = TensorMeta(name, constant.shape, constant.dtype)
        self._added[own] = meta, constant.torch()
        return meta

    def placed(
        self, ir: IR, known: Mapping[str, torch.Tensor]
    ) -> tuple[IR, dict[str, torch.Tensor]]:
        """Return the program with its literals among its weights, and their values."""
        new = self._renamed
        names = {meta.name: key for key, (meta, _) in self._added.items()}
        weights = [
            *(meta.replace(name=new.get(meta.name, meta.name)) for meta in ir.weights),
            *(meta.replace(name=key) for key, (meta, _) in self._added.items()),
        ]
        mapping = {name: new.get(key, key) for name, key in ir.weight_name_mapping.items()}
        values = {key: tensor for key, (_, tensor) in self._added.items()}
        return (
            ir.replace(weights=weights, weight_name_mapping={**mapping, **names}),
            {**{new.get(key, key): tensor for key, tensor in known.items()}, **values},
        )
