"""Recurrent networks of several layers with dropout, which torch's decompositions leave out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torch_ir.ops.flops import GATES
from torch_ir.torch_api import overload

NETWORKS = tuple(f"aten.{name}.input" for name in GATES)
"""The operators that compute whole networks, of sequences of one length."""


_ARGUMENTS = (
    *("input", "hx", "params", "has_biases", "num_layers"),
    *("dropout", "train", "bidirectional", "batch_first"),
)


def layer_by_layer(op_type: str) -> Callable[..., tuple[torch.Tensor, ...]]:
    """Return a decomposition into layers, with dropout between them where the network trains.

    Args:
        op_type: One of :data:`NETWORKS`.
    """

    def call(*args: Any) -> tuple[torch.Tensor, ...]:
        operator: Any = overload(*op_type.split("."))
        given = dict(zip(_ARGUMENTS, args, strict=True))
        count, dropout = given["num_layers"], given["dropout"]
        if count < 2 or not dropout or not given["train"]:
            return operator.decompose(*args)
        turned = given["batch_first"]
        values = args[0].transpose(0, 1) if turned else args[0]
        states: list[tuple[torch.Tensor, ...]] = []
        for layer in range(count):
            values, *made = operator.decompose(*_of_layer(given, layer, values).values())
            states.append(tuple(made))
            if layer < count - 1:
                values = torch.dropout(values, dropout, True)
        values = values.transpose(0, 1) if turned else values
        return values, *[torch.cat(parts) for parts in zip(*states, strict=True)]

    return call


def _of_layer(given: dict[str, Any], layer: int, values: torch.Tensor) -> dict[str, Any]:
    """The arguments of one layer alone, which takes ``values`` step by step."""
    sides = 2 if given["bidirectional"] else 1
    width = len(given["params"]) // given["num_layers"]
    span = slice(layer * sides, (layer + 1) * sides)
    hx = given["hx"]
    changed: dict[str, Any] = {
        "input": values,
        "hx": hx[span] if isinstance(hx, torch.Tensor) else [state[span] for state in hx],
        "params": given["params"][layer * width : (layer + 1) * width],
        "num_layers": 1,
        "dropout": 0.0,
        "batch_first": False,
    }
    return {**given, **changed}
