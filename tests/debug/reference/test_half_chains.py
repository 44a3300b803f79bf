"""Fused bodies in half types, whose bounds are wide: no end of a result that was lost agrees."""

import copy

import pytest
import torch
from torch import nn

from torch_ir import compile_graph, extract_ir, validate
from torch_ir.backends import SUPPORTED, DelegateBackend


class Rounding(DelegateBackend):
    """Computes the whole net in float32 and rounds it once; what is less is run by torch."""

    name = "rounding"

    def __init__(self, net, x, nodes, change):
        self.net, self.x, self.nodes, self.change = net, x, nodes, change

    def supports(self, node, ir):
        return SUPPORTED

    def compile(self, ir, payload):
        if len(ir.nodes) == self.nodes:
            whole = self.change(self.net(self.x).to(getattr(torch, ir.graph_outputs[0].dtype)))
            return lambda *given: [whole.clone()]
        graph = compile_graph(ir, {})
        free = [name for name in ir.input_names if name not in payload]

        def run(*given):
            values = {**payload, **dict(zip(free, given, strict=True))}
            return [t.clone() for t in graph.eval([values[name] for name in ir.input_names])]

        return run


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(32), nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        return x + self.out(nn.functional.scaled_dot_product_attention(q, k, v))


class Canceling(nn.Module):
    """A head of 48 columns, the last 8 of which are differences of larger numbers."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(32, 32), nn.Linear(64, 48)
        self.second = copy.deepcopy(self.first)
        with torch.no_grad():
            self.head.weight[40:, :32] += 2
            self.head.weight[40:, 32:] -= 2

    def forward(self, x):
        return self.head(torch.cat([self.first(x).sin(), self.second(x).sin()], -1))


def dense(depth):
    layers = [layer for _ in range(depth) for layer in (nn.Linear(32, 32), nn.SiLU())]
    return nn.Sequential(*layers, nn.Linear(32, 24))


NETS = {
    "dense": (lambda: dense(2), (4, 32)),
    "deep": (lambda: dense(6), (4, 32)),
    "attention": (Attention, (2, 8, 32)),
    "canceling": (Canceling, (4, 32)),
    "convolution": (lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.GELU()), (1, 3, 12, 12)),
    "shares": (lambda: nn.Sequential(dense(2), nn.Softmax(-1)), (4, 32)),
    "logarithms": (lambda: nn.Sequential(dense(2), nn.LogSoftmax(-1)), (4, 32)),
}


def zeroed(count):
    def change(y):
        y = y.contiguous()
        y.view(-1)[-count:] = 0
        return y

    return change


def repeated(y):
    y = y.contiguous()
    y[..., -4:] = y[..., -8:-4].clone()
    return y


def columns(number):
    def change(y):
        y = y.contiguous()
        y[..., -8:] = number
        return y

    return change


FAULTS = {"four": zeroed(4), "sixteen": zeroed(16), "repeated": repeated, "columns": columns(100)}


def verdict_of(name, dtype, change):
    make, shape = NETS[name]
    torch.manual_seed(7)
    net, x = make().eval().to(dtype), torch.randn(shape).to(dtype)
    ir = extract_ir(net, (x,))
    wide = copy.deepcopy(net).float()
    with torch.no_grad():
        backend = Rounding(wide, x.float(), len(ir.nodes), change)
        return validate(ir, net.state_dict(), (x,), backend=backend).verdict


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", NETS)
def test_what_is_rounded_once_is_not_called_wrong(name, dtype):
    found = verdict_of(name, dtype, lambda y: y)
    assert found != "disagree"
    assert found == "agree" or dtype == torch.bfloat16 or name == "canceling"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("fault", FAULTS)
def test_an_end_that_is_lost_never_agrees(name, dtype, fault):
    assert verdict_of(name, dtype, FAULTS[fault]) != "agree"
