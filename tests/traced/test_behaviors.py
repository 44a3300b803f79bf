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
        assert behaviors.outcome(body, call) in behaviors.FINE, (body, call)


def of_body(body, **names):
    names |= {"torch": torch, "nn": nn}
    exec(f"def f(x):\n {body}", names)
    return names["f"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("x.tag = 3; return x", "sets the attribute tag of a tensor"),
        ("x.data.add_(1); raise ValueError('late')", "writes to tensors or draws random numbers"),
        (
            "x.view(-1)[1:].detach().mul_(2); x @ x.new_ones(9)",
            "writes to tensors or draws random",
        ),
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
        ("W.requires_grad_(False); raise KeyError", "writes to tensors or draws random numbers"),
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
    names["W"] = nn.Parameter(torch.ones(2))
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


@pytest.mark.parametrize(
    ("tried", "message"),
    [
        ("x.sum().backward()", "stores gradients in .grad"),
        ("x.numpy()", "gives a tensor to NumPy"),
        ("y = float(x.sum())", "depends on the values of a tensor"),
        ("y = [v for v in x if v > 0]", "depends on the values of a tensor"),
        ("y = 1 if x.sum().item() > 0 else 2", "depends on the values of a tensor"),
        ("y = torch.initial_seed()", "reads the seed"),
        ("y = x + HIDDEN()", "is found neither in its arguments nor in what it closes over"),
        ("with torch.backends.mkldnn.flags(enabled=False): y = x @ x", "under other switches"),
    ],
)
@pytest.mark.parametrize("caught", ["except Exception: pass", "except: pass", "finally: return x"])
def test_what_is_refused_stays_refused_where_the_function_catches_it(tried, message, caught):
    hidden = torch.ones(2)
    function = of_body(f"y = x\n try:\n  {tried}\n {caught}\n return y", HIDDEN=Hiding(hidden))
    with pytest.raises(TraceError) as refused:
        make_traced(function)(torch.ones(2))
    assert message in refused.value.message


class Hiding:
    """Gives a tensor that no guard finds."""

    def __init__(self, tensor):
        self.__call = iter([tensor] * 9).__next__

    def __call__(self):
        return self.__call()


def test_derivatives_in_a_try_are_those_of_the_function():
    function = of_body(
        "try: return torch.func.grad(lambda a: (a ** 3).sum())(x)\n except Exception: return x"
    )
    assert make_traced(function)(torch.ones(2)).tolist() == [3, 3]


@pytest.mark.parametrize(
    ("body", "dynamic"),
    [
        ("return x.as_subclass(type('Own', (torch.Tensor,), {}))", False),
        ("return divmod(x.shape[0], 2)", True),
        ("return f'{x.shape[0]:03d}', x", True),
    ],
)
def test_errors_about_what_stands_for_tensors_and_sizes_are_refusals(body, dynamic):
    with pytest.raises(TraceError, match="the function fails as torch traces it"):
        make_traced(of_body(body), dynamic=dynamic)(torch.ones(4))


OF_INFERENCE = {
    "arithmetic": "return x * 2 + 1",
    "views": "return x.t(), x[0], x",
    "no_grad": "with torch.no_grad(): return x.sum()",
    "writes": "x.add_(1); return x * 2",
    "an error": "return x @ torch.ones(7)",
    "a gradient": "return x * W",
}


@pytest.mark.parametrize("name", OF_INFERENCE)
@pytest.mark.parametrize("inside", [True, False])
def test_tensors_that_were_made_in_inference_mode(name, inside):
    function = of_body(OF_INFERENCE[name], W=torch.ones(2, requires_grad=True))
    traced, made = make_traced(function), []
    for called in (function, traced, traced):
        with torch.inference_mode():
            x = torch.ones(2, 2)
        with torch.inference_mode(inside):
            try:
                result = called(x)
            except RuntimeError as error:
                made.append((type(error), str(error)))
                continue
        leaves = [x, *result] if isinstance(result, tuple) else [x, result]
        made.append([(t.is_inference(), t.requires_grad, t.tolist()) for t in leaves])
    if name == "writes" and not inside:
        assert made[1] == made[2]
        assert "outside of inference mode to a tensor that was made in it" in made[1][1]
    else:
        assert made[0] == made[1] == made[2]


def test_questions_about_types_and_spans_of_a_profile_are_no_part_of_a_program():
    function = of_body(
        "kind = torch.promote_types(x.dtype, torch.float64)\n"
        " with torch.profiler.record_function('span'): y = x.to(kind)\n"
        " return y if torch.can_cast(kind, x.dtype) else x, torch.result_type(y, 1)"
    )
    traced = make_traced(function)
    for dtype in (torch.float32, torch.complex64):
        made, wanted = traced(torch.ones(2, dtype=dtype)), function(torch.ones(2, dtype=dtype))
        assert made[0].dtype is wanted[0].dtype
        assert made[1] is wanted[1]
    assert [node.op_type for node in traced.ir(torch.ones(2)).nodes] == [
        "prims.convert_element_type.default"
    ]


def test_errors_after_writes_to_memory_of_its_own_are_those_of_the_function():
    def late(x):
        (x * 2).add_(1)
        raise ValueError("late")

    with pytest.raises(ValueError, match="late"):
        make_traced(late)(torch.ones(2, 3))
