"""Decoding with a static cache: one token a call, the keys and values of those before as state."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import torch
from torch import nn

from torch_ir.errors import ExportError
from torch_ir.torch_modes import tracing_for_export


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
    with (
        torch.device("meta"),
        torch.no_grad(),
        tracing_for_export(),
        _alike_run_once(model, cache),
    ):
        on_meta = {name: tensor.to("meta") for name, tensor in tensors.items()}
        ids = torch.zeros(1, 1, dtype=torch.long)
        torch.func.functional_call(model, on_meta, (ids,))  # each layer meets keys and values
    model.add_module("cache", _held(cache))
    return model


@contextmanager
def _alike_run_once(model: nn.Module, cache: Any) -> Generator[None]:
    """Let layers that are alike but for their index be run once within a ``with`` block.

    Each further one gives what the first gave, and its caches are as those of the first.
    """
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    members = {member: vars(member).get("forward") for found in lists for member in found}
    met: dict[str, tuple[nn.Module, Any]] = {}

    def called(member: nn.Module, forward: Any, *args: Any, **kwargs: Any) -> Any:
        kind = _kind(member)
        if kind not in met:
            met[kind] = member, forward(*args, **kwargs)
            return met[kind][1]
        first, result = met[kind]
        for one, other in zip(first.modules(), member.modules(), strict=True):
            known = cache.layers[one.layer_idx] if hasattr(one, "layer_idx") else None
            if known is not None and known.is_initialized:
                layer = cache.layers[cast(int, other.layer_idx)]
                layer.lazy_initialization(known.keys, known.values)
        return result

    try:
        for member in members:
            vars(member)["forward"] = partial(called, member, member.forward)
        yield
    finally:
        for member, before in members.items():
            del vars(member)["forward"]
            vars(member).update({} if before is None else {"forward": before})


def _kind(member: nn.Module) -> str:
    """Describe a layer by its structure, shapes and settings, without its index."""
    plain = (bool, int, float, str, type(None))
    facts = [
        sorted([(k, v) for k, v in vars(m).items() if type(v) in plain and k != "layer_idx"])
        for m in member.modules()
    ]
    return f"{member} {[tensor.shape for tensor in member.parameters()]} {facts}"


def _held(cache: Any) -> nn.Module:
    """A module with the caches of each layer as buffers, whose memory nothing has touched."""
    import numpy as np

    held = nn.Module()
    held.register_buffer("position", torch.zeros(1, dtype=torch.long), persistent=False)
    for index, layer in enumerate(cache.layers):
        if layer.keys is not None:
            one = nn.Module()
            held.add_module(str(index), one)
            for name in ("keys", "values"):
                fake = getattr(layer, name)
                zeros = torch.from_numpy(np.zeros(fake.nbytes, np.uint8)).view(fake.dtype)
                one.register_buffer(name, zeros.view(fake.shape), persistent=False)
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
