"""Whatever a function does, and however it is called: traced it does the same, or is refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from torch_ir import TraceError, make_traced
from traced import behaviors

CASES = [*behaviors.cases()][::181]


@pytest.mark.parametrize("start", range(4))
def test_calls_in_many_ways(start):
    for body, call in CASES[start::4]:
        assert behaviors.outcome(body, call) in ("same", "refused"), (body, call)


def of_body(body, **names):
    names |= {"torch": torch, "nn": nn}
    exec(f"def f(x):\n {body}", names)
    return names["f"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("x.tag = 3; return x", "sets the attribute tag of a tensor"),
        ("z = x * 1; z.tag = 3; return z", "sets the attribute tag of a tensor"),
        ("return str(x)", "reads the text"),
        ("return f'{x.sum():.1f}'", "reads the text"),
        ("return id(x)", "returns the identity of a tensor"),
        ("return nn.Parameter(x)", "makes a parameter or buffer"),
        ("return x.to('meta')", "returns a tensor without data"),
        ("return x.untyped_storage().nbytes()", "reads the storage"),
        ("return x.apply_(abs)", "calls Python for each element"),
        ("torch.set_grad_enabled(False); return x", "changes a mode of torch's"),
        ("torch.set_default_dtype(torch.float64); return x", "changes a mode of torch's"),
        (
            "K = nn.attention\n with K.sdpa_kernel(K.SDPBackend.MATH): return x.sin()",
            "under other switches of torch.backends",
        ),
        (
            "with torch.backends.mkldnn.flags(enabled=False): return x @ x",
            "under other switches of torch.backends",
        ),
        ("torch.manual_seed(0); return x + torch.rand(2)", "seeds torch's random numbers"),
        ("return x * torch.initial_seed()", "reads the seed"),
        ("return x * G.initial_seed()", "reads the seed"),
        ("with torch.random.fork_rng(): return torch.rand(2)", "seeds torch's random numbers"),
        (
            "g = G.get_state(); z = torch.rand(2, generator=G); G.set_state(g); return z",
            "seeds torch's random numbers",
        ),
        (
            "g = torch.Generator(); g.manual_seed(1); return torch.rand(2, generator=g)",
            "draws from a generator",
        ),
        ("x.add_(1); raise KeyError", "writes to tensors or draws random numbers, and then"),
        ("torch.rand(2); raise KeyError", "writes to tensors or draws random numbers, and then"),
        ("return torch.jit.trace(torch.neg, x)(x)", "fails as torch traces it"),
        ("return SCRIPT(x)", "closes over a module of TorchScript"),
        ("return LAZY(x)", "closes over a parameter that is not initialized"),
        (
            "with torch.inference_mode(): z = x * 2\n return x * 2, z",
            "makes some of its results in inference mode",
        ),
    ],
)
def test_what_would_differ_is_refused(body, message):
    names = {"G": torch.Generator(), "LAZY": nn.LazyLinear(2)}
    names["SCRIPT"] = torch.jit.script(nn.Linear(2, 2))
    torch.manual_seed(0)
    state, x = torch.get_rng_state(), torch.ones(2)
    with pytest.raises(TraceError) as caught:
        make_traced(of_body(body, **names))(x)
    assert message in caught.value.message
    assert x.equal(torch.ones(2))
    assert not vars(x)
    assert torch.get_rng_state().equal(state)
    assert torch.is_grad_enabled()
    assert torch.get_default_dtype() is torch.float32


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("raise ValueError('no')", ValueError),
        ("raise NotImplementedError", NotImplementedError),
        ("return x.t().expand(3, 3).view(-1)", RuntimeError),
        ("return x[5]", IndexError),
        ("return torch.add(x, x, alpha='a')", TypeError),
    ],
)
def test_errors_are_those_of_the_function(body, kind):
    function = of_body(body)
    with pytest.raises(kind) as expected:
        function(torch.ones(3))
    with pytest.raises(kind) as raised:
        make_traced(function)(torch.ones(3))
    assert type(raised.value) is type(expected.value)
    assert str(raised.value) == str(expected.value)


def test_errors_that_the_function_catches():
    function = of_body("try: return x @ torch.ones(9, 9)\n except RuntimeError: return x * 2")
    traced = make_traced(function)
    assert traced(torch.ones(2)).equal(torch.full((2,), 2.0))
    assert len(traced.ir(torch.ones(2)).nodes) == 1


def test_inference_mode_of_the_functions_own():
    function = of_body("with torch.inference_mode(): return x * 2, x.view(-1), x")
    traced, x = make_traced(function), torch.ones(2)
    for _ in range(2):
        made = [t.is_inference() for t in traced(x)]
        assert made == [t.is_inference() for t in function(x)] == [True, False, False]


def test_gradients_that_the_function_switches_on():
    function = of_body("z = x * 3\n with torch.enable_grad(): w = x * 2\n return w, z, w * z")
    traced, x = make_traced(function), torch.ones(2, requires_grad=True)
    with torch.no_grad():
        made = [traced(x), traced(x)][1]
        assert [t.requires_grad for t in made] == [t.requires_grad for t in function(x)]
    assert torch.autograd.grad(made[0].sum(), x)[0].equal(torch.full((2,), 2.0))


def test_attributes_of_tensors_that_are_closed_over():
    tensor, parameter = torch.ones(2), nn.Parameter(torch.ones(2))
    tensor.scale = 2
    traced = make_traced(
        lambda x: x * tensor.scale * getattr(parameter, "scale", 1) + tensor - parameter.detach()
    )
    assert traced(torch.ones(2)).tolist() == [2, 2]
    tensor.scale = 5
    assert traced(torch.ones(2)).tolist() == [5, 5]
    parameter.scale = 3
    assert traced(torch.ones(2)).tolist() == [15, 15]
