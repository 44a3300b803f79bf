"""Types under autocast in programs of torch's bytecode tracer, which records those without it."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.export import Dim

from torch_ir import IRExecutor, decompose, extract_ir, functionalize, validate


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
