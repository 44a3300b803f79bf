"""The shards of weights that one rank of a parallel program has."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

import torch

from torch_ir.arguments import public
from torch_ir.errors import WeightLoadError
from torch_ir.ir import IR
from torch_ir.ir.values import kind_without_values
from torch_ir.weights.load import load_weights


@public
def shard_weights(
    ir: IR, weights: Mapping[str, torch.Tensor] | str | PathLike[str], rank: int
) -> dict[str, torch.Tensor]:
    """Return the weights of one rank: slices of those that ``ir.metadata["shards"]`` splits.

    Of a file that is mapped, only the slices are read.

    Args:
        ir: A program of :func:`torch_ir.extract_parallel`.
        weights: The whole weights by ``state_dict`` key, or the path of their file.
        rank: The rank in its group.

    Raises:
        WeightLoadError: A weight is missing, or cannot be split as the program says.

    Example:
        >>> from torch_ir.ir import TensorMeta
        >>> shards = {"w": {"dim": 0, "parts": 2}}
        >>> ir = IR([], [], [], [TensorMeta("w", (1, 2), "float32")], metadata={"shards": shards})
        >>> shard_weights(ir, {"w": torch.arange(4.0).reshape(2, 2)}, 1)
        {'w': tensor([[2., 3.]])}
    """
    given = weights if isinstance(weights, Mapping) else load_weights(weights)
    shards: Any = ir.metadata.get("shards") or {}
    found: dict[str, torch.Tensor] = {}
    for meta in ir.weights:
        if meta.name not in given:
            raise WeightLoadError(f"the weight {meta.name!r} is missing")
        tensor, shard = given[meta.name], shards.get(meta.name)
        is_tensor = isinstance(tensor, torch.Tensor)  # pyright: ignore[reportUnnecessaryIsInstance]  # callers may be untyped
        kind = kind_without_values(tensor) if is_tensor else type(tensor).__name__
        if kind:
            raise WeightLoadError(f"the weight {meta.name!r} is no tensor with values, but {kind}")
        if shard is None:
            found[meta.name] = tensor
            continue
        dim, parts = shard["dim"], shard["parts"]
        if not (0 <= rank < parts and dim < tensor.dim() and not tensor.shape[dim] % parts):
            raise WeightLoadError(
                f"rank {rank} has no part of {meta.name!r}: {list(tensor.shape)} in {parts} parts "
                f"along dimension {dim}"
            )
        size = tensor.shape[dim] // parts
        found[meta.name] = tensor.narrow(dim, rank * size, size).clone()
    return found
