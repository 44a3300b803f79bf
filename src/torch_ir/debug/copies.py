"""Copies of a node's inputs that have the same strides and share memory with each other alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from torch_ir.debug.judging.storages import has_plain_data, storage_key
from torch_ir.ir import IR
from torch_ir.ir.aliases import written_tensors
from torch_ir.ops.effects import never_writes
from torch_ir.torch_api import in_place_of


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


def may_resize(ir: IR) -> bool:
    """Return whether a call may resize what it writes: with ``out=``, or to another shape.

    NumPy can see the memory of a tensor only if torch no longer resizes it. It may be the memory
    of any value that is dead by then.

    Example:
        >>> from torch_ir import parse
        >>> may_resize(parse('''ir {
        ...   input %x: f32[2]
        ...   %y: f32[3] = aten.empty.memory_format([3])
        ...   %z: f32[2] = aten.add.out(%x, 1, out=%y)
        ...   return %z
        ... }'''))
        True
    """
    for node in ir.nodes:
        schema = ir.schema_of(node.op_type)
        if schema is None or never_writes(schema.text):
            continue
        shapes = [meta.shape for meta in node.outputs]
        written = written_tensors(ir, node) or () if shapes else ()
        if any(argument.is_written and argument.keyword_only for argument in schema.arguments):
            return True
        if any(meta.shape not in shapes for meta in written):
            return True
    return False
