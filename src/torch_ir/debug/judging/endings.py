"""The end of a run: results lie where they must, and state is left as it is meant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set

import torch

from torch_ir.debug.judging.storages import MemoryFault, Storages, address_of, view_of, view_text
from torch_ir.debug.tensor_comparison import digest
from torch_ir.ir import IR


def returned(
    ir: IR,
    storages: Storages,
    given: Mapping[str, torch.Tensor],
    outputs: Sequence[torch.Tensor],
    copied: Set[str],
) -> Iterator[MemoryFault]:
    """Yield what is wrong with the results.

    Those that may show a buffer which the program writes, as is known before the run, lie in one
    copy of what they show; others that show what was given lie there; and two share memory exactly
    if they do in the model.
    """
    external = ir.external_values()
    targets = [m.target for m in ir.mutations if m.target in external]
    state = [storages.values[name].storage for name in targets]
    own = [storages.values[name].storage for name in given]
    owners = {storage.address: storage for storage in own}
    shown: dict[tuple[int, bool], int] = {}
    for meta, tensor in zip(ir.graph_outputs, outputs, strict=True):
        name, address = meta.name, address_of(tensor)
        value = storages.values[name]
        storage = value.storage
        if name not in given:
            found = storages.changed(name, tensor, "when the program returns it")
            if found is not None:
                yield found
        if not address or not storage.address:
            continue
        is_copied = storage in state or name in copied
        is_placed = storage in own and not is_copied
        wanted = shown.setdefault(
            (id(storage), is_copied), storage.address if is_placed else address
        )
        owner = owners.setdefault(address, storage)
        if owner is not storage or (storage in state and address == storage.address):
            reason = f"it is returned in the memory of %{owner.name}"
            yield MemoryFault(name, "shared", reason)
        elif address != wanted:
            yield MemoryFault(name, "copy", f"it is returned apart from %{storage.name}")
        elif view_of(tensor) != value.view:
            places = f"{view_text(view_of(tensor))}, and was made at {view_text(value.view)}"
            yield MemoryFault(name, "view", f"it is returned at {places}")


def left(
    storages: Storages, given: Mapping[str, torch.Tensor], moved: Mapping[str, str]
) -> Iterator[MemoryFault]:
    """Yield the inputs and weights that are not what the program leaves in them."""
    rewritten = [storages.values[name].storage for name in moved]
    for name, tensor in given.items():
        value = storages.values[name]
        if name in moved:
            source = storages.values.get(moved[name])
            if source is not None and digest(tensor) != source.digest:
                reason = f"it is left with another value than that of %{moved[name]}"
                yield MemoryFault(name, "state", reason)
        elif value.storage not in rewritten:
            found = storages.changed(name, tensor, "when the program ends")
            if found is not None:
                yield found._replace(kind="state")
