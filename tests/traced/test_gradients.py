"""Gradients of traced functions, on every executor, and of functions that take gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # as everybody calls it
from torch import nn
from torch.autograd.forward_ad import dual_level, make_dual, unpack_dual

from torch_ir import IRExecutor, make_traced, parse
from torch_ir.errors import ExecutionError, TraceError
from torch_ir.traced.run.runners import with_settled_sizes
from traced.comparing import same

X = torch.arange(6.0).view(2, 3) / 3 + 1
EXECUTORS = ("aten", "prims", "reference")


def gradients(function: Callable[..., Any], *tensors: torch.Tensor) -> list[Any]:
    """Results, which of them require gradients, first and second derivatives."""
    given = [t.clone().requires_grad_(t.is_floating_point()) for t in tensors]
    torch.manual_seed(3)
    results = torch.utils._pytree.tree_leaves(function(*given))
    ends = sum((r * r).sum() for r in results if r.requires_grad)
    wanted = [t for t in given if t.requires_grad]
    if not isinstance(ends, torch.Tensor):
        return [*results]
    first = torch.autograd.grad(ends, wanted, create_graph=True, allow_unused=True)
    again = sum(g.square().sum() for g in first if g is not None and g.requires_grad)
    second = ()
    if isinstance(again, torch.Tensor):
        second = torch.autograd.grad(again, wanted, allow_unused=True)
    flags = torch.tensor([r.requires_grad for r in results])
    return [*results, flags, *first, *second]


def check(function: Callable[..., Any], executor: str, *tensors: torch.Tensor) -> None:
    traced = make_traced(function, executor=executor)
    expected = gradients(function, *tensors)
    for _ in range(2):
        found = gradients(traced, *tensors)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert traced.cache_info().misses == 1


def region(x):
    with torch.no_grad():
        y = x * 2
        with torch.enable_grad():
            z = x * 3
        w = z * y
    return x * y + z + w


def written_without(x):
    y = x * 1
    with torch.no_grad():
        y.mul_(2)
    return y * x


def detached_in_place(x):
    y = x.sigmoid()
    z = y * 2
    y.detach_()
    return y * x + z


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "power": lambda x: (x**3).sum(),
    "results of all kinds": lambda x: (x * x.exp(), x.detach() * 2, x > 1, x),
    "softmax": lambda x: torch.softmax(x, -1) * x,
    "layer norm": lambda x: F.layer_norm(F.gelu(x), (3,)),
    "transposed": lambda x: x.t() @ x,
    "written": lambda x: (x * 1).add_(x).mul_(x),
    "pool": lambda x: F.max_pool1d(x[None] ** 2, 2),
    "a mask": lambda x: x[x > 1.5] * x.sum(),
    "a region without": region,
    "written without": written_without,
}


@pytest.mark.parametrize(
    ("executor", "name"),
    [
        *[("aten", name) for name in sorted(FUNCTIONS)],
        *[("prims", name) for name in ("softmax", "results of all kinds", "pool", "a mask")],
        *[("prims", name) for name in ("a region without", "written without")],
        *[("reference", name) for name in ("power", "written", "transposed", "a region without")],
    ],
)
def test_first_and_second_derivatives(executor: str, name: str):
    check(FUNCTIONS[name], executor, X)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_of_one_argument_among_others(executor: str):
    check(lambda x, t: F.cross_entropy(x, t), executor, X, torch.tensor([0, 2]))


@pytest.mark.parametrize("executor", ["aten", "prims"])
def test_the_mask_of_the_gradient_is_the_one_that_was_drawn(executor: str):
    check(lambda x: F.dropout(x, 0.5, True) * x, executor, X)


def test_what_is_detached_in_place():
    check(detached_in_place, "aten", X)


def test_the_denotation_refuses_gradients_of_random_numbers():
    traced = make_traced(lambda x: F.dropout(x, 0.5, True), executor="reference")
    with torch.no_grad():
        assert traced(X).shape == X.shape
    with pytest.raises(ExecutionError) as caught:
        traced(X.clone().requires_grad_())
    assert str(caught.value) == (
        "%dropout_native_dropout: aten.native_dropout.default draws random numbers, which the "
        "gradients that the executor 'reference' computes would not know\n"
        "Use the executor 'aten', or call the function under torch.no_grad()."
    )


@pytest.mark.parametrize("executor", EXECUTORS)
def test_training(executor: str):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1))
    other = copy.deepcopy(net)
    traced = make_traced(net, executor=executor)
    x = torch.randn(5, 3)
    for model, call in ((net, traced), (other, other)):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            call(x).square().mean().backward()
            optimizer.step()
    torch.testing.assert_close(dict(net.state_dict()), dict(other.state_dict()))
    assert traced.cache_info().misses == 1


@pytest.mark.parametrize("executor", ["aten", "prims"])
def test_what_is_written_passes_gradients_on(executor: str):
    def function(x, w):
        x.mul_(w)
        return x + 1

    def through(call: Callable[..., Any]) -> list[Any]:
        x, w = X.clone().requires_grad_(), X.clone().requires_grad_()
        y = x * 2
        result = call(y, w)
        return [result, *torch.autograd.grad((result * y).sum(), (x, w))]

    assert same(through(make_traced(function, executor=executor)), through(function))


# -- derivatives inside ---------------------------------------------------------------------------


def softmax(x):
    return (torch.softmax(x, -1) * x).pow(2).sum()


def saved(x):
    y = x.exp().sqrt().sigmoid() * x.tanh().log_softmax(-1) * x.norm() * x.std()
    return torch.autograd.grad(y.sum(), x, create_graph=True)[0]


def detached(x):
    y = torch.softmax(x, -1).detach() * x.exp().detach().detach() * x.tanh()
    return torch.autograd.grad(y.pow(2).sum(), x, create_graph=True)[0]


def kept(x):
    return torch.autograd.grad(softmax(x), x, retain_graph=True)[0] * x


INSIDE: dict[str, Callable[..., Any]] = {
    "autograd.grad": lambda x: torch.autograd.grad(softmax(x), x, create_graph=True)[0],
    "of saved results": saved,
    "detached": detached,
    "without a graph": kept,
    "grad": torch.func.grad(softmax),
    "grad of what is detached": torch.func.grad(lambda x: softmax(x) * x.detach().sum()),
    "vjp": lambda x: torch.func.vjp(torch.sin, x)[1](x.exp())[0],
    "jvp": lambda x: torch.func.jvp(torch.tanh, (x,), (x.exp(),)),
    "vmap": lambda x: torch.vmap(lambda row: torch.softmax(row, -1) * row.sum())(x),
    "a row at a time": lambda x: torch.vmap(torch.func.grad(softmax))(x),
    "jacrev": lambda x: torch.func.jacrev(lambda row: torch.softmax(row, -1))(x[0]),
    "jacfwd": lambda x: torch.func.jacfwd(torch.tanh)(x[0]),
    "hessian": lambda x: torch.func.hessian(softmax)(x[0]),
    "along a direction": lambda x: torch.func.jvp(torch.func.grad(softmax), (x,), (x,))[1],
}


@pytest.mark.parametrize(
    ("executor", "name"),
    [
        *[("aten", name) for name in sorted(INSIDE)],
        *[("prims", name) for name in ("detached", "jacrev", "along a direction")],
        *[("reference", name) for name in ("autograd.grad", "vmap")],
    ],
)
def test_derivatives_taken_inside_and_their_derivatives(executor: str, name: str):
    function = INSIDE[name]
    traced = make_traced(function, executor=executor)
    found, expected = [], []
    for call, into in ((traced, found), (function, expected)):
        x = X.clone().requires_grad_()
        results = torch.utils._pytree.tree_leaves(call(x))
        into += results
        ends = [r.sin().sum() for r in results if r.requires_grad]
        into += torch.autograd.grad(sum(ends), x) if ends else ()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert [r.requires_grad for r in found] == [r.requires_grad for r in expected]


def test_detaching_in_place_below_autograd_is_refused():
    def function(x):
        y = x.sigmoid().detach_() * torch.softmax(x, -1)
        return torch.autograd.grad(y.sum(), x, create_graph=True)[0]

    with pytest.raises(TraceError, match="the function detaches in place"):
        make_traced(function)(X.clone().requires_grad_())


# -- derivatives of a traced function -------------------------------------------------------------

OUTSIDE: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "grad": lambda f: torch.func.grad(lambda x: f(x).sum()),
    "vjp": lambda f: lambda x: torch.func.vjp(f, x)[1](x)[0],
    "jvp": lambda f: lambda x: torch.func.jvp(f, (x,), (x,)),
    "vmap": torch.vmap,
    "jacrev": torch.func.jacrev,
    "jacfwd": torch.func.jacfwd,
    "hessian": lambda f: torch.func.hessian(lambda x: f(x).sum()),
    "functional jacobian": lambda f: lambda x: torch.autograd.functional.jacobian(f, x),
}


@pytest.mark.parametrize("name", sorted(OUTSIDE))
@pytest.mark.parametrize("executor", ["aten", "prims"])
def test_derivatives_of_a_traced_function(executor: str, name: str):
    def function(x):
        return torch.softmax(x, -1) * x.exp()

    traced = make_traced(function, executor=executor)
    traced(X)
    found, expected = OUTSIDE[name](traced)(X), OUTSIDE[name](function)(X)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_forward_derivatives(executor: str):
    def function(x):
        return torch.softmax(x, -1) * x.exp()

    traced = make_traced(function, executor=executor)
    traced(X)

    def tangent(call: Callable[..., Any]) -> Any:
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(X, X.exp())
            return tuple(torch.autograd.forward_ad.unpack_dual(call(dual)))

    torch.testing.assert_close(tangent(traced), tangent(function))


@pytest.mark.parametrize("executor", EXECUTORS)
def test_second_derivatives_where_data_decides_sizes(executor):
    def function(x):
        return x[x > 1.5] * x.sum()

    traced = make_traced(function, executor=executor)
    for shift in (0, -1, 1, 0.5, -3):  # 4, 1, 6, 5 and 0 elements
        found, expected = gradients(traced, X + shift), gradients(function, X + shift)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_a_size_that_torch_settled_is_checked_when_data_decides_another():
    ir = parse(
        """ir {
          input %x: f32[3]
          %m: b8[3] = aten.gt.Scalar(%x, 0)
          %y: f32[2] = aten.index.Tensor(%x, [%m])
          %z: f32[2] = aten.neg.default(%y)
          return %z
        }"""
    )
    settled = with_settled_sizes(ir)
    run = IRExecutor(settled, {}, check_types=False)
    assert run(torch.tensor([1.0, -1.0, 2.0]))[0].tolist() == [-1, -2]
    with pytest.raises(ExecutionError, match=r"Tensor sizes mismatch! Expected: .2., Got: .3."):
        run(torch.ones(3))
    symbolic = parse(str(ir).replace("f32[2]", "f32[u0]"))
    assert with_settled_sizes(symbolic) is symbolic


# -- control flow ---------------------------------------------------------------------------------

HIGHER = torch._higher_order_ops
LAYER = nn.Linear(3, 3)


def choices_in_a_loop(x):
    def body(i, y):
        return i + 1, torch.cond(i % 2 == 0, lambda y: LAYER(y), lambda y: y * 2, (y,))

    return HIGHER.while_loop(lambda i, y: i < 3, body, (torch.tensor(0), x))[1]


def beside_a_region(x):
    with torch.no_grad():
        scale = x.sin()
    return choices_in_a_loop(x) * scale


def a_region_in_a_branch(x):
    def branch(y):
        with torch.no_grad():
            scale = y * 2
        return y * scale

    return torch.cond(x.sum() > 0, branch, lambda y: y.cos() * 3, (x,))


@pytest.mark.parametrize(
    "function",
    [choices_in_a_loop, beside_a_region, a_region_in_a_branch],
    ids=lambda f: f.__name__,
)
def test_bodies_in_bodies(function: Callable[..., Any]):
    given = X.clone().requires_grad_()
    for run in (make_traced(function), torch.no_grad()(make_traced(function))):
        assert torch.equal(run(given), function(given))
    found, expected = (
        torch.autograd.grad(run(given).sum(), given) for run in (make_traced(function), function)
    )
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("executor", ["aten", "prims"])
def test_gradients_of_branches_and_rows(executor: str):
    def branches(x):
        return torch.cond(x.sum() > 0, lambda x: x.sin() * x, lambda x: x * 2, (x,))

    def rows(x):
        return HIGHER.map(lambda row, last: row * last.cos(), x, x[-1] * 1)

    given = X.clone().requires_grad_()
    for function in (branches, rows):
        traced = make_traced(function, executor=executor)
        found, expected = (
            torch.autograd.grad(run(given).square().sum(), given) for run in (traced, function)
        )
        torch.testing.assert_close(found, expected)


def test_gradients_through_a_scan_are_refused():
    def running(x):
        return HIGHER.scan(lambda c, row: (c * row, c + row), x[0] * 1, x)[1]

    traced = make_traced(running)
    assert torch.equal(traced(X), running(X))
    with pytest.raises(TraceError) as caught:
        traced(X.clone().requires_grad_())
    assert str(caught.value) == (
        "gradients pass through a scan, and torch traces results of it that have none\n"
        "Call the traced function under torch.no_grad(), or run a module with "
        "torch_ir.compile(torch_ir.extract_ir(module, args), weights, grad=True)."
    )


def test_tangents_that_the_function_makes():
    def function(x, y):
        with dual_level():
            z = make_dual(x, y)
            tangents = [unpack_dual(t).tangent for t in (z.sin(), z.t() @ X, z * z.detach())]
            assert unpack_dual(x * 2).tangent is None
            return z.exp(), *tangents

    traced = make_traced(function)
    for seed in range(2):
        x, y = X * (seed + 1), X.cos()
        assert same(traced(x, y), function(x, y))
        assert same(gradients(traced, x, y), gradients(function, x, y))
    assert traced.cache_info().misses == 2


INITIALIZERS = {
    "uniform_": (),
    "normal_": (),
    "constant_": (3.0,),
    "ones_": (),
    "eye_": (),
    "xavier_normal_": (),
    "kaiming_uniform_": (),
    "orthogonal_": (),
}


@pytest.mark.parametrize("name", INITIALIZERS)
def test_initializers_leave_gradients_as_they_are(name):
    fill = getattr(nn.init, name)

    def function(x, w):
        z = w * 2
        fill(z, *INITIALIZERS[name])
        fill(w, *INITIALIZERS[name])
        return (z * x * w).sum()

    made = []
    for called in (function, make_traced(function)):
        x, w = torch.arange(3.0).requires_grad_(), torch.ones(3, 3).requires_grad_()
        torch.manual_seed(0)
        result = called(x, w)
        made.append([result, w, w.requires_grad, w.is_leaf, *torch.autograd.grad(result, (x, w))])
    assert same(*made)
