"""Arguments to verify with that hold NaN or infinities: what differs there is torch's."""

import math

import pytest
import torch
from torch import nn

import torch_ir
from torch_ir import extract_ir
from torch_ir.backends import SUPPORTED, NativeBackend, Support

pytestmark = pytest.mark.filterwarnings("ignore")


class Torch(NativeBackend):
    """A runtime whose programs are torch's; its tanh may give 0 for NaN."""

    name, version = "again", "1"

    def __init__(self, lacks="", forgets_nan=False):
        self.lacks, self.forgets_nan = lacks, forgets_nan

    def supports(self, node, ir):
        return Support.refused("it is denied") if node.op_type == self.lacks else SUPPORTED

    def build(self, program, options):
        run = program.module()
        targets = {str(node.target) for node in program.graph.nodes}
        if not self.forgets_nan or "aten.tanh.default" not in targets:
            return run
        bounds = {"posinf": math.inf, "neginf": -math.inf}
        return lambda *given: [torch.nan_to_num(made, **bounds) for made in run(*given)]


class Resized(nn.Module):
    def forward(self, x):
        return nn.functional.interpolate(x, size=3, mode="linear", align_corners=True) + 1


class Shifted(nn.Module):
    def forward(self, x):
        return torch.tanh(x[:, 1:]) * 2


def test_nan_in_arguments_to_verify_is_tried_at_each_operator():
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    given, other = x.clone(), x.clone()
    given[:, 0] = math.nan  # which no result shows
    other[2, 3] = math.nan
    backend = Torch(forgets_nan=True)
    ir = extract_ir(Shifted(), (x,))
    run = torch_ir.compile(ir, {}, backend=backend, verify=[(x,), (given,)])
    refused = [verdict for verdict in run.verdicts if not verdict.used]
    assert [verdict.nodes for verdict in refused] == [("tanh",)]
    assert refused[0].reason.startswith("on numbers that are not finite: ")
    torch.testing.assert_close(run(other), Shifted()(other), equal_nan=True)
    (verdict,) = torch_ir.compile(ir, {}, backend=backend, verify=[(x,)]).verdicts
    assert verdict.used


def test_parts_that_treat_infinities_in_another_way_are_not_taken_for_the_whole():
    x = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0))
    given = x.clone()
    given[0, 0, 0] = math.inf
    operator = "aten.upsample_linear1d.vec"
    ir = extract_ir(Resized(), (x,))
    run = torch_ir.compile(ir, {}, backend=Torch(lacks=operator), verify=[(given,)])
    assert [node.op_type for node in run.assignment.left] == [operator]
    for place in range(5):
        other = x.clone()
        other[1, 2, place] = math.inf
        torch.testing.assert_close(run(other), Resized()(other), equal_nan=True)
    run = torch_ir.compile(ir, {}, backend=Torch(lacks=operator), verify=[(x,)])
    assert not run.assignment.left


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_numbers_of_8_bits_are_looked_at_too(dtype):
    class Wide(nn.Module):
        def forward(self, x):
            return torch.tanh(x.to(torch.float32))

    x = torch.tensor([[0.5, math.nan], [1.0, -2.0]]).to(dtype)
    run = torch_ir.compile(
        extract_ir(Wide(), (x,)), {}, backend=Torch(forgets_nan=True), verify=[(x,)]
    )
    assert [verdict.nodes for verdict in run.verdicts if not verdict.used] == [("tanh",)]
    torch.testing.assert_close(run(x), Wide()(x), equal_nan=True)


def test_a_sparse_argument_to_verify_with_is_taken():
    class Dense(nn.Module):
        def forward(self, x):
            return torch.tanh(x.to_dense())

    x = torch.eye(3).to_sparse()
    run = torch_ir.compile(extract_ir(Dense(), (x,)), {}, backend=Torch(), verify=[(x,)])
    torch.testing.assert_close(run(x), Dense()(x))
