"""Buffers that modules inside of a model set to other tensors: the next call reads them."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import torch_ir
from torch_ir import IRExecutor, extract_ir
from torch_ir.errors import ConversionError
from whole_way import same

X = torch.randn(2, 3, generator=torch.Generator().manual_seed(0))


class Layer(nn.Module):
    """A layer with two buffers, and what it does with them."""

    def __init__(self, step):
        super().__init__()
        self.step, self.fc = step, nn.Linear(3, 3)
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("last", torch.ones(3), persistent=False)

    def forward(self, x):
        return self.step(self, self.fc(x).relu().sin())


class Model(nn.Module):
    """Layers, called in an order."""

    def __init__(self, step, order=(0, 1, 2)):
        super().__init__()
        torch.manual_seed(0)
        self.layers, self.order = nn.ModuleList([Layer(step) for _ in range(3)]), order

    def forward(self, x):
        given = []
        for index in self.order:
            x = self.layers[index](x)
            x, *more = x if isinstance(x, tuple) else (x,)
            given += more
        return (x, *given)


def moves(layer, x):
    layer.mean = layer.mean * 0.5 + x.mean(0)
    return x - layer.mean


def gives_the_old(layer, x):
    old = layer.mean
    layer.mean = old * 0.5 + x.mean(0)
    return x - old, old, old[1:]


def swaps(layer, x):
    layer.mean, layer.last = layer.last, layer.mean + x.mean(0)
    return x - layer.mean


def writes_and_sets(layer, x):
    layer.mean.add_(1)
    layer.mean = layer.mean * x.mean(0)
    layer.mean.add_(1)
    layer.register_buffer("last", layer.mean * 2, persistent=False)
    return x - layer.mean


def under_autocast(layer, x):
    with torch.autocast("cpu", torch.bfloat16):
        x = (x @ x.t()).float() @ x
    return moves(layer, x.float())


STEPS = [moves, gives_the_old, swaps, writes_and_sets, under_autocast]


def judge(model, regions=None, dynamic=None):
    model = model.eval().requires_grad_(False)
    before = [(name, id(tensor), tensor.clone()) for name, tensor in model.named_buffers()]
    ir = extract_ir(
        model, (X,), regions=regions, verify_regions=regions is not None, dynamic_shapes=dynamic
    )
    for (name, tensor), known in zip(model.named_buffers(), before, strict=True):
        assert (name, id(tensor)) == known[:2]
        assert torch.equal(tensor, known[2])
    executor = IRExecutor(ir, model.state_dict())
    eager = copy.deepcopy(model)
    for _ in range(3):
        assert same(executor(X), eager(X))
    return ir


@pytest.mark.parametrize("regions", [None, "auto"])
@pytest.mark.parametrize("step", STEPS)
def test_what_layers_set_their_buffers_to_is_there_in_the_next_call(step, regions):
    ir = judge(Model(step), regions)
    if regions:
        fates = [*ir.metadata["regions"].values()]
        assert fates == [{"flat": "it sets a buffer to another tensor"}] * 3


def counts(layer, x):
    layer.mean += 1
    layer.mean *= 2
    return x - layer.mean


def gives_the_old_and_writes_it(layer, x):
    old = layer.mean
    layer.mean = old * 2 + 1
    return x, old.add_(1), old[1:]


@pytest.mark.parametrize("regions", [None, "auto"])
@pytest.mark.parametrize("step", [*STEPS, counts, gives_the_old_and_writes_it])
def test_what_the_outermost_module_sets_its_buffers_to_is_there_in_the_next_call(step, regions):
    judge(Layer(step), regions)


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return x * self.calls


def test_a_buffer_that_is_set_to_itself_is_not_copied():
    ir = judge(Counter())
    assert [node.op_type for node in ir.nodes] == ["aten.add_.Tensor", "aten.mul.Tensor"]
    run = torch_ir.compile(ir, Counter().state_dict(), grad=True)
    for calls in (1.0, 2.0):
        x = X.clone().requires_grad_()
        run(x).sum().backward()  # autograd kept the count, and nothing has written it since
        assert torch.equal(x.grad, torch.full_like(x, calls))


def test_a_layer_that_is_called_twice_or_stands_at_two_places_sets_its_buffer_once():
    assert len(judge(Model(moves, order=(0, 1, 0))).mutations) == 2
    shared = Model(moves)
    shared.layers[2] = shared.layers[0]
    judge(shared, "auto")


def test_buffers_are_set_where_sizes_vary():
    ir = judge(Model(moves), dynamic=({0: torch.export.Dim.DYNAMIC},))
    more = torch.cat([X, X])
    assert same(IRExecutor(ir, Model(moves).state_dict())(more), Model(moves)(more))


def test_the_write_of_a_buffer_has_the_line_that_sets_it():
    ir = judge(Model(moves))
    writes = {node.argument("src").producer_node: node for node in ir.nodes[-3:]}
    assert {node.op_type for node in writes.values()} == {"aten.copy_.default"}
    assert all(ir.by_name[name].location == node.location for name, node in writes.items())


def without_lines(function):
    """A model whose forward is a function of another name: torch notes no lines of it."""
    made = type("Made", (nn.Module,), {"forward": function})()
    made.register_buffer("kept", torch.zeros(3, dtype=torch.float64))
    return made.eval()


def test_a_write_without_a_line_has_the_type_of_what_it_writes():
    def writes(layer, x):
        layer.kept.copy_(x[0] + 1)  # of another dtype
        layer.kept[1:].copy_(x[0].sum())  # of another shape, too
        return layer.kept * 2

    ir = extract_ir(without_lines(writes), (X,))
    assert not ir.check()
    executor, model = IRExecutor(ir, without_lines(writes).state_dict()), without_lines(writes)
    for _ in range(2):
        assert same(executor(X), model(X))
        assert same(dict(executor.buffers), dict(model.named_buffers()))


def test_a_buffer_that_is_set_to_another_type_is_refused_also_without_a_line():
    def sets(layer, x):
        layer.kept = x[0] + 1
        return x

    with pytest.raises(ConversionError, match=r"sets %b_kept: f64\[3\] to a tensor f32\[3\]"):
        extract_ir(without_lines(sets), (X,))


def test_a_buffer_that_gets_another_shape_is_warned_of():
    def grows(layer, x):
        layer.mean = torch.cat([layer.mean, layer.mean])
        return x

    with pytest.warns(UserWarning, match="sets its buffer 'mean' to a tensor of another shape"):
        extract_ir(Model(grows).eval(), (X,))
