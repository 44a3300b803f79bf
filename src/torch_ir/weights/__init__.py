"""Weights from files, and whether they are those that an IR names."""

from typing import TYPE_CHECKING

from torch_ir.lazy import lazy_names

if TYPE_CHECKING:
    from torch_ir.weights.check import check_weights
    from torch_ir.weights.load import (
        load_weights,
        load_weights_pt,
        load_weights_safetensors,
        register_weight_reader,
    )
    from torch_ir.weights.shards import shard_weights

__all__ = [
    "shard_weights",
    "check_weights",
    "load_weights",
    "load_weights_pt",
    "load_weights_safetensors",
    "register_weight_reader",
]

__getattr__ = lazy_names(
    __name__,
    {
        "torch_ir.weights.check": ("check_weights",),
        "torch_ir.weights.load": (
            "load_weights",
            "load_weights_pt",
            "load_weights_safetensors",
            "register_weight_reader",
        ),
        "torch_ir.weights.shards": ("shard_weights",),
    },
)
