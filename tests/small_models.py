"""Small models of many kinds, each with arguments; every one runs in milliseconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  # torch's own convention
from torch import nn


@dataclass(frozen=True)
class Case:
    """A model and what to call it with.

    Attributes:
        make: Makes the model.
        arguments: Makes the positional arguments, on whatever device is the default.
        keywords: Makes the keyword arguments.
        training: Whether the model is left in training mode.
    """

    make: Callable[[], nn.Module]
    arguments: Callable[[], tuple[Any, ...]]
    keywords: Callable[[], dict[str, Any]] = field(default=dict)
    training: bool = False

    def model(self) -> nn.Module:
        """The model on the CPU, with the same weights each time."""
        torch.manual_seed(0)
        return self.make().train(self.training)

    def meta(self) -> nn.Module:
        """The model on the meta device."""
        with torch.device("meta"):
            return self.make().train(self.training)

    def inputs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments with values."""
        torch.manual_seed(1)
        return self.arguments(), self.keywords()

    def meta_inputs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments without values."""
        return torch.utils._pytree.tree_map(
            lambda leaf: leaf.to("meta") if isinstance(leaf, torch.Tensor) else leaf, self.inputs()
        )


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6)
        self.pool = nn.MaxPool2d(2, return_indices=True)
        self.head = nn.Linear(6, 5)

    def forward(self, image):
        pooled, indices = self.pool(F.relu_(self.norm(self.conv(image))))
        return self.head(pooled.mean((2, 3))), indices


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.norm = nn.LayerNorm(8)

    def forward(self, x, *, mask=None):
        q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
        return x + F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(5, 4, num_layers=2, batch_first=True)
        self.gru = nn.GRU(4, 3, bidirectional=True)

    def forward(self, x):
        hidden, (last, cell) = self.lstm(x)
        return {"gru": self.gru(hidden)[0], "state": [last, cell]}


class Embedded(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(20, 6, padding_idx=0)
        self.bag = nn.EmbeddingBag(20, 6, mode="mean")
        self.head = nn.Linear(6, 20, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens):
        return self.head(self.words(tokens)).log_softmax(-1), self.bag(tokens)


class Einsum(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 5, 6))

    def forward(self, x, y):
        return torch.einsum("bi,ijk,bj->bk", x, self.weight, y)


class Spectrum(nn.Module):
    def forward(self, signal):
        spectrum = torch.fft.rfft(signal, norm="ortho")
        return spectrum.abs(), torch.fft.irfft(spectrum.conj() * spectrum, n=16), spectrum.conj()


class ScatterGather(nn.Module):
    def forward(self, x, index):
        taken = x.gather(1, index)
        spread = torch.zeros_like(x).scatter_add_(1, index, taken)
        top, places = spread.topk(2, dim=1)
        return (
            spread.index_put((index[0],), x[:2], accumulate=True),
            top,
            places,
            x[:, [2, 0]],
        )


class Selected(nn.Module):
    def forward(self, x, rows):
        return (
            x[:, rows],
            x[None, ..., rows[:1]],
            torch.where(x > 0, x, 0.0),
            x.masked_fill(x < 0, 2),
        )


class OptionalInTheMiddle(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(4))

    def forward(self, x):
        clamped = torch.clamp(x, max=0.5)
        return F.layer_norm(clamped, (4,), None, self.bias), F.group_norm(x, 2, None, self.bias)


class Scopes(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        with torch.no_grad():
            frozen = self.fc(x)
            with torch.enable_grad():
                live = frozen.relu()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            low = self.fc(live)
            with torch.autocast("cpu", enabled=False):
                high = low.float() + frozen
        return high, low


class Casts(nn.Module):
    def forward(self, x):
        half = x.to(torch.float16)
        image = half.view(1, 3, 4, 5).contiguous(memory_format=torch.channels_last)
        ones = torch.ones(3, dtype=torch.int64, device=x.device)
        table = torch.tensor([0.5, 0.25, 0.125], device=x.device)
        return (
            image + 1,
            ones * table,
            torch.arange(0, 3, device=x.device) // 2,
            torch.full((2,), 7),
        )


class Nested(nn.Module):
    def forward(self, pair, options, scale, name, *, extra):
        x, y = pair
        total = x * scale + options["bias"][0]
        if extra is not None:
            total = total - extra["shift"]
        return {"sum": (total, y), "name": name, "none": None, "count": 3, "again": [total]}


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x):
        self.calls.add_(1)
        return self.norm(x) * self.calls


class InPlace(nn.Module):
    def forward(self, x):
        x[:, 0] = 1.0
        x.view(-1).mul_(2)
        return x + 1, x


class Passing(nn.Module):
    """Outputs that are an input, a weight, a constant, and the same value twice."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3))
        self.register_buffer("offset", torch.arange(3.0), persistent=False)
        self.table = torch.tensor([3, 1, 2])

    def forward(self, x):
        y = x + self.offset
        return x, self.weight, y, y, self.table, self.table + 1


