"""Random numbers drawn in place, into memory that lies in several ways, in functional programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # torch's own convention
from torch import nn

import torch_ir
from torch_ir.errors import PassError

LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "in order": lambda x: x,
    "turned": lambda x: x.t(),
    "rows": lambda x: x[1:3],
    "columns": lambda x: x[:, 1:20],
    "turned columns": lambda x: x[:, 1:20].t(),
    "every second": lambda x: x[:, ::2],
}
DRAWS: dict[str, Callable[[Any], Any]] = {
    "coins": lambda x: x.bernoulli_(0.7),
    "coins of each": lambda x: x.bernoulli_(torch.full(x.shape, 0.7)),
    "coins beside": lambda x: torch.empty_like(x).bernoulli_(0.3),
    "whole coins": lambda x: torch.empty_like(x, dtype=torch.int64).bernoulli_(0.5),
    "uniform": lambda x: x.uniform_(-1, 1),
    "normal": lambda x: x.normal_(1, 2),
    "exponential": lambda x: x.exponential_(),
    "from": lambda x: x.random_(3, 9),
    "geometric": lambda x: x.geometric_(0.4),
    "dropout": lambda x: F.dropout(x, 0.3, inplace=True),
    "alpha dropout": lambda x: F.alpha_dropout(x, 0.3),
}
REFUSED = {("normal", "columns"), ("normal", "every second")}


class Drawing(nn.Module):
    """Draws into a part of a tensor, and gives that and all of it."""

    def __init__(self, draw: str, layout: str):
        super().__init__()
        self.draw, self.layout = DRAWS[draw], LAYOUTS[layout]

    def forward(self, x: Any) -> Any:
        whole = x * 1
        drawn = self.draw(self.layout(whole))
        return drawn * 1, whole


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("draw", DRAWS)
def test_the_numbers_are_those_of_eager(draw: str, layout: str):
    model, x = Drawing(draw, layout), torch.rand(8, 24)
    torch.manual_seed(1)
    expected = model(x)
    ir = torch_ir.extract_ir(model, (x,))
    if (draw, layout) in REFUSED:
        with pytest.raises(PassError) as caught:
            torch_ir.functionalize(ir)
        assert "it draws into a part of memory, %" in str(caught.value)
        assert "and a functional operator would draw other numbers" in str(caught.value)
        return
    for program in (torch_ir.functionalize(ir), torch_ir.decompose(ir)):
        torch.manual_seed(1)
        torch.testing.assert_close(torch_ir.IRExecutor(program)(x), expected)


def test_a_name_that_pythons_grammar_has_is_no_name_in_graphs_of_torch():
    ir = torch_ir.extract_ir(Drawing("from", "rows"), (torch.rand(8, 24),))
    with pytest.raises(PassError) as caught:
        torch_ir.to_exported_program(ir, {})
    assert "aten.random.from has a word of Python's own for a name" in str(caught.value)


@pytest.mark.parametrize("executor", ["aten", "prims"])
def test_gradients_drop_out_what_the_call_did(executor: str):
    layer = nn.Linear(8, 8)

    def function(x):
        turned = F.dropout(layer(x).transpose(0, 1), 0.3)
        return F.dropout(layer(turned.transpose(0, 1)), 0.3) + x

    x, traced = (
        torch.randn(5, 8).requires_grad_(),
        torch_ir.make_traced(function, executor=executor),
    )
    gradients: list[Any] = []
    for run in (function, traced):
        torch.manual_seed(2)
        gradients.append(torch.autograd.grad(run(x).square().sum(), [x, layer.weight]))
    torch.testing.assert_close(*gradients)
