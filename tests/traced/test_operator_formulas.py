"""Gradients by formulas that libraries give their operators, of branches and checkpoints."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from torch_ir import make_traced

LIBRARY = "operator_formulas_test"


@torch.library.custom_op(f"{LIBRARY}::scaled", mutates_args=())
def scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
    return x * factor


scaled.register_fake(lambda x, factor: torch.empty_like(x))
scaled.register_autograd(
    lambda ctx, gradient: (gradient * 5 + ctx.saved_tensors[0], None),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
)


@torch.library.custom_op(f"{LIBRARY}::doubled", mutates_args=())
def doubled(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor * 2 for tensor in tensors]


doubled.register_fake(lambda tensors: [torch.empty_like(tensor) for tensor in tensors])
doubled.register_autograd(lambda ctx, gradients: [gradient * 7 for gradient in gradients])


def function(x):
    first, second = doubled([scaled(x.sin(), 2.0).cos(), x])
    return first * second


def branches(x):
    return torch.cond(x.sum() > 0, lambda y: y.sin() * y, torch.cos, (x,))


def gradient(run, x):
    x = x.detach().requires_grad_()
    run(x).sum().backward()
    return x.grad


@pytest.mark.parametrize("executor", ["aten", "prims"])
def test_formulas_of_operators_are_used(executor):
    traced = make_traced(function, executor=executor)
    x = torch.randn(2, 3)
    assert torch.equal(gradient(traced, x), gradient(function, x))


@pytest.mark.parametrize("dynamic", [False, True])
def test_gradients_pass_through_branches(dynamic):
    traced = make_traced(branches, dynamic=dynamic)
    for x in (torch.ones(2, 3), -torch.ones(2, 3), torch.ones(4, 3)):
        assert torch.equal(gradient(traced, x), gradient(branches, x))


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_gradients_pass_through_checkpoints_in_what_torch_compiles(use_reentrant):
    torch._dynamo.reset()
    layer = torch.nn.Linear(3, 3)

    def twice(x):
        return checkpoint(lambda y: layer(y).sin(), x * 2, use_reentrant=use_reentrant)

    compiled = torch.compile(twice, backend="torch_ir")
    x = torch.randn(2, 3)
    assert torch.equal(gradient(compiled, x), gradient(twice, x))
    found, layer.weight.grad = layer.weight.grad, None
    gradient(twice, x)
    assert torch.equal(found, layer.weight.grad * 2)
