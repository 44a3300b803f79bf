"""The memory of tensors: what shares it, and copies that share theirs as the originals do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from torch_ir.torch_api import extent_of, in_place_of, pytree, storage_of, version_of


def has_plain_data(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is strided, and its data are its elements."""
    has_elements = not (tensor.is_quantized or tensor._is_zerotensor())  # pyright: ignore[reportPrivateUsage]  # torch has no public one
    return tensor.layout is torch.strided and has_elements


def storage_key(tensor: torch.Tensor) -> int:
    """Return a key of a tensor's storage; of one without plain data, of the tensor itself."""
    return storage_of(tensor) if has_plain_data(tensor) else id(tensor)


def is_whole(tensor: torch.Tensor) -> bool:
    """Return whether the elements of a tensor are all of its storage, in order."""
    return tensor.is_contiguous() and tensor.nbytes == tensor.untyped_storage().nbytes()


def writes_to(values: Iterable[Any]) -> list[int]:
    """Count the writes of torch to each tensor among some values; of inference none are known.

    Example:
        >>> x = torch.zeros(2)
        >>> before = writes_to([x, 3])
        >>> x.add_(1), writes_to([x, 3]) == before
        (tensor([1., 1.]), False)
    """
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    return [0 if tensor.is_inference() else version_of(tensor) for tensor in tensors]


def overlap(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Return whether the extents of two strided tensors overlap in one storage."""
    if torch.strided not in (left.layout, right.layout) or left.layout is not right.layout:
        return False
    if not left.numel() or not right.numel() or storage_of(left) != storage_of(right):
        return False
    (begin, end), (other_begin, other_end) = occupied_bytes(left), occupied_bytes(right)
    return begin < other_end and other_begin < end


def occupied_bytes(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the bytes of its storage that a strided tensor occupies: first, and behind last.

    Example:
        >>> occupied_bytes(torch.zeros(2, 3)[:, 1])
        (4, 20)
    """
    size, begin = tensor.element_size(), int(tensor.storage_offset())
    return begin * size, (begin + extent_of(tensor)) * size


def copied(
    tensors: Sequence[torch.Tensor], only: Iterable[int] | None = None
) -> list[torch.Tensor]:
    """Copy tensors to new memory with the same strides, by which kernels choose their algorithm.

    Tensors that share memory have copies that share memory.

    Args:
        tensors: The tensors.
        only: The positions of those to copy, with what shares memory with them; all if None.

    Example:
        >>> x = torch.arange(6.0).reshape(2, 3)
        >>> whole, turned = copied([x, x.t()])
        >>> turned.stride(), whole.data_ptr() == turned.data_ptr() != x.data_ptr()
        ((1, 3), True)
    """
    storages: dict[int, torch.UntypedStorage] = {}
    if only is None:
        return [_copied(tensor, storages) for tensor in tensors]
    keys = {storage_key(tensors[i]) for i in only}
    return [_copied(t, storages) if storage_key(t) in keys else t for t in tensors]


def _copied(tensor: torch.Tensor, storages: dict[int, torch.UntypedStorage]) -> torch.Tensor:
    if not has_plain_data(tensor):
        return tensor.detach().clone()
    storage = tensor.untyped_storage()
    key = storage.data_ptr()
    if key == 0:  # nothing in it to share
        return tensor.detach().clone()
    if key not in storages:
        storages[key] = storage.clone()
    return in_place_of(tensor, storages[key])


def fresh(tree: Any) -> Any:
    """Copy every tensor of a nested structure; copies share memory as the tensors do.

    Example:
        >>> x = torch.zeros(2)
        >>> first, again = fresh((x, x))
        >>> first.add_(1), again, x
        (tensor([1., 1.]), tensor([1., 1.]), tensor([0., 0.]))
    """
    leaves, structure = pytree.tree_flatten(tree)
    tensors = {i: leaf for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)}
    keys = {i: storage_key(tensor) for i, tensor in tensors.items()}
    counts = Counter(keys.values())
    shared = [i for i, key in keys.items() if counts[key] > 1]
    made = {i: tensor.clone() for i, tensor in tensors.items() if counts[keys[i]] == 1}
    made |= zip(shared, copied([tensors[i] for i in shared]), strict=True)
    return pytree.tree_unflatten([made.get(i, leaf) for i, leaf in enumerate(leaves)], structure)
