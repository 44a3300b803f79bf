"""What is definite before a runtime sees a program: memory, and the order of equal elements."""

import pytest
import torch
from torch import nn

import torch_ir
from torch_ir import extract_ir
from torch_ir.backends import SUPPORTED, NativeBackend, Support
from torch_ir.ops.choices import VALUES_OPEN

pytestmark = pytest.mark.filterwarnings("ignore")


class Torch(NativeBackend):
    """A runtime whose programs are torch's, and which names the last of equal elements first."""

    name = "again"
    version = "1"

    def __init__(self, *refused):
        self.refused = refused

    def supports(self, node, ir):
        return Support.refused("it is denied") if node.op_type in self.refused else SUPPORTED

    def build(self, program, options):
        for node in program.graph.find_nodes(
            op="call_function", target=torch.ops.aten.sort.default
        ):
            node.target = unstable
        return program.module()


def unstable(values):
    order = values.flip(0).sort(stable=True)
    return order.values, values.shape[0] - 1 - order.indices


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


class Chosen(nn.Module):
    def forward(self, keys, values):
        return values[keys.sort().indices].tanh() + 1


def test_equal_elements_are_in_torchs_order_where_a_runtime_knows_it():
    keys, values = torch.tensor([1, 0, 1, 0, 1, 1]), torch.arange(6.0)
    ir = extract_ir(Chosen(), (keys, values))
    run = torch_ir.compile(ir, {}, backend=Torch("aten.tanh.default"))
    assert [node.op_type for node in run.assignment.left] == ["aten.tanh.default"]
    torch.testing.assert_close(run(keys, values), Chosen()(keys, values))
    unstable_one = torch_ir.compile(ir, {}, backend=Torch("aten.sort.stable"))
    assert "aten.sort.default" in [node.op_type for node in unstable_one.assignment.nodes]
