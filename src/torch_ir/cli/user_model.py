"""The user's model with the arguments to call it with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import torch
from torch import nn

from torch_ir.cli.target import Target, build
from torch_ir.cli.tensors import make_inputs
from torch_ir.cli.values import InputSpec
from torch_ir.executor.samples import random_tensor
from torch_ir.torch_api import pytree
from torch_ir.user_code import TargetError


def prepared(target: str, inputs: Sequence[InputSpec], *, meta: bool, seed: int) -> Target:
    """Return the model with the arguments of ``--input``, or else those that the callable gave.

    Raises:
        TargetError: The model cannot be built, or nothing says what to call it with.
    """
    built = build(target, meta=meta)
    if inputs:
        args, kwargs = make_inputs(inputs, device_of(built.model, meta), seed)
        return Target(built.model, args, kwargs)
    if not built.args and not built.kwargs:
        raise TargetError(
            f"nothing says which inputs {target} takes",
            remedy="Give each as --input 2x3x224x224:float32, or let the callable return "
            "(module, inputs).",
        )
    return built


def device_of(model: nn.Module, meta: bool) -> torch.device:
    """Return the device of the model's parameters and buffers; without any, ``meta`` decides."""
    first = next(chain(model.parameters(), model.buffers()), None)
    if first is not None:
        return first.device
    return torch.device("meta" if meta else "cpu")


def materialized(
    built: Target, target: str, weights: Mapping[str, torch.Tensor] | None, seed: int
) -> Target:
    """Return the model with these weights, and its arguments with values in place of meta.

    Raises:
        TargetError: The weights are not the model's, or a part of it is on the meta device still.
    """
    if weights is not None:
        _take_weights(built.model, target, weights)
    tensors = chain(built.model.named_parameters(), built.model.named_buffers())
    empty = [name for name, tensor in tensors if tensor.is_meta]
    if empty:
        more = f" and {len(empty) - 3} more" if len(empty) > 3 else ""
        raise TargetError(
            f"{target} is on the meta device: {', '.join(empty[:3])}{more} have no values",
            remedy="Give --weights, or build the model with values.",
        )
    generator = torch.Generator().manual_seed(seed)

    def value_of(leaf: Any) -> Any:
        if not (isinstance(leaf, torch.Tensor) and leaf.is_meta):
            return leaf
        return random_tensor(leaf.shape, leaf.dtype, generator)

    args, kwargs = pytree.tree_map(value_of, (built.args, dict(built.kwargs)))
    return Target(built.model, args, kwargs)


def _take_weights(model: nn.Module, target: str, weights: Mapping[str, torch.Tensor]) -> None:
    try:
        model.load_state_dict(dict(weights), assign=True)
    except RuntimeError as error:
        raise TargetError(
            f"the weights are not those of {target}",
            picture="\n".join(line.strip() for line in str(error).splitlines()[1:12]),
            remedy="Give the weights of this model.",
        ) from error
