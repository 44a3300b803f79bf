"""What decides gradients where a trace of operators does not see it: hooks, modes, second ones."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn
from torch._higher_order_ops.scan import scan
from torch.autograd.graph import get_gradient_edge
from torch.utils.checkpoint import checkpoint

import torch_ir
from frontend.doubled import Doubled
from torch_ir.errors import CompileError, ConversionError, TraceError
from torch_ir.passes import inline_functions, remove_no_ops

X = torch.tensor([[0.2, -1.4, 3.0]])


class Net(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.fc, self.function = nn.Linear(3, 3), function

    def forward(self, x):
        return self.function(self.fc(x))


def gradients(run, parameters, *, second=False):
    x = X.clone().requires_grad_()
    made = run(x).sum()
    if second:
        (first,) = torch.autograd.grad(made, x, create_graph=True)
        made = (first**2).sum()
    return torch.autograd.grad(made, [x, *parameters], allow_unused=True)


def agree(function, *, second=False):
    """Whether each road to a program has eager's gradients."""
    model = Net(function)
    weights = dict(model.named_parameters())
    compiled = torch_ir.compile(torch_ir.extract_ir(model, (X,)), weights, grad=True)
    parameters = [*weights.values()]
    pairs = [(compiled, model, parameters), (torch_ir.make_traced(function), function, [])]
    for run, eager, wanted in pairs:
        found = gradients(run, wanted, second=second)
        for a, b in zip(found, gradients(eager, wanted, second=second), strict=True):
            assert (a is None) == (b is None)
            assert a is None or torch.equal(a, b)


def hooked(register):
    def run(x):
        y = x * 2
        register(y)
        return y.sin()

    return run


def below(y):
    node = y.grad_fn
    while node.next_functions:
        node = node.next_functions[0][0]
    node.register_prehook(lambda given: (given[0] * 3,))


@pytest.mark.parametrize(
    "register",
    [
        lambda y: y.grad_fn.register_hook(lambda made, given: (made[0] * 3, *made[1:])),
        lambda y: y.grad_fn.register_prehook(lambda given: (given[0] * 3,)),
        lambda y: get_gradient_edge(y).node.register_prehook(lambda given: (given[0] * 3,)),
        below,
    ],
)
def test_hooks_on_nodes_of_autograds_graph_are_refused(register):
    before = torch.autograd.Function._register_hook
    model = Net(hooked(register))
    ir = torch_ir.extract_ir(model, (X,))
    assert ir.metadata["custom_gradients"] == ("torch.autograd.graph.Node.register_hook",)
    with pytest.raises(CompileError, match=r"autograd\.graph\.Node\.register_hook: "):
        torch_ir.compile(ir, dict(model.named_parameters()), grad=True)
    with pytest.raises(TraceError, match=r"registers a hook|reads grad_fn"):
        torch_ir.make_traced(hooked(register))(X.clone().requires_grad_())
    assert torch.autograd.Function._register_hook is before


def inside(x):
    with torch.inference_mode():
        y = x * 2
        with torch.inference_mode(mode=False):
            z = x.sin()
    return x + y.clone() + z


@torch.inference_mode()
def decorated(x):
    return x.cos()


def switched_on(x):
    with torch.no_grad(), torch.inference_mode(mode=False):
        return x.sin()


@pytest.mark.parametrize("function", [inside, lambda x: x + decorated(x).clone(), switched_on])
def test_no_gradient_passes_what_inference_mode_makes(function):
    before = torch._C._InferenceMode
    agree(function)
    assert torch._C._InferenceMode is before


def constant_slope(x):
    (slope,) = torch.autograd.grad((x**3).sum(), x, retain_graph=True)
    return x * slope


