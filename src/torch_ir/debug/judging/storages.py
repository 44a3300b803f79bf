"""Storages as a run should have them: which values lie in each, where, and with what bits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import torch

from torch_ir.debug.tensor_comparison import digest
from torch_ir.debug.validation import FaultKind
from torch_ir.ir import OpNode
from torch_ir.torch_memory import has_plain_data, storage_key

View: TypeAlias = tuple[int, tuple[int, ...], tuple[int, ...]]
"""Offset, sizes and strides, as far as they say where elements are."""


class MemoryFault(NamedTuple):
    """What is wrong with the memory of a value.

    Attributes:
        value: Its name.
        kind: What kind of fault it is.
        reason: How.
        culprit: The node that made it so; None for the one that is looked at.
    """

    value: str
    kind: FaultKind
    reason: str
    culprit: OpNode | None = None


class Place(NamedTuple):
    """Where a tensor lies.

    Attributes:
        storage: The key of its storage, as `storage_key` gives it.
        view: The view of the storage that it is.
        is_plain: Whether it is strided, and its data are its elements.
    """

    storage: int
    view: View
    is_plain: bool

    @classmethod
    def of(cls, value: Any) -> Place | None:
        """Return where a value lies that is a tensor."""
        if not isinstance(value, torch.Tensor):
            return None
        return cls(storage_key(value), view_of(value), has_plain_data(value))


@dataclass(slots=True, eq=False)
class ModelStorage:
    """A storage of the model.

    Attributes:
        name: The first value in it.
        address: Where it is in the run; 0 for data that is not plain, or empty.
        last: The last position at which a value in it is read.
        writes: How many nodes have written to it.
        digest: The hash of all of it after the last of them, or None.
    """

    name: str
    address: int
    last: float
    writes: int = 0
    digest: bytes | None = None


@dataclass(slots=True)
class ModelValue:
    """A value: where it lies, and its hash after some of the writes to its storage."""

    storage: ModelStorage
    view: View
    digest: bytes
    writes: int


class Storages:
    """The storages of a run, by the values in them and by their addresses.

    Args:
        last: The last position at which each value is read.

    Attributes:
        values: What is known of each value, by its name.
        owners: The last storage at each address.
        makers: The last node that made or wrote something at each address.
    """

    def __init__(self, last: Mapping[str, float]):
        self.values: dict[str, ModelValue] = {}
        self.owners: dict[int, ModelStorage] = {}
        self.makers: dict[int, OpNode] = {}
        self._last = last

    def new(self, name: str, tensor: torch.Tensor) -> ModelStorage:
        """Note a value in a storage of its own."""
        storage = ModelStorage(name, address_of(tensor), self._last.get(name, -1))
        if storage.address:
            self.owners[storage.address] = storage
        return self.join(name, tensor, storage)

    def join(self, name: str, tensor: torch.Tensor, storage: ModelStorage) -> ModelStorage:
        """Note a value in a storage."""
        storage.last = max(storage.last, self._last.get(name, -1))
        self.values[name] = ModelValue(storage, view_of(tensor), digest(tensor), storage.writes)
        return storage

    def move(self, storage: ModelStorage, address: int) -> None:
        """Note that a storage is elsewhere: it was given more memory."""
        self.owners.pop(storage.address, None)
        self.owners[address], storage.address = storage, address

    def owner(self, name: str, tensor: torch.Tensor) -> ModelStorage:
        """Return the storage in which a value is that is read from another place than its own."""
        address = address_of(tensor)
        return self.owners.get(address) or ModelStorage(name, address, -1)

    def misplaced(self, name: str, tensor: torch.Tensor) -> MemoryFault | None:
        """Return how the place where a value is read differs from that where it was made."""
        value = self.values.get(name)
        if value is None:
            self.new(name, tensor)
            return None
        address = address_of(tensor)
        if address != value.storage.address:
            owner = self.owners.get(address)
            where = f"the memory of %{owner.name}" if owner else "memory that no value has"
            return MemoryFault(name, "place", f"it is read from {where}")
        if address and view_of(tensor) != value.view:
            here, there = view_text(view_of(tensor)), view_text(value.view)
            return MemoryFault(name, "place", f"it is read at {here}, and was made at {there}")
        return None

    def changed(self, name: str, tensor: torch.Tensor, when: str) -> MemoryFault | None:
        """Return how a value differs from what was made though no node wrote to it."""
        value = self.values[name]
        storage = value.storage
        now = digest(tensor)
        if value.writes == storage.writes:
            is_same = now == value.digest
        else:
            is_same = storage.digest is None or storage.digest == whole_digest(tensor)
            value.writes = storage.writes
        value.digest = now
        if is_same:
            return None
        storage.digest = None  # told once
        culprit = self.makers.get(storage.address)
        how = f"{culprit.name!r} took its memory" if culprit else "something wrote to it"
        return MemoryFault(name, "changed", f"it has changed {when}: {how}", culprit)


def address_of(tensor: torch.Tensor) -> int:
    """Return where the storage of a tensor is; 0 of one without plain data, or without any."""
    return tensor.untyped_storage().data_ptr() if has_plain_data(tensor) else 0


def view_of(tensor: torch.Tensor) -> View:
    """Return the view of its storage that a tensor is."""
    shape = tuple(tensor.shape)
    if not has_plain_data(tensor) or 0 in shape:
        return 0, shape, ()
    strides = [s if size > 1 else 0 for size, s in zip(shape, tensor.stride(), strict=True)]
    return int(tensor.storage_offset()), shape, tuple(strides)


def view_text(view: View) -> str:
    """Return a view in words."""
    offset, shape, strides = view
    return f"offset {offset} with sizes {list(shape)} and strides {list(strides)}"


def bytes_around(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a tensor's whole storage."""
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())


def whole_digest(tensor: torch.Tensor) -> bytes:
    """Hash the whole storage of a tensor."""
    return digest(bytes_around(tensor))
