"""A model whose graph has 6,000 nodes, with weights so small that storing them costs nothing."""

from __future__ import annotations

import torch
from torch import nn

BLOCKS = 1000
WIDTH = 4


class Block(nn.Module):
    """Six operators."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, WIDTH)
        self.down = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.nn.functional.gelu(self.up(self.norm(x)))
        return x + self.down(hidden) * 0.5


def deep_model() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The model, with parameters that need no gradient, and its inputs."""
    torch.manual_seed(0)
    model = nn.Sequential(*(Block() for _ in range(BLOCKS))).eval().requires_grad_(False)
    return model, (torch.randn(2, WIDTH),)