def slope(x):
    (slope,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    return x * slope


def checkpoint_in_a_checkpoint(y):
    inner = partial(checkpoint, torch.sin, use_reentrant=False)
    return checkpoint(lambda y: y.exp() + inner(y * 2), y, use_reentrant=False)


def test_checkpoints_in_checkpoints_pass_gradients():
    agree(checkpoint_in_a_checkpoint)


def chosen(y, then=torch.sin):
    return torch.cond(y.sum() > 0, then, torch.cos, (y,))


def around_a_choice(y):
    with torch.no_grad():
        z = chosen(y)
    return y + z.sin()


def around_a_scan(y):
    with torch.no_grad():
        last, _ = scan(lambda carried, row: (carried + row, carried.clone()), torch.zeros(3), y)
    return y * last


def inside_autocast(y):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with torch.no_grad():
            z = y @ y.t()
        return z * y.sum()


def on_again_in_a_choice(y):
    def on(y):
        with torch.enable_grad():
            z = y.sin()
        return z * y

    with torch.no_grad():
        z = chosen(y, on)
    return y + z


def inside_autocast_around_a_choice_in_a_choice(y):
    def off(y):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            with torch.no_grad():
                z = chosen(y)
            return y.exp() * z

    return chosen(y.abs(), off)


@pytest.mark.parametrize(
    "function",
    [
        *(around_a_choice, around_a_scan, inside_autocast, on_again_in_a_choice),
        inside_autocast_around_a_choice_in_a_choice,
    ],
)
def test_no_gradient_passes_what_is_made_without_wherever_it_is_made(function):
    agree(function)


@pytest.mark.parametrize("function", [constant_slope, slope])
def test_derivatives_inside_are_constant_unless_they_keep_a_graph(function):
    agree(function)


class Cubed(torch.autograd.Function):
    """Its gradient is not that of a cube."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0]


def outer(slope):
    """A function whose gradient applies functions that have gradients of their own."""

    class Outer(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, gradient):
            return slope(ctx.saved_tensors[0]) * Cubed.apply(gradient)

    return lambda x: Outer.apply(x)


def cubed(x):
    return Cubed.apply(x)


def between_switches(x):
    with torch.no_grad():
        y = x.cos()
    return outer(outer(cubed))(x) * y


@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("function", [outer(cubed), outer(outer(cubed)), between_switches])
def test_functions_in_a_backward_have_their_gradients(function, second):
    agree(function, second=second)


def test_second_gradients_are_refused_where_a_backward_applies_what_cannot_be_said():
    function = outer(lambda x: Doubled.apply(x.clone()))
    agree(function)
    model = Net(function)
    compiled = torch_ir.compile(torch_ir.extract_ir(model, (X,)), model.state_dict(), grad=True)
    for run in (torch_ir.make_traced(function), compiled):
        with pytest.raises(RuntimeError, match="trying to differentiate twice a function whose"):
            gradients(run, (), second=True)


def test_a_tensor_whose_data_is_set_is_refused():
    def function(x):
        y = x * 2
        y.data = torch.ones(1, 3)
        return y * x

    with pytest.raises(ConversionError) as caught:
        torch_ir.extract_ir(Net(function), (X,))
    assert "the model sets .data of a tensor, which torch.export drops (at " in str(caught.value)
    assert str(caught.value).endswith("Use copy_ under torch.no_grad(), or another variable.")


def detached(y):
    return y.detach() * y


def detached_in_a_choice(y):
    return chosen(y.abs(), lambda y: y.detach() * y)


def compared_without(y):
    with torch.no_grad():
        z = y.sin()
    return y * (z > 0) * (y.detach() > 0)


def without_gradients(y):
    with torch.no_grad():
        z = torch.vmap(torch.sin)(y)
    return y + z


PASSES = {
    "none": lambda ir: ir,
    "functionalize": torch_ir.functionalize,
    "decompose": torch_ir.decompose,
    "to_edge": lambda ir: torch_ir.to_edge(ir).ir(),
    "inline_functions": inline_functions,
    "remove_no_ops": remove_no_ops,
}


@pytest.mark.parametrize("lower", PASSES.values(), ids=PASSES)
@pytest.mark.parametrize(
    "function",
    [detached, detached_in_a_choice, around_a_choice, compared_without, without_gradients],
)
def test_gradients_of_lowered_programs_are_those_of_eager_or_refused(function, lower):
    model = Net(function)
    weights = dict(model.named_parameters())
    ir = lower(torch_ir.extract_ir(model, (X,)))
    lost = ir.metadata.get("custom_gradients", ())
    assert {*lost} <= {"torch.no_grad", "torch.Tensor.detach"}
    if lost:
        assert function is not compared_without
        with pytest.raises(
            CompileError, match="gradients end where the model calls torch"
        ) as error:
            torch_ir.compile(ir, weights, grad=True)(X)
        assert error.value.findings[0].code == "custom-gradient"
    else:
        run = torch_ir.compile(ir, weights, grad=True)
        found, wanted = (gradients(f, [*weights.values()]) for f in (run, model))
        for a, b in zip(found, wanted, strict=True):
            torch.testing.assert_close(a, b)
