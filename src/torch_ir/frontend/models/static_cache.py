"""Decoding with a static cache: one token a call, the keys and values of those before as state."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import nn

from torch_ir.errors import ExportError
from torch_ir.torch_api import tracing_for_export


def with_static_cache(model: nn.Module, positions: int) -> nn.Module:
    """Make a causal model of transformers decode one token a call, in place.

    Its forward takes ``input_ids`` i64[1, 1] and ``position`` i64[1], and gives logits
    [1, 1, vocabulary]. The caches are buffers ``cache.0.keys``, ``cache.0.values``, …, zero at
    first; ``cache.position`` is where the last call wrote. None is in a checkpoint. A layer with
    a sliding window has all positions too; its mask leaves out those before the window.

    Args:
        model: The model, in evaluation mode; its parameters may be on the meta device.
        positions: How many tokens the cache holds.

    Raises:
        ExportError: The model has no cache of keys and values, or layers with another state.
    """
    from transformers import cache_utils

    kind: Any = type(model)
    static: Any = cache_utils.StaticLayer
    cache: Any = cache_utils.StaticCache(model.config, positions)  # pyright: ignore[reportArgumentType]  # of transformers
    for index, layer in enumerate(cache.layers):
        if isinstance(layer, cache_utils.DummyLayer):
            continue
        if type(layer) not in (static, cache_utils.StaticSlidingWindowLayer):
            raise ExportError(
                f"{kind.__name__}: layer {index} keeps a {type(layer).__name__}, not keys and "
                "values by position",
                remedy="Extract it with --tokens alone.",
            )
        cache.layers[index] = type("Kept", (static,), {"update": _update})(positions)

    def forward(
        self: nn.Module, input_ids: torch.Tensor, position: torch.Tensor | None = None
    ) -> Any:
        held = cast(Any, self.get_submodule("cache") if position is not None else None)
        if held is not None:
            held.position.copy_(position)
            for name, one in held.named_children():
                layer = cache.layers[int(name)]
                layer.keys, layer.values = one.keys, one.values
                layer.cumulative_length = held.position
        return kind.forward(self, input_ids, past_key_values=cache, use_cache=True).logits

    made = {"forward": forward, "__module__": kind.__module__, "__qualname__": kind.__qualname__}
    model.__class__ = type(kind.__name__, (kind,), made)
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    with torch.device("meta"), torch.no_grad(), tracing_for_export():
        on_meta = {name: tensor.to("meta") for name, tensor in tensors.items()}
        ids = torch.zeros(1, 1, dtype=torch.long)
        torch.func.functional_call(model, on_meta, (ids,))  # each layer meets keys and values
    model.add_module("cache", _held(cache))
    return model


def _held(cache: Any) -> nn.Module:
    """A module with the caches of each layer as buffers."""
    held = nn.Module()
    held.register_buffer("position", torch.zeros(1, dtype=torch.long), persistent=False)
    for index, layer in enumerate(cache.layers):
        if layer.keys is not None:
            one = nn.Module()
            held.add_module(str(index), one)
            for name in ("keys", "values"):
                fake = getattr(layer, name)
                zeros = torch.zeros(fake.shape, dtype=fake.dtype)
                one.register_buffer(name, zeros, persistent=False)
    return held


def _update(
    self: Any, keys: torch.Tensor, values: torch.Tensor, *_: Any, **__: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Write keys and values behind the position that all layers share."""
    if not self.is_initialized:
        self.lazy_initialization(keys, values)
    positions = torch.arange(keys.shape[-2], device=keys.device) + self.cumulative_length
    self.keys.index_copy_(2, positions, keys)
    self.values.index_copy_(2, positions, values)
    return self.keys, self.values
