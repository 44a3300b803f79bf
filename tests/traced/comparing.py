"""Comparing a traced function with itself, untraced: results, inputs and random numbers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.utils._pytree as pytree


def same(left: Any, right: Any) -> bool:
    """Whether two results cannot be told apart."""
    (ours, our_spec), (theirs, their_spec) = pytree.tree_flatten(left), pytree.tree_flatten(right)
    return our_spec == their_spec and all(map(_same_leaf, ours, theirs))


def _same_leaf(left: Any, right: Any) -> bool:
    if type(left) is not type(right):
        return False
    if not isinstance(left, torch.Tensor):
        return left == right or (left != left and right != right)
    alike = (
        left.dtype == right.dtype
        and left.shape == right.shape
        and left.layout == right.layout
        and left.device == right.device
        and left.requires_grad == right.requires_grad
    )
    if not alike or left.is_meta:
        return alike
    if left.layout is not torch.strided:
        return torch.equal(left.to_dense(), right.to_dense())
    return left.stride() == right.stride() and torch.allclose(
        left, right, rtol=1e-6, atol=1e-6, equal_nan=True
    )


def agree(
    function: Callable[..., Any],
    traced: Callable[..., Any],
    *args: Any,
    times: int = 3,
    **kwargs: Any,
) -> Any:
    """Call both on equal arguments from the same seed, several times; the last result.

    Copies keep which arguments are the same tensor, and which share memory.
    """
    result = None
    for seed in range(times):
        ours, theirs = copy.deepcopy((args, kwargs)), copy.deepcopy((args, kwargs))
        torch.manual_seed(seed)
        expected = function(*theirs[0], **theirs[1])
        state = torch.get_rng_state()
        torch.manual_seed(seed)
        result = traced(*ours[0], **ours[1])
        assert same(result, expected), f"got {result}, eager gives {expected}"
        assert same(ours, theirs), f"arguments become {ours}, eager's {theirs}"
        assert torch.equal(torch.get_rng_state(), state), "the generator is in another state"
    return result