class Dropping(nn.Module):
    """Multi-output operators of which one result or none is used."""

    def forward(self, x):
        left, _, right = torch.split(x, [1, 2, 1], dim=1)
        values, _ = x.sort(1)
        _, places = torch.max(x, dim=1)
        torch.std_mean(x)
        return left * right, values, places, x.unbind(0)[1]


def tiny_bert() -> nn.Module:
    from transformers import BertConfig, BertModel

    return BertModel(
        BertConfig(
            vocab_size=50,
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=24,
            max_position_embeddings=16,
        )
    )


def tiny_llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=50,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32,
        use_cache=False,
    )
    return LlamaForCausalLM(config)


def tokens() -> dict[str, Any]:
    return {
        "input_ids": torch.arange(14).view(2, 7) % 50,
        "attention_mask": torch.ones(2, 7).long(),
    }


CASES: dict[str, Case] = {
    "linear": Case(lambda: nn.Linear(3, 2), lambda: (torch.randn(4, 3),)),
    "conv": Case(ConvNet, lambda: (torch.randn(2, 3, 8, 8),)),
    "conv in training": Case(ConvNet, lambda: (torch.randn(2, 3, 8, 8),), training=True),
    "attention": Case(
        Attention,
        lambda: (torch.randn(2, 5, 8),),
        lambda: {"mask": torch.ones(5, 5).tril().bool()},
    ),
    "recurrent": Case(Recurrent, lambda: (torch.randn(2, 3, 5),)),
    "embedding": Case(Embedded, lambda: (torch.randint(0, 20, (3, 4)),)),
    "einsum": Case(Einsum, lambda: (torch.randn(2, 4), torch.randn(2, 5))),
    "spectrum": Case(Spectrum, lambda: (torch.randn(2, 16),)),
    "scatter": Case(
        ScatterGather, lambda: (torch.randn(3, 4), torch.tensor([[0, 2], [1, 1], [2, 0]]))
    ),
    "selected": Case(Selected, lambda: (torch.randn(3, 4), torch.tensor([2, 0]))),
    "optional": Case(OptionalInTheMiddle, lambda: (torch.randn(3, 4),)),
    "scopes": Case(Scopes, lambda: (torch.randn(2, 4),)),
    "casts": Case(Casts, lambda: (torch.randn(60),)),
    "nested": Case(
        Nested,
        lambda: ((torch.randn(3), torch.randn(2)), {"bias": [torch.randn(3)]}, 2.5, "net"),
        lambda: {"extra": {"shift": torch.randn(3)}},
    ),
    "counting": Case(Counting, lambda: (torch.randn(5, 4),), training=True),
    "in place": Case(InPlace, lambda: (torch.randn(2, 3),)),
    "passing": Case(Passing, lambda: (torch.randn(3),)),
    "dropping": Case(Dropping, lambda: (torch.randn(3, 4),)),
    "bert": Case(tiny_bert, lambda: (), tokens),
    "llama": Case(tiny_llama, lambda: (), tokens),
}
