"""Programs made ready for runtimes: what memory holds is known."""

import pytest
import torch
from torch import nn

import torch_ir
from torch_ir import extract_ir
from torch_ir.backends import SUPPORTED, NativeBackend, Support
from torch_ir.ops.choices import VALUES_OPEN

pytestmark = pytest.mark.filterwarnings("ignore")


class Torch(NativeBackend):
    """A runtime whose programs are torch's, without some operators."""

    name = "again"
    version = "1"

    def __init__(self, *refused):
        self.refused = refused

    def supports(self, node, ir):
        return Support.refused("it is denied") if node.op_type in self.refused else SUPPORTED

    def build(self, program, options):
        return program.module()


class Halves(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.make = make

    def forward(self, x):
        y = self.make(x)
        y[:, :3] = x[:, :3]
        y[:, 3:] = x[:, 3:].tanh()
        return y * 2


@pytest.mark.parametrize(
    "make",
    [
        torch.empty_like,
        lambda x: torch.empty(2, 6),
        lambda x: x.new_empty((2, 6)),
        lambda x: torch.empty(2, 6, memory_format=torch.contiguous_format),
    ],
)
def test_memory_that_is_partly_written_passes_between_torch_and_a_runtime(make):
    x = torch.randn(2, 6, generator=torch.Generator().manual_seed(0))
    backend = Torch("aten.tanh.default", "aten.slice_scatter.default")
    run = torch_ir.compile(extract_ir(Halves(make), (x,)), {}, backend=backend)
    assert [node.op_type for node in run.assignment.left] == ["aten.tanh.default"]
    assert VALUES_OPEN.isdisjoint(node.op_type for node in run.assignment.nodes)
    assert torch.equal(run(x), Halves(make)(x))
