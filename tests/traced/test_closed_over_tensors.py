"""Closed-over tensors where torch tells no mode of them: their values are read at each run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import func, nn
from torch._higher_order_ops import scan, while_loop
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils.dlpack import to_dlpack

from torch_ir import make_traced
from torch_ir.errors import TraceError

WEIGHT, OTHER = torch.rand(3, 4), torch.rand(3, 4)
X = torch.arange(4.0)

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "vmap": lambda x: func.vmap(lambda row: row * x)(WEIGHT),
    "vmap of a part": lambda x: func.vmap(lambda a, b: a * b.sum(), (0, None))(WEIGHT, OTHER) + x,
    "vmap of vmap": lambda x: func.vmap(func.vmap(torch.sin))(WEIGHT) * x,
    "vmap of places": lambda x: func.vmap(lambda i: WEIGHT[i] * x)(torch.arange(3)),
    "grad": lambda x: func.grad(lambda w: (w**2 * x).sum())(WEIGHT),
    "grad beside": lambda x: func.grad(lambda x: (WEIGHT * x**2).sum())(x),
    "vjp": lambda x: func.vjp(torch.sin, WEIGHT)[1](OTHER)[0] * x,
    "jvp": lambda x: func.jvp(torch.sin, (WEIGHT,), (OTHER,))[1] * x,
    "jacrev": lambda x: func.jacrev(lambda w: (w**2).sum(0) * x)(WEIGHT),
    "jacfwd": lambda x: func.jacfwd(lambda w: (w**2).sum(0) * x)(WEIGHT),
    "hessian": lambda x: func.hessian(lambda w: (w**3 * x).sum())(WEIGHT),
    "functionalize": lambda x: func.functionalize(lambda w: (w * 2).add_(x))(WEIGHT),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_are_those_of_the_run(name: str):
    function = FUNCTIONS[name]
    traced = make_traced(function)
    for _ in range(3):
        torch.testing.assert_close(traced(X), function(X))
        WEIGHT.mul_(1.5)
        OTHER.add_(0.25)
    assert traced.cache_info().misses == 1


class Ensemble(nn.Module):
    """Layers of one kind that run as one."""

    def __init__(self):
        super().__init__()
        self.weights = nn.Parameter(torch.rand(3, 4, 4))
        self.register_buffer("scales", torch.rand(3))

    def forward(self, x: Any) -> Any:
        return func.vmap(lambda weight, scale: torch.tanh(x @ weight) * scale)(
            self.weights, self.scales
        )


def test_an_ensemble_learns():
    torch.manual_seed(0)
    module, twin = Ensemble(), Ensemble()
    twin.load_state_dict(module.state_dict())
    traced = make_traced(module)
    for _ in range(3):
        for run, trained in ((traced, module), (twin, twin)):
            (gradient,) = torch.autograd.grad(run(X).sum(), trained.weights)
            with torch.no_grad():
                trained.weights.sub_(gradient)
                trained.scales.mul_(0.9)
        torch.testing.assert_close(module.state_dict(), twin.state_dict())
        torch.testing.assert_close(traced(X), twin(X))
    assert traced.cache_info().misses == 1


def test_what_a_transform_is_given_unseen_is_refused():
    of_torch = torch._C._functorch

    def function(x):
        level = of_torch._vmap_increment_nesting(3, "error")
        try:
            rows = of_torch._add_batch_dim(WEIGHT, 0, level) * x
            return of_torch._remove_batch_dim(rows, level, 3, 0)
        finally:
            of_torch._vmap_decrement_nesting()

    torch.testing.assert_close(function(X), WEIGHT * X)
    with pytest.raises(TraceError) as caught:
        make_traced(function)(X)
    assert str(caught.value) == (
        "torch traces the values of a tensor [3, 4] that the function is given or closes over, "
        "and they may change\n"
        "Take a view of it first, as with x.view_as(x)."
    )


class Items(list[Any]):
    """A list of another class, which torch's pytree takes for a leaf."""


COUNT = torch.tensor(2)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.stack(Items([WEIGHT, OTHER])) * x,
        lambda x: x.sum().expand(Items([COUNT, 2])),
    ],
    ids=["list", "size"],
)
def test_tensors_in_lists_of_other_classes(function: Callable[[Any], Any]):
    traced = make_traced(function)
    for count in (2, 3, 1):
        COUNT.fill_(count)
        WEIGHT.add_(1)
        assert torch.equal(traced(X), function(X))


@pytest.mark.parametrize(
    "function", [lambda x: x[:COUNT], lambda x: x[None][..., COUNT:]], ids=["end", "begin"]
)
def test_tensors_in_slices_decide_by_their_values(function: Callable[[Any], Any]):
    with pytest.raises(TraceError, match="the program depends on the values of a tensor"):
        make_traced(function)(X)


@pytest.mark.parametrize(
    "function",
    [lambda x: torch.Tensor(WEIGHT) * x, lambda x: torch.from_dlpack(to_dlpack(WEIGHT)) * x],
    ids=["Tensor", "dlpack"],
)
def test_values_that_torch_takes_for_constants_are_refused(function: Callable[[Any], Any]):
    with pytest.raises(TraceError, match=r"torch traces the values of a tensor \[3, 4\] that"):
        make_traced(function)(X)


def test_tensors_of_classes_that_hold_tensors_are_refused():
    both = TwoTensor(torch.ones(3), torch.ones(3))
    with pytest.raises(TraceError) as error:
        make_traced(lambda x: x * both)(torch.ones(3))
    assert str(error.value) == (
        "the function reads a tensor of the class TwoTensor, which holds tensors\n"
        "Call it untraced; of a model, extract_ir takes what "
        "torchao.utils.unwrap_tensor_subclass(model) makes of it."
    )


def branches(x: Any) -> Any:
    return torch.cond(
        x.sum() > 0, lambda a: a * torch.tensor(2.0), lambda a: a + torch.tensor([1.0] * 4), (x,)
    )


def nested(x: Any) -> Any:
    def inner(a: Any) -> Any:
        return torch.cond(a.sum() > 1, lambda b: b * torch.tensor(3.0), lambda b: b - 1, (a,))

    return torch.cond(x.sum() > 0, inner, lambda a: a * WEIGHT[0], (x,)) + torch.tensor(5.0)


def scanned(x: Any) -> Any:
    return scan(lambda c, a: (c + a + torch.tensor(2.0), c * 1), x[0], x)


def looped(x: Any) -> Any:
    def step(i: Any, a: Any) -> Any:
        return i + torch.tensor(1), a * torch.tensor(2.0)

    return while_loop(lambda i, a: i < torch.tensor(3), step, (torch.tensor(0), x))


def filled(x: Any) -> Any:
    def fill(a: Any) -> Any:
        sums = torch.tensor([0.0] * 4)
        sums.add_(a[0])
        return a * sums

    return torch.cond(x.sum() > 0, fill, lambda a: a + 1, (x,))


@pytest.mark.parametrize("function", [branches, nested, scanned, looped, filled])
def test_bodies_hold_tensors_that_they_write_down(function: Callable[[Any], Any]):
    traced = make_traced(function)
    with torch.no_grad():
        for x in (X.abs(), -X.abs(), X.abs()):
            torch.testing.assert_close(traced(x), function(x), rtol=0, atol=0)


def test_gradients_pass_bodies_that_hold_tensors():
    for function in (branches, nested):
        x, y = X.abs().requires_grad_(), X.abs().requires_grad_()
        make_traced(function)(x).sum().backward()
        function(y).sum().backward()
        assert torch.equal(x.grad, y.grad)
