"""Arguments to verify with that hold NaN or infinities: what differs there is torch's."""

import math

import pytest
import torch
from torch import nn

import torch_ir
from torch_ir import extract_ir
from torch_ir.backends import SUPPORTED, NativeBackend, Support
from torch_ir.passes.decomposition import register_decomposition, unregister_decomposition

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


class Squashed(nn.Module):
    def forward(self, x):
        return torch.ops.infinitytest.squash(x) + 1


@pytest.fixture
def squash():
    """An operator that is 1 at infinity, where its parts give NaN."""
    library = torch.library.Library("infinitytest", "FRAGMENT")
    library.define("squash(Tensor x) -> Tensor")

    def kernel(x):
        return torch.where(x.isinf(), x.sign(), x / (1 + x.abs()))

    library.impl("squash", kernel, "CompositeExplicitAutograd")
    register_decomposition("infinitytest.squash.default")(lambda x: x / (1 + x.abs()))
    yield "infinitytest.squash.default"
    unregister_decomposition("infinitytest.squash.default")
    library._destroy()


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


def test_parts_that_treat_infinities_in_another_way_are_not_taken_for_the_whole(squash):
    x = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0))
    given = x.clone()
    given[0, 0, 0] = math.inf
    ir = extract_ir(Squashed(), (x,))
    run = torch_ir.compile(ir, {}, backend=Torch(lacks=squash), verify=[(given,)])
    assert [node.op_type for node in run.assignment.left] == [squash]
    for place in range(5):
        other = x.clone()
        other[1, 2, place] = math.inf
        torch.testing.assert_close(run(other), Squashed()(other), equal_nan=True)
    run = torch_ir.compile(ir, {}, backend=Torch(lacks=squash), verify=[(x,)])
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
