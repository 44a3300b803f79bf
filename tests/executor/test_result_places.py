"""Results lie where eager's do: strides, offsets, and what shares memory with what."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import torch_ir
from torch_ir import extract_ir

VIEWS: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (
    lambda t: t.t(),
    lambda t: t[1:],
    lambda t: t[:, :1].expand(-1, 5),
    lambda t: t[::2],
    lambda t: t.unsqueeze(0)[0],
    lambda t: t.transpose(0, 1)[:2],
    lambda t: t,
)
FRESH: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (
    lambda t: t * 2,
    lambda t: t.t().clone(),
    lambda t: torch.zeros_like(t),
    lambda t: t.t().contiguous().t() + 1,
)
WRITES: tuple[Callable[[torch.Tensor], Any], ...] = (
    lambda t: t.add_(1),
    lambda t: t[0].mul_(3),
    lambda t: t[:, 0].copy_(t[:, 1] * 2),
    lambda t: t.t().sub_(2),
)


class Program(torch.nn.Module):
    """Views of, and writes to, a buffer, an input and fresh tensors, drawn from a seed."""

    def __init__(self, seed: int):
        super().__init__()
        self.register_buffer("state", torch.arange(16.0).view(4, 4))
        self.draws = seed

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        draw = random.Random(self.draws)
        bases, shown = [x, self.state, FRESH[self.draws % 4](x)], [x]
        for _ in range(6):
            base = draw.choice(bases)
            match draw.randrange(3):
                case 0:
                    draw.choice(WRITES)(base)
                case 1:
                    bases.append(draw.choice(FRESH)(base))
                case _:
                    shown.append(draw.choice(VIEWS)(base))
        return [*draw.sample(shown, min(len(shown), 3)), draw.choice(bases), self.state.t()]


def places(results: list[torch.Tensor], *given: torch.Tensor) -> list[Any]:
    """The values of results, where they lie, and which of all share memory."""
    storages = [t.untyped_storage().data_ptr() for t in (*given, *results)]
    shared = [storages.index(storage) for storage in storages]
    return [shared, *((t.tolist(), t.shape, t.stride(), t.storage_offset()) for t in results)]


@pytest.mark.parametrize("seed", range(30))
def test_results_lie_where_those_of_eager_do(seed):
    ir = extract_ir(Program(seed), (torch.ones(4, 4),))
    run = torch_ir.compile(ir, {"state": torch.arange(16.0).view(4, 4)})
    eager = Program(seed)
    for call in range(2):
        ours, theirs = (torch.full((4, 4), 2.0 + call) for _ in range(2))
        assert places(run(ours), ours) == places(eager(theirs), theirs)
        assert torch.equal(ours, theirs)
        assert torch.equal(run.buffers.get("state", eager.state), eager.state)
