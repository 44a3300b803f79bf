"""Whether two programs do the same: results, written inputs and buffers, bit for bit."""

from __future__ import annotations

import torch
from torch.utils._pytree import tree_leaves, tree_map

from torch_ir import IR, IRExecutor
from torch_ir.torch_api import bytes_of


def assert_same(first: IR, second: IR, weights, args=(), kwargs=None, calls: int = 2) -> None:
    """Call both with the same arguments, more than once, and compare all that a caller sees."""
    seen = [_observed(ir, weights, args, kwargs or {}, calls) for ir in (first, second)]
    for one, other in zip(*seen, strict=True):
        assert one.shape == other.shape
        assert one.dtype == other.dtype
        assert torch.equal(bytes_of(one), bytes_of(other))


def _observed(ir, weights, args, kwargs, calls):
    executor = IRExecutor(ir, weights)
    seen = []
    for _ in range(calls):
        given = tree_map(_copy, (args, kwargs))
        torch.manual_seed(0)
        result = executor(*given[0], **given[1])
        seen += [_copy(leaf) for leaf in tree_leaves((result, given))]
    keys = sorted(key for key in weights if key in executor.buffers)
    seen += [executor.buffers[key] for key in keys]
    return [leaf for leaf in seen if isinstance(leaf, torch.Tensor)]


def _copy(leaf):
    return leaf.clone() if isinstance(leaf, torch.Tensor) else leaf


def operators(ir: IR) -> set[str]:
    """Every operator that a program calls, in its functions too."""
    found = {node.op_type for node in ir.nodes}
    return found.union(*(operators(body) for body in ir.functions.values()))
