"""Types under autocast in programs of torch's bytecode tracer, which records those without it."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.export import Dim

from torch_ir import (
    IRExecutor,
    compile,
    decompose,
    extract_ir,
    functionalize,
    make_traced,
    validate,
)


class Mixed(nn.Module):
    """A region, another in it that is switched off, and what follows from both."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.linear(x)
            first, _ = torch.split(y, 2, -1)
            with torch.autocast("cpu", enabled=False):
                full = x @ x.mT
            values, places = y.max(-1)
            wide = torch.cat([self.linear(x).float(), x[:, :1]], -1)
            again = self.linear(wide).to(x.dtype)
        return again, y, y * 2 + 1, first.sum(), full, values, places, torch.cat([y, y])


@pytest.mark.parametrize("shapes", [None, ({0: Dim("batch", min=2, max=9)},)])
def test_types_are_those_of_the_kernels(shapes):
    model, x = Mixed(), torch.randn(3, 4)
    program = torch.export.export(model, (x,), strict=True, dynamic_shapes=shapes)
    recorded = [str(node.meta.get("val")) for node in program.graph.nodes]
    ir = extract_ir(program)
    assert [str(node.meta.get("val")) for node in program.graph.nodes] == recorded
    dtypes = [meta.dtype for meta in ir.graph_outputs]
    wanted = model(x)
    assert dtypes == [str(result.dtype).removeprefix("torch.") for result in wanted]
    for done in (ir, functionalize(ir), decompose(ir)):
        made = IRExecutor(done, model.state_dict())(x)
        assert all(map(torch.equal, made, wanted))
        assert [result.dtype for result in made] == [result.dtype for result in wanted]
    assert validate(ir, model.state_dict(), (x,)).verdict == "agree"


class UsedTwice(nn.Module):
    """A weight and an argument that regions cast more than once."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(5, 5))

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            first = (x @ self.weight).float().sum()
            second = nn.functional.linear(x @ self.weight, self.weight)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            third = torch.cond(first > 0, lambda a: a * 2, lambda a: a + 1, (x @ x.mT,))
        return first, second.float(), third.float()


def gradients(run, model, x):
    x = x.clone().requires_grad_()
    results = run(x)
    loss = sum((y * torch.linspace(0.5, 1.5, y.numel()).view(y.shape)).sum() for y in results)
    return torch.autograd.grad(loss, [x, model.weight])


@pytest.mark.parametrize("cached", [True, False])
def test_gradients_of_what_regions_cast_once_are_summed_as_in_eager(cached):
    x, model = torch.randn(5, 5, generator=torch.Generator().manual_seed(1)), UsedTwice()
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(cached)
    try:
        run = compile(extract_ir(model, (x,)), dict(model.named_parameters()), grad=True)
        wanted = gradients(model, model, x)
        for way in (run, make_traced(model)):
            for mine, theirs in zip(gradients(way, model, x), wanted, strict=True):
                assert torch.equal(mine, theirs)
    finally:
        torch.set_autocast_cache_enabled(before)
