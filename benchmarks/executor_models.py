"""The models that executors are measured on: real architectures, weights from a fixed seed."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

Model = tuple[nn.Module, tuple[torch.Tensor, ...]]


class First(nn.Module):
    """A transformers model that takes tensors by position and returns one tensor."""

    def __init__(self, model: nn.Module, names: tuple[str, ...]):
        super().__init__()
        self.model = model
        self.names = names

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        return self.model(**dict(zip(self.names, args, strict=True)))[0]


class SmallLayers(nn.Module):
    """Fifty small layers: what counts is what a call of an operator costs."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(16, 16) for _ in range(50)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x)) + 1
        return x


class Block(nn.Module):
    """One layer of a Llama, with a cache of keys and values that it writes in place."""

    def __init__(self, width: int, heads: int, inner: int, length: int):
        super().__init__()
        self.heads = heads
        self.norm_in, self.norm_out = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.project = nn.Linear(width, width, bias=False)
        self.gate = nn.Linear(width, inner, bias=False)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)
        self.register_buffer("keys", torch.zeros(1, heads, length, width // heads))
        self.register_buffer("values", torch.zeros(1, heads, length, width // heads))

    def forward(
        self, x: torch.Tensor, position: torch.Tensor, turn: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        batch, steps, width = x.shape
        split = self.qkv(self.norm_in(x)).view(batch, steps, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4).unbind(0)
        self.keys.index_copy_(2, position, rotated(key, turn))
        self.values.index_copy_(2, position, value)
        seen = nn.functional.scaled_dot_product_attention(
            rotated(query, turn), self.keys, self.values, attn_mask=mask
        )
        x = x + self.project(seen.transpose(1, 2).reshape(batch, steps, width))
        y = self.norm_out(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


def rotated(x: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
    """Rotary position embedding; ``turn`` holds cosines and sines."""
    first, second = x.chunk(2, -1)
    return x * turn[0] + torch.cat([-second, first], -1) * turn[1]


class Decode(nn.Module):
    """One step of an 8-layer, 512-wide Llama: one token in, the logits of the next out."""

    def __init__(self, layers: int = 8, width: int = 512, heads: int = 8, length: int = 256):
        super().__init__()
        self.embedding = nn.Embedding(8000, width)
        self.layers = nn.ModuleList([Block(width, heads, 1408, length) for _ in range(layers)])
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, 8000, bias=False)
        half = width // heads // 2
        angles = torch.outer(torch.arange(length).float(), 1e4 ** (-torch.arange(half) / half))
        turns = torch.stack([angles.cos(), angles.sin()]).repeat(1, 1, 2)
        self.register_buffer("turns", turns)

    def forward(self, token: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        x = self.embedding(token)
        mask = (torch.arange(self.turns.shape[1]) <= position).view(1, 1, 1, -1)
        for layer in self.layers:
            x = layer(x, position, self.turns[:, position], mask)
        return self.head(self.norm(x))


class Recurrent(nn.Module):
    """Three LSTM layers and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(64, 128, num_layers=3, batch_first=True)
        self.head = nn.Linear(128, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0])


def small_layers() -> Model:
    return SmallLayers(), (torch.randn(2, 16),)


def resnet50() -> Model:
    from transformers import ResNetConfig, ResNetModel

    return First(ResNetModel(ResNetConfig()), ("pixel_values",)), (torch.randn(1, 3, 224, 224),)


def bert() -> Model:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536
    )
    ids = torch.randint(0, config.vocab_size, (1, 128))
    model = First(BertModel(config), ("input_ids", "attention_mask"))
    return model, (ids, torch.ones(1, 128, dtype=torch.int64))


def llama_decode() -> Model:
    return Decode(), (torch.tensor([[5]]), torch.tensor([7]))


def lstm() -> Model:
    return Recurrent(), (torch.randn(2, 32, 64),)


MODELS: dict[str, Callable[[], Model]] = {
    "50 small layers": small_layers,
    "ResNet-50": resnet50,
    "BERT of MiniLM's size": bert,
    "decode step of a Llama": llama_decode,
    "LSTM stack": lstm,
}


def build(name: str) -> Model:
    """A model in evaluation mode, and inputs for it."""
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    return model.eval().requires_grad_(False), inputs
