"""Registers the operators of ``dim_order_ops`` with torch; importing this module does it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch  # noqa: TID253  # this module is imported where torch runs these operators

from torch_ir.dialects.executorch import executorch_first
from torch_ir.dialects.rules import DIM_ORDER_SCHEMAS
from torch_ir.quiet import quietly
from torch_ir.torch_api import overload
from torch_ir.torch_modes import plain_tensors

LIBRARY = torch.library.Library("dim_order_ops", "FRAGMENT")


def strides_of(shape: Sequence[int], dim_order: Sequence[int]) -> list[int]:
    """Return the strides of a dense tensor whose dimensions lie in this order, outermost first.

    Example:
        >>> strides_of([1, 3, 4, 4], [0, 2, 3, 1])
        [48, 1, 12, 3]
    """
    strides = [0] * len(shape)
    step = 1
    for dim in reversed(list(dim_order)):
        strides[dim] = step
        step = step * max(shape[dim], 1)
    return strides


def _laid_out(made: torch.Tensor, dim_order: Sequence[int] | None) -> torch.Tensor:
    if dim_order is None:
        return made
    laid_out = torch.empty_strided(
        made.shape, strides_of(made.shape, dim_order), dtype=made.dtype, device=made.device
    )
    return laid_out.copy_(made)


def _to_dim_order_copy(
    self: torch.Tensor, *, dim_order: Sequence[int] | None = None, **options: Any
) -> torch.Tensor:
    return _laid_out(torch.ops.aten._to_copy.default(self, **options), dim_order)


def _clone_dim_order(
    self: torch.Tensor, *, non_blocking: bool = False, dim_order: Sequence[int] | None = None
) -> torch.Tensor:
    del non_blocking  # a copy on one device is never asynchronous
    return _laid_out(torch.ops.aten.clone.default(self), dim_order)


def _empty_dim_order(
    size: Sequence[int], *, dim_order: Sequence[int] | None = None, **options: Any
) -> torch.Tensor:
    order = range(len(size)) if dim_order is None else dim_order
    return torch.empty_strided(list(size), strides_of(size, order), **options)


def _same_strides(given: torch.Tensor, order: Sequence[int] | None, dtype: Any) -> torch.Tensor:
    """What a copy lays out, without values."""
    like = torch.empty_like(given, dtype=dtype or given.dtype)
    strides = like.stride() if order is None else strides_of(given.shape, order)
    return like.new_empty_strided(like.shape, strides)


def _to_dim_order_copy_meta(
    self: torch.Tensor,
    *,
    dtype: torch.dtype | None = None,
    dim_order: Sequence[int] | None = None,
    **options: Any,
) -> torch.Tensor:
    del options  # where it lies and how it is pinned are no part of its type
    return _same_strides(self, dim_order, dtype)


def _clone_dim_order_meta(
    self: torch.Tensor, *, non_blocking: bool = False, dim_order: Sequence[int] | None = None
) -> torch.Tensor:
    return _same_strides(self, dim_order, None)


_META = {
    "_to_dim_order_copy": _to_dim_order_copy_meta,
    "_clone_dim_order": _clone_dim_order_meta,
}
_KERNELS = {
    "_to_dim_order_copy": _to_dim_order_copy,
    "_clone_dim_order": _clone_dim_order,
    "_empty_dim_order": _empty_dim_order,
}


def _batched(name: str) -> Callable[..., tuple[torch.Tensor, int]]:
    """How ``torch.vmap`` runs a copy: the batch is the outermost dimension of its memory."""

    def rule(
        info: Any,
        in_dims: tuple[int, ...],
        self: torch.Tensor,
        *,
        dim_order: Sequence[int] | None = None,
        **options: Any,
    ) -> tuple[torch.Tensor, int]:
        order = None if dim_order is None else [0, *[dim + 1 for dim in dim_order]]
        run: Any = overload("dim_order_ops", name, "default")
        return run(self.movedim(in_dims[0], 0), dim_order=order, **options), 0

    return rule


def _register() -> None:
    executorch_first()
    for op_type, schema in DIM_ORDER_SCHEMAS.items():
        name = op_type.split(".")[1]
        if hasattr(torch.ops.dim_order_ops, name):  # of executorch, for two of the orders alone
            key = "CompositeImplicitAutograd"
            with quietly():
                LIBRARY.impl(name, _KERNELS[name], key, allow_override=True)
        else:
            LIBRARY.define(schema.partition("::")[2])
            LIBRARY.impl(name, _KERNELS[name], "CompositeExplicitAutograd")
            if name in _META:
                LIBRARY.impl(name, _META[name], "Meta")
        if name in _META:
            rule = _batched(name)
            torch.library.register_vmap(f"dim_order_ops::{name}", rule, lib=LIBRARY)


with plain_tensors():  # the first use of an operator may be while something is traced
    _register()
