"""Programs made ready for runtimes: memory is known, and conversions are written out."""

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


class Autocast(nn.Module):
    """A layer between others whose types autocast for some device may change."""

    def __init__(self, device, dtype):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 6))
        self.device, self.dtype = device, dtype

    def forward(self, x):
        x = self.layers[1](self.layers[0](x))
        with torch.autocast(self.device, enabled=self.dtype is not None, dtype=self.dtype):
            x = self.layers[2](x).softmax(-1)
        return self.layers[1](x.float()).sin()


@pytest.mark.parametrize("device", ["cpu", "cuda", "xpu"])
@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_what_stands_under_autocast_is_taken_as_all_else_is(device, dtype):
    model = Autocast(device, dtype).eval().requires_grad_(False)
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    backend = Torch("aten.layer_norm.default")  # which its parts have to stand for
    run = torch_ir.compile(extract_ir(model, (x,)), model.state_dict(), backend=backend)
    assert run.assignment.left == ()
    torch.testing.assert_close(run(x), model(x), rtol=0, atol=1e-6)


def test_autocast_that_is_on_for_a_device_without_tensors_changes_nothing():
    ir = extract_ir(Autocast("cuda", torch.bfloat16).eval(), (torch.ones(3, 4),))
    on = [
        node.replace(attrs={**node.attrs, "enabled": True})  # as a machine with that device has it
        if node.op_type == "higher_order.wrap_with_autocast"
        else node
        for node in ir.nodes
    ]
    model = Autocast("cuda", None).eval().requires_grad_(False)
    run = torch_ir.compile(ir.replace(nodes=on), model.state_dict(), backend=Torch())
    assert run.assignment.left == ()
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    assert torch.equal(run(x), model(x))


class FromNumpy(Torch):
    """A runtime whose results lie in memory that is not torch's."""

    def build(self, program, options):
        run = program.module()
        return lambda *given: [torch.from_numpy(x.numpy().copy()) for x in run(*given)]


def test_a_lazy_clone_of_memory_that_torch_did_not_allocate():
    ir = torch_ir.parse("""ir {
      input %x: f32[4]
      %y: f32[4] = aten.neg.default(%x)
      %z: f32[4] = aten._lazy_clone.default(%y)
      return %z
    }""")
    run = torch_ir.compile(ir, {}, backend=FromNumpy("aten._lazy_clone.default"))
    assert torch.equal(run(torch.ones(4))[0], -torch.ones(4))
