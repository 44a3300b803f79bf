"""A model of memory beside a run: where each value must lie, and what it must hold.

Each graph input, weight and fresh result has a storage of its own, and a view lies where torch's
plain operator puts it on the same base. While two values are needed, they share memory in the run
exactly if they do in the model; what no node wrote stays as it was made. The values themselves are
not kept, but their hashes, and after a write that of the whole storage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from math import inf
from typing import NamedTuple

import torch

from torch_ir.debug.judging.endings import left, returned
from torch_ir.debug.judging.storages import (
    MemoryFault,
    ModelStorage,
    ModelValue,
    Place,
    Storages,
    View,
    address_of,
    bytes_around,
    view_of,
    view_text,
    whole_digest,
)
from torch_ir.debug.tensor_comparison import digest
from torch_ir.ir import IR, OpNode
from torch_ir.ir.aliases import Aliases, written_tensors
from torch_ir.ir.queries import positions
from torch_ir.torch_api import have_equal_bytes
from torch_ir.torch_memory import has_plain_data, is_whole, storage_key


class PlainCall(NamedTuple):
    """A call of torch's plain operator.

    Attributes:
        given: The tensors that it took, which share memory as those of the run do.
        storages: The storage of each of them before the call.
        made: Where its results lay, flattened; None for those that are no tensors.
    """

    given: Sequence[torch.Tensor]
    storages: Sequence[int]
    made: Sequence[Place | None]


class Memory:
    """The storages of a program as it runs.

    Args:
        ir: The program.
        given: Its inputs and weights, by the names that nodes use.
        aliases: What may share memory.
    """

    def __init__(self, ir: IR, given: Mapping[str, torch.Tensor], aliases: Aliases):
        self._ir = ir
        self._aliases = aliases
        self._positions = positions(ir)
        self.last_reader = {meta.name: node for node in ir.nodes for meta in node.inputs}
        last = {n: float(self._positions[r.name]) for n, r in self.last_reader.items()}
        self._moved = {m.target: m.value.name for m in ir.mutations if m.target != m.value.name}
        self._results = frozenset(ir.output_names)
        last |= dict.fromkeys((*given, *self._results, *self._moved.values()), inf)
        self._storages = Storages(last)
        self._given = dict(given)
        self._kept: dict[str, torch.Tensor] = {}
        self._bases: list[ModelStorage] = []
        for name, tensor in given.items():
            owner = self._storages.owners.get(address_of(tensor))
            if owner is None:
                self._storages.new(name, tensor)
            else:
                self._storages.join(name, tensor, owner)

    def is_same(self, name: str, tensor: torch.Tensor) -> bool:
        """Return whether a value has the bits of a tensor, or is unknown."""
        value = self._storages.values.get(name)
        return value is None or value.digest == digest(tensor)

    # -- before a node ----------------------------------------------------------------------------

    def read(self, node: OpNode, inputs: Sequence[torch.Tensor]) -> Iterator[MemoryFault]:
        """Yield what is wrong with the inputs of a node, as it is about to run."""
        self._bases = []
        for meta, tensor in zip(node.inputs, inputs, strict=True):
            found = self._storages.misplaced(meta.name, tensor)
            if found is None:
                self._bases.append(self._storages.values[meta.name].storage)
                found = self._storages.changed(meta.name, tensor, f"when {node.name!r} reads it")
            else:
                self._bases.append(self._storages.owner(meta.name, tensor))
            if found is not None:
                yield found

    # -- after a node -----------------------------------------------------------------------------

    def read_last(
        self, node: OpNode, inputs: Sequence[torch.Tensor], before: Sequence[torch.Tensor]
    ) -> Iterator[MemoryFault]:
        """Yield what a node changed that nothing reads after it and that it must not write.

        Of what it may write, ``before`` has copies.
        """
        for meta, tensor, copy in zip(node.inputs, inputs, before, strict=True):
            is_last = self.last_reader[meta.name] is node and tensor is copy
            if is_last and self._storages.misplaced(meta.name, tensor) is None:
                found = self._storages.changed(meta.name, tensor, f"when {node.name!r} ran")
                if found is not None:
                    yield found

    def needs_call(self, node: OpNode, outputs: Sequence[torch.Tensor]) -> bool:
        """Return whether only torch's plain operator tells where a node's results must be."""
        if self._aliases.sources(node) or written_tensors(self._ir, node) != ():
            return True
        position = self._positions[node.name]
        owners = [self._storages.owners.get(address_of(tensor)) for tensor in outputs]
        return any(owner is not None and owner.last > position for owner in owners)

    def made(
        self,
        node: OpNode,
        inputs: Sequence[torch.Tensor],
        before: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
        plain: PlainCall | None,
        *,
        is_own: bool,
    ) -> Iterator[MemoryFault]:
        """Note what a node made and wrote; yield what lies where it must not.

        Args:
            node: The node.
            inputs: The tensors that it took.
            before: The same, of what it may write copies with the storages around them, which
                are overwritten.
            outputs: Those that it made.
            plain: What torch's plain operator did on copies; None if there is none.
            is_own: Whether a user's kernel runs it, which may copy where nothing can tell.
        """
        storages: dict[int, ModelStorage] = {}
        if plain is not None:
            for key, base in zip(plain.storages, self._bases, strict=True):
                storages.setdefault(key, base)
        yield from self._wrote(node, inputs, before, plain, storages)
        for meta, tensor in zip(node.outputs, outputs, strict=True):
            expected = None if plain is None else plain.made[meta.producer_output_idx]
            yield from self._placed(node, meta.name, tensor, expected, storages, is_own=is_own)
            if meta.name in self._moved.values():
                self._kept[meta.name] = tensor
        if self._positions[node.name] == len(self._positions) - 1:
            yield from self._settled()

    def _wrote(
        self,
        node: OpNode,
        inputs: Sequence[torch.Tensor],
        before: Sequence[torch.Tensor],
        plain: PlainCall | None,
        storages: Mapping[int, ModelStorage],
    ) -> Iterator[MemoryFault]:
        """Note the writes of a node; one may give what it writes another place, as ``t_``."""
        written = written_tensors(self._ir, node)
        names = {meta.name for meta in (node.inputs if written is None else written)}
        if not names:
            return
        places = {m.name: i for i, m in enumerate(node.inputs) if m.name in names}
        if written is not None:
            there = [i for i in places.values() if address_of(inputs[i]) == self._bases[i].address]
            for i in _spilled(there, before, inputs):
                reason = "memory around it has changed, which is not written"
                yield MemoryFault(node.inputs[i].name, "spill", reason)
        for name, i in places.items():
            base, tensor, address = self._bases[i], inputs[i], address_of(inputs[i])
            if plain is not None and has_plain_data(plain.given[i]) and address:
                base = storages.get(storage_key(plain.given[i]), base)
                if view_of(plain.given[i]) != view_of(tensor):
                    yield _wrong_view(name, tensor, view_of(plain.given[i]))
            if base is self._bases[i] and base.address != address:  # it was given more memory
                self._storages.move(base, address)
            base.writes += 1
            base.digest = whole_digest(tensor) if address else None
            self._storages.makers[address] = node
            self._storages.values[name] = ModelValue(base, view_of(tensor), b"", -1)

    def _placed(
        self,
        node: OpNode,
        name: str,
        tensor: torch.Tensor,
        expected: Place | None,
        storages: dict[int, ModelStorage],
        *,
        is_own: bool,
    ) -> Iterator[MemoryFault]:
        """Note a result; yield what is wrong with its place."""
        address = address_of(tensor)
        if not address or (expected is not None and not expected.is_plain):
            self._storages.new(name, tensor)
            return
        owner = self._storages.owners.get(address)
        if owner is not None and owner.last <= self._positions[node.name]:
            owner = None if expected is None or owner not in storages.values() else owner
        base = owner if owner in self._bases else None
        if expected is not None:
            base = storages.get(expected.storage)
        elif owner is not None and self._aliases.may_share(name, owner.name):
            base = owner
        if base is not None and (owner is base or not base.address):
            self._storages.join(name, tensor, base)
            if expected is not None and expected.view != view_of(tensor):
                yield _wrong_view(name, tensor, expected.view)
            return
        if owner is not None and owner.last > self._positions[node.name]:
            reason = f"it lies in the memory of %{owner.name}, which is still needed"
            yield MemoryFault(name, "shared", reason if base is None else _other(base, owner))
            owner.writes, owner.digest = owner.writes + 1, None  # told once
            self._storages.join(name, tensor, owner)
            return
        is_told = name in self._results or self._aliases.is_written(name)  # from a copy of it
        if base is not None and (is_told or not is_own):
            yield MemoryFault(name, "copy", f"it is a copy, and means a view of %{base.name}")
        fresh = self._storages.new(name, tensor)
        if expected is not None and base is None:
            storages[expected.storage] = fresh
            if not is_own and expected.view[1:] != view_of(tensor)[1:]:
                yield _wrong_view(name, tensor, expected.view)
        self._storages.makers[address] = node

    # -- at the end -------------------------------------------------------------------------------

    def ended(self, outputs: Sequence[torch.Tensor], copied: Set[str]) -> Iterator[MemoryFault]:
        """Yield what is wrong with the results, some copied, and with what the program leaves."""
        yield from returned(self._ir, self._storages, self._given, outputs, copied)
        yield from left(self._storages, self._given, self._moved)

    def _settled(self) -> Iterator[MemoryFault]:
        """Read what is written to targets once more, before that changes it."""
        for name in dict.fromkeys(self._moved.values()):
            value = self._storages.values.get(name)
            tensor = self._kept.get(name, self._given.get(name))
            if value is not None and tensor is not None and value.writes != value.storage.writes:
                found = self._storages.changed(name, tensor, "when the program ends")
                if found is not None:
                    yield found


def _spilled(
    places: Sequence[int], before: Sequence[torch.Tensor], after: Sequence[torch.Tensor]
) -> Iterator[int]:
    """Yield the positions of tensors around which memory has changed.

    Args:
        places: Positions of those that are written; one that is another view now, as ``t_``
            makes it, has the elements that it had.
        before: Copies of the tensors, with the storages around them; they are overwritten.
        after: The tensors now.
    """
    pairs = [(i, before[i], after[i]) for i in places if view_of(before[i]) == view_of(after[i])]
    if all(is_whole(tensor) for _, _, tensor in pairs):
        return
    for _, copy, tensor in pairs:  # what is repeated in memory is written once
        once = [slice(None, None if stride else 1) for stride in copy.stride()]
        copy[*once].copy_(tensor[*once])
    for position, copy, tensor in pairs:
        if not have_equal_bytes(bytes_around(copy), bytes_around(tensor)):
            yield position


def _other(base: ModelStorage, owner: ModelStorage) -> str:
    return f"it is a view of %{owner.name}, and means one of %{base.name}"


def _wrong_view(name: str, tensor: torch.Tensor, expected: View) -> MemoryFault:
    reason = f"it lies at {view_text(view_of(tensor))}, and means {view_text(expected)}"
    return MemoryFault(name, "view", reason)
