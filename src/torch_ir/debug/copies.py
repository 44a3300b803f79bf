"""Copies of a node's inputs that have the same strides and share memory with each other alike."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from torch_ir.debug.judging.storages import is_plain


def copied(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Copy tensors to new memory with the same strides, by which kernels choose their algorithm.

    Tensors that share memory have copies that share memory.

    Example:
        >>> x = torch.arange(6.0).reshape(2, 3)
        >>> whole, turned = copied([x, x.t()])
        >>> turned.stride(), whole.data_ptr() == turned.data_ptr() != x.data_ptr()
        ((1, 3), True)
    """
    storages: dict[int, torch.UntypedStorage] = {}
    return [_copied(tensor, storages) for tensor in tensors]


def _copied(tensor: torch.Tensor, storages: dict[int, torch.UntypedStorage]) -> torch.Tensor:
    if not is_plain(tensor):
        return tensor.detach().clone()
    storage = tensor.untyped_storage()
    key = storage.data_ptr()
    if key == 0:  # nothing in it to share
        return tensor.detach().clone()
    if key not in storages:
        storages[key] = storage.clone()
    empty = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    copy = empty.set_(storages[key], tensor.storage_offset(), tensor.shape, tensor.stride())
    if tensor.is_conj():
        copy = copy.conj()
    return torch._neg_view(copy) if tensor.is_neg() else copy  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]  # torch has no public name
