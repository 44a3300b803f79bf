"""A watch on memory: values must stay what they were made as while something reads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import torch

from torch_ir.debug.compare import digest
from torch_ir.ir import IR, OpNode


class Memory:
    """Which values are what they were when they were made, by their hashes."""

    def __init__(self, ir: IR, given: Mapping[str, torch.Tensor]):
        self.last_reader: dict[str, OpNode] = {
            meta.name: node for node in ir.nodes for meta in node.inputs
        }
        self._ir = ir
        self._given = {name: given[name] for name in given if name in self.last_reader}
        self._known: dict[str, tuple[bytes, int]] = {}
        self._versions: Counter[int] = Counter()
        self._makers: dict[int, OpNode] = {}
        for name, tensor in self._given.items():
            self._note(name, tensor)

    def _note(self, name: str, tensor: torch.Tensor) -> None:
        self._known[name] = digest(tensor), self._versions[_place(tensor)]

    def is_same(self, name: str, tensor: torch.Tensor) -> bool:
        """Return whether a value has the bits of a tensor, or is unknown."""
        return name not in self._known or self._known[name][0] == digest(tensor)

    def changed(self, name: str, tensor: torch.Tensor) -> str:
        """Say how a value differs from what was made though no node wrote to it, or return ""."""
        place = _place(tensor)
        known, version = self._known.get(name, (b"", -1))
        now = digest(tensor)
        if version != self._versions[place]:
            self._known[name] = now, self._versions[place]
            return ""
        if known == now:
            return ""
        self._known[name] = now, version  # told once
        culprit = self._makers.get(place)
        return f"{culprit.name!r} took its memory" if culprit else "something wrote to it"

    def culprit(self, tensor: torch.Tensor) -> OpNode | None:
        """Return the last node that made a value in a tensor's memory."""
        return self._makers.get(_place(tensor))

    def made(
        self,
        node: OpNode,
        inputs: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
        written: Mapping[str, torch.Tensor],
    ) -> None:
        """Note what a node made, and what it may have written to."""
        may_write = self._ir.schema_of(node.op_type) is None
        for tensor in inputs if may_write else written.values():
            self._versions[_place(tensor)] += 1
        for meta, tensor in zip(node.outputs, outputs, strict=True):
            self._note(meta.name, tensor)
            self._makers[_place(tensor)] = node

    def constant(self) -> list[tuple[str, torch.Tensor]]:
        """Return the inputs and weights that the program does not write."""
        written = {mutation.target for mutation in self._ir.mutations}
        return [(name, tensor) for name, tensor in self._given.items() if name not in written]


def _place(tensor: torch.Tensor) -> int:
    """Where the data of a tensor is; of one without plain data, the tensor itself."""
    if tensor.layout is torch.strided:
        return tensor.untyped_storage().data_ptr() or id(tensor)
    return id(tensor)
