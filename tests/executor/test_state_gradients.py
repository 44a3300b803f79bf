"""Gradients of programs with state: of the values that each call found, whatever comes after."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import torch_ir
from torch_ir import IRExecutor, compile_graph, extract_ir

pytestmark = pytest.mark.filterwarnings("ignore:the model is in training mode")


class Tracked(nn.Module):
    """Saves a buffer, and what the buffer becomes, for gradients; one is not contiguous."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([0.5, -1.0, 2.0]))
        self.register_buffer("mean", torch.tensor([1.0, 2.0, 3.0]))
        self.register_buffer("turned", torch.arange(12.0).reshape(3, 4).t())

    def forward(self, x):
        value, mean, turned = self.after(x, self.mean, self.turned)
        self.mean.copy_(mean)
        self.turned.copy_(turned)
        return value

    def after(self, x, mean, turned):
        value = (x * self.scale * mean).sin() * turned.sum()
        mean = mean * 0.9 + x.detach().abs().mean()
        return value * mean, mean, turned + x.detach().sum()


def test_gradients_of_functional_programs_are_of_the_state_that_each_call_found():
    model, calls = Tracked(), [torch.tensor([1.0, 2.0, -1.0]) * k for k in (1.0, 0.5, 3.0)]
    ir = torch_ir.functionalize(extract_ir(model, (calls[0],)))
    ours = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    ours["scale"].requires_grad_()
    executor = IRExecutor(ir, ours, grad=True)
    mean, turned, results, expected = model.mean, model.turned, [], []
    for call in calls:
        results.append(executor(call))
        value, mean, turned = model.after(call, mean, turned)
        expected.append(value)
    executor.reset()  # gradients are of the values that were read, whatever the state is now
    sum(result.sum() for result in results).backward()
    sum(value.sum() for value in expected).backward()
    assert torch.equal(ours["scale"].grad, model.scale.grad)


def test_batch_norm_in_training_has_gradients_in_functional_form():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).train()
    x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    ir = torch_ir.functionalize(extract_ir(model, (x,)))
    executor = IRExecutor(ir, model.state_dict(), grad=True)
    found, expected = x.clone().requires_grad_(), x.clone().requires_grad_()
    for run, at in ((executor, found), (model, expected)):
        (run(at).sin().sum() + run(at * 2).sum()).backward()
    assert torch.equal(found.grad, expected.grad)
    assert torch.equal(executor.buffers["1.running_mean"], model[1].running_mean)


class Rows(nn.Module):
    """Writes what gradients are wanted of to a part of a buffer, in another type, and reads it."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([0.5, -1.0, 2.0]))
        self.register_buffer("cache", torch.arange(12.0, dtype=torch.float64).reshape(4, 3))

    def forward(self, x):
        self.cache[1:3] = x * self.scale
        return self.cache.sin().sum(0) * self.scale


def test_what_a_functional_program_copies_has_the_gradient_of_what_is_written():
    x = torch.tensor([1.0, 2.0, -1.0])
    ir = torch_ir.functionalize(extract_ir(Rows(), (x,)))
    assert "aten.copy.default" in {node.op_type for node in ir.nodes}
    model, ours = Rows(), {key: tensor.clone() for key, tensor in Rows().state_dict().items()}
    value, pull = compile_graph(ir, ours).vjp((x,), weights=["scale"])
    found = pull.gradients([torch.ones(3, dtype=torch.float64)])
    at = x.clone().requires_grad_()
    expected = model(at)
    expected.sum().backward()
    assert torch.equal(value[0], expected)
    assert torch.equal(found.inputs[0], at.grad)
    assert torch.equal(found.weights["scale"], model.scale.grad)
    _, (tangent,) = compile_graph(ir, ours).jvp((x,), (torch.ones(3),))
    assert torch.allclose(tangent.sum(), at.grad.sum().double())


class Kept(nn.Module):
    """Keeps what it computes in buffers, and goes on computing with them."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))
        self.register_buffer("kept", torch.zeros(3))
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, x):
        self.kept.copy_(x * self.weight)
        self.kept[1:].mul_(2)
        self.calls.add_(1)
        return self.kept.sin() * self.kept / self.calls


def test_gradients_pass_through_a_buffer_that_the_call_writes():
    model = Kept()
    weights = model.state_dict(keep_vars=True)
    run = torch_ir.compile(torch_ir.extract_ir(model, (torch.ones(3),)), weights, grad=True)
    graph = torch_ir.compile_graph(torch_ir.extract_ir(model, (torch.ones(3),)), weights)
    calls = [torch.tensor([1.0, 2.0, 0.5]), torch.tensor([-1.0, 0.5, 0.25])]
    made = [run(x) for x in calls]
    for number, x in enumerate(calls):
        twin = Kept()
        twin.calls.fill_(number)
        (expected,) = torch.autograd.grad(twin(x).sum(), twin.weight)
        if x is calls[-1]:
            assert torch.equal(torch.autograd.grad(made[number].sum(), model.weight)[0], expected)
            assert torch.equal(run.buffers["kept"], twin.kept)
        (_, pullback) = graph.vjp((x,), weights=["weight"])
        assert torch.equal(pullback.gradients((torch.ones(3),)).weights["weight"], expected)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):  # as in eager
        torch.autograd.grad(made[0].sum(), model.weight)
    assert not run.buffers["kept"].requires_grad
