"""Autocast and gradient modes: what they mean is kept, also around control flow."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import torch_ir
from whole_way import Lambda, runs_as_eager

X = torch.arange(16.0).reshape(4, 4) / 8 - 0.9
LOW = torch.bfloat16


def within_one_another(m, x):
    with torch.autocast("cpu", dtype=LOW):
        low = m.first(x)
        with torch.autocast("cpu", enabled=False):
            high = m.second(low.float())
        with torch.no_grad():
            again = m.first(low)
    return low, high, again


def a_choice_inside(m, x):
    with torch.autocast("cpu", dtype=LOW):
        return torch.cond(x.sum() > 0, m.first, m.second, (x,))


def choices_inside_and_values_on_both_sides(m, x):
    before = m.first(x)
    with torch.autocast("cpu", dtype=LOW):
        low = m.second(before)
        with torch.autocast("cpu", enabled=False):
            chosen = torch.cond(x.sum() > 0, m.first, m.second, (low.float(),))
        last = torch.cond(x.sum() > 0, m.first, m.second, (chosen + low,))
    return last, before + chosen, m.first(last.float() + low)


def one_after_the_other(m, x):
    with torch.autocast("cpu", dtype=LOW):
        left = torch.cond(x.sum() > 0, m.first, m.second, (x,))
    with torch.autocast("cpu", dtype=torch.float16):
        right = torch.cond(x.sum() > 0, m.second, m.first, (x,))
    return left, right, left.float() @ right.float()


def a_scope_inside_a_choice(m, x):
    def low(x):
        with torch.autocast("cpu", dtype=LOW):
            return m.first(x).float()

    return torch.cond(x.sum() > 0, low, m.second, (x,))


def an_effect_inside(m, x):
    with torch.no_grad():
        y = m.first(x)
        with torch.enable_grad():
            z = m.second(y)
        m.total.add_(1)
    return z + m.total


def a_mode_around_a_choice(m, x):
    with torch.no_grad():
        y = torch.cond(x.sum() > 0, m.first, m.second, (x,))
    return y * m.weight


def a_region_that_returns_what_it_is_given(m, x):
    with torch.autocast("cpu", dtype=LOW):
        y = torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))
    return x, y, x @ m.weight


FUNCTIONS = [
    *(within_one_another, a_choice_inside, choices_inside_and_values_on_both_sides),
    *(one_after_the_other, a_scope_inside_a_choice, an_effect_inside, a_mode_around_a_choice),
    a_region_that_returns_what_it_is_given,
]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_scope_means_what_it_means_in_eager(function):
    runs_as_eager(lambda: Lambda(function).eval(), (X,), (-X,), (X * 3,))


def test_regions_around_control_flow_are_functions_one_in_the_other():
    model = Lambda(choices_inside_and_values_on_both_sides).eval()
    ir = torch_ir.extract_ir(model, (X,))
    (call,) = [n for n in ir.nodes if n.op_type == "higher_order.wrap_with_autocast"]
    outer = ir.functions[call.attrs["wrapped_func"].name]
    assert sorted(node.op_type for node in outer.nodes) == [
        "aten.add.Tensor",
        "aten.gt.Scalar",
        "aten.linear.default",
        "aten.sum.default",
        "higher_order.cond",
        "higher_order.wrap_with_autocast",
    ]
    assert (call.attrs["device_type"], call.attrs["enabled"]) == ("cpu", True)
    (inner,) = [n for n in outer.nodes if n.op_type == "higher_order.wrap_with_autocast"]
    assert inner.attrs["enabled"] is False
    body = outer.functions[inner.attrs["wrapped_func"].name]
    assert "higher_order.cond" in [node.op_type for node in body.nodes]


def test_a_region_is_not_run_where_it_would_convert_nothing():
    model = Lambda(lambda m, x: within_one_another(m, x)[0]).eval()
    ir = torch_ir.extract_ir(model, (X,))
    weights = {key: tensor.to("meta") for key, tensor in model.state_dict().items()}
    with pytest.raises(torch_ir.CompileError) as caught:
        torch_ir.compile_graph(ir, weights, device="meta")
    assert "on meta nothing is converted under autocast for 'cpu'" in str(caught.value)
    assert "torch_ir.decompose(ir)" in str(caught.value)
    done = torch_ir.decompose(ir)
    (result,) = torch_ir.compile_graph(done, weights, device="meta").eval((X.to("meta"),))
    assert result.dtype is LOW


class UsesWeightsOften(nn.Module):
    """Weights that an autocast region casts once, or at each use, which gradients show."""

    def __init__(self, kind: type[nn.Module], caches: bool | None):
        super().__init__()
        self.inner = kind(4, 4)
        self.caches = caches

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16, cache_enabled=self.caches):
            for _ in range(1 if isinstance(self.inner, nn.RNNBase) else 4):
                made = self.inner(x)
                x = made[0] if isinstance(made, tuple) else torch.relu(made)
            return x


@pytest.mark.parametrize("kind", [nn.Linear, nn.RNN, nn.GRU, nn.LSTM])
@pytest.mark.parametrize("caches", [None, True, False])
@pytest.mark.parametrize("way", ["compiled", "traced"])
def test_gradients_of_weights_that_autocast_casts_are_those_of_eager(kind, caches, way):
    torch.manual_seed(0)
    model, x = UsesWeightsOften(kind, caches), torch.randn(6, 4)
    weights = {key: value.detach().clone() for key, value in model.state_dict().items()}
    model(x).float().sum().backward()
    expected = {key: parameter.grad for key, parameter in model.named_parameters()}
    if way == "traced":
        again = UsesWeightsOften(kind, caches)
        again.load_state_dict(weights)
        torch_ir.make_traced(lambda x: again(x))(x).float().sum().backward()
        got = {key: parameter.grad for key, parameter in again.named_parameters()}
    else:
        given = {key: value.requires_grad_() for key, value in weights.items()}
        run = torch_ir.compile(torch_ir.extract_ir(model, (x,)), given, grad=True)
        run(x).float().sum().backward()
        got = {key: value.grad for key, value in given.items()}
    for key, gradient in expected.items():
        assert torch.equal(got[key], gradient), key


def test_gradients_under_the_autocast_of_a_call_are_those_of_eager():
    torch.manual_seed(0)
    model, x = nn.GRU(3, 3), torch.randn(6, 3)
    found = []
    for call in (model, torch_ir.make_traced(lambda x: model(x))):
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            made, _ = call(x)
        made.float().sum().backward()
        found.append([parameter.grad.clone() for parameter in model.parameters()])
    assert all(map(torch.equal, *found))
