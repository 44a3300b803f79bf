"""Integers of every size: tried before a runtime is used, and calls that it declines."""

import pytest
import torch
from torch import nn

import torch_ir
from torch_ir import extract_ir
from torch_ir.backends import SUPPORTED, NativeBackend
from torch_ir.backends.native.building import DeclinedError


class Runtime(NativeBackend):
    """Torch, with a fault in each delegate of one operator alone."""

    name, version = "faulty", "1"

    def __init__(self, operator, fault):
        self.operator, self.fault = operator, fault

    def supports(self, node, ir):
        return SUPPORTED

    def build(self, program, options):
        run = program.module()
        targets = {str(node.target) for node in program.graph.nodes}
        return self.fault(run) if self.operator in targets else run


class Difference(nn.Module):
    def forward(self, x):
        return x - 3, x.float().sin()


@pytest.mark.parametrize(
    ("dtype", "wider"), [(torch.int32, torch.float32), (torch.int64, torch.float64)], ids=str
)
def test_integers_that_floats_do_not_hold_are_tried(dtype, wider):
    def fault(run):
        return lambda *given: [run(*given)[0].to(wider).to(dtype), *run(*given)[1:]]

    ir = extract_ir(Difference(), (torch.arange(40).to(dtype),))
    run = torch_ir.compile(ir, {}, backend=Runtime("aten.sub.Tensor", fault))
    assert "sub" in {verdict.delegate for verdict in run.verdicts if not verdict.used}
    x = torch.arange(40).to(dtype) + torch.iinfo(dtype).max // 3
    assert torch.equal(run(x)[0], x - 3)


class Next(nn.Module):
    def forward(self, x):
        return x + 1


def test_torch_runs_the_calls_that_a_runtime_declines_and_no_other():
    calls = []

    def fault(run):
        def call(x):
            calls.append(x)
            if x.max() > 9:
                raise DeclinedError("too large")
            return run(x)

        return call

    ir = extract_ir(Next(), (torch.arange(4),))
    run = torch_ir.compile(ir, {}, backend=Runtime("aten.add.Tensor", fault))
    for x in (torch.arange(4), torch.arange(20, 24), torch.arange(4)):
        calls.clear()
        assert torch.equal(run(x), x + 1)
        assert len(calls) == 1
    assert run.assignment.left == ()
