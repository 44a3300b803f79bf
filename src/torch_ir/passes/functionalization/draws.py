"""Random numbers that are drawn in place: in which order depends on how the memory lies."""

from __future__ import annotations

import math
from typing import cast

from torch_ir.infer.types import contiguous
from torch_ir.ir import OpNode, TensorMeta
from torch_ir.passes.functionalization.alias_state import AliasState, CannotFollowError

_COINS = "aten.bernoulli_.float"
"""Its functional form gives a tensor in row-major order, whatever lies before."""

_NORMAL = "aten.normal_.default"
"""It fills memory in row-major order at once, from so many elements on, and others one by one."""
_AT_ONCE = 16


def draws_alike(node: OpNode, state: AliasState) -> bool:
    """Return whether the functional form of an operator draws what it draws in place.

    Raises:
        CannotFollowError: No operator does.
    """
    if node.op_type not in (_COINS, _NORMAL):
        return True
    meta = node.inputs[0]
    found = state.type_of(meta)
    if found == contiguous(meta):
        return True
    if node.op_type == _COINS:
        return False
    sizes = [dim for dim in meta.shape if isinstance(dim, int)]
    is_small = len(sizes) == len(meta.shape) and math.prod(sizes) < _AT_ONCE
    if not is_small and (found is None or found.is_row_major):
        raise CannotFollowError(
            f"it draws into a part of memory, %{meta.name}, and a functional operator would draw "
            "other numbers"
        )
    return True


def coins_like(like: TensorMeta, node: OpNode, state: AliasState) -> TensorMeta:
    """Draw truth values in memory that lies as a tensor of floats does: the mask of dropout.

    Args:
        like: The tensor.
        node: What draws in place.
        state: Where the draw is added.

    Raises:
        CannotFollowError: It draws from a generator, which dropout does not.
    """
    if node.attrs.get("generator") is not None:
        raise CannotFollowError("it draws from a generator of its own into turned memory")
    probability = cast(float, node.attrs.get("p", 0.5))
    arguments = {"input": like, "p": 1.0 - probability, "train": True}
    types = [(like.shape, like.dtype), (like.shape, "bool")]
    op_type, name = "aten.native_dropout.default", f"{node.name.rstrip('_')}_drawn"
    return state.builder.emit(op_type, arguments, like=node, results=types, name=name)[1]
