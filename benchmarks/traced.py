"""Warm calls of traced functions: against eager, torch's own make_traced, torch.compile, make_fx.

Microseconds a call; every round runs each contender in turn, and the least counts, as everything
above it is the machine's.
"""

from __future__ import annotations

import copy
import gc
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch._prims.executor import make_traced as torch_make_traced
from torch.fx.experimental.proxy_tensor import make_fx

from torch_ir import make_traced

ROUNDS = 9


class Block(nn.Module):
    """A block of a transformer, of width 64 with 4 heads."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(64), nn.LayerNorm(64)
        self.qkv, self.out = nn.Linear(64, 192), nn.Linear(64, 64)
        self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, _ = x.shape
        parts = self.qkv(self.first(x)).view(batch, tokens, 3, 4, 16).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(*parts.unbind())
        x = x + self.out(attended.transpose(1, 2).reshape(batch, tokens, 64))
        return x + self.down(nn.functional.gelu(self.up(self.second(x))))


def least(contenders: Mapping[str, Callable[[], object]], calls: int) -> dict[str, float]:
    """The least microseconds of a call of each contender."""
    seconds = {name: float("inf") for name in contenders}
    for number in range(ROUNDS + 1):
        for name, contender in contenders.items():
            repeat = calls if number and seconds[name] < 0.01 else 1
            gc.collect()
            started = time.perf_counter()
            for _ in range(repeat):
                contender()
            if number:
                seconds[name] = min(seconds[name], (time.perf_counter() - started) / repeat)
    return {name: value * 1e6 for name, value in seconds.items()}


def contenders(function: Any, *args: Any) -> dict[str, Callable[[], object]]:
    """The function in every form, each of a copy: some write to the modules that they trace."""
    ours, theirs = make_traced(copy.deepcopy(function)), torch_make_traced(copy.deepcopy(function))
    compiled = torch.compile(copy.deepcopy(function), backend="eager")
    graph = make_fx(function)(*args)
    return {
        "eager": lambda: function(*args),
        "torch_ir.make_traced": lambda: ours(*args),
        "torch.compile(backend='eager')": lambda: compiled(*args),
        "make_fx, its graph used again": lambda: graph(*args),
        "torch._prims make_traced": lambda: theirs(*args),
    }


def report(title: str, micros: Mapping[str, float]) -> None:
    """Print each contender, what it costs over eager, and its ratio to eager."""
    print(f"\n{title}")
    base = micros["eager"]
    for name, value in micros.items():
        print(f"  {name:<34}{value:>12.1f} us {value - base:>+12.1f} us {value / base:>9.2f} x")


def main() -> None:
    torch.set_num_threads(1)
    a, b = torch.randn(4, 5), torch.randn(4, 5)
    report(
        "torch.add of two arguments", least(contenders(lambda x, y: torch.add(x, y), a, b), 200)
    )
    big = torch.randn(600, 600)
    report("a product of matrices, 600 x 600", least(contenders(lambda x: x @ x, big), 3))
    model = nn.Sequential(*[Block() for _ in range(6)]).eval()
    with torch.no_grad():
        report(
            "a transformer of 6 blocks, 2 x 16 x 64",
            least(contenders(model, torch.randn(2, 16, 64)), 10),
        )


if __name__ == "__main__":
    main()
