"""A traced function is what the function is, or is refused, whatever it depends on and changes."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from torch_ir import TraceError, make_traced
from traced import dependences
from traced.comparing import same

# what names modules by strings visits all modules of a process, here those of all tests: they have
# a process of their own in `make worlds`
BY_STRINGS = ("sys.modules", "import_module", "eval")
CASES = [case for case in dependences.cases() if not case[0].startswith(BY_STRINGS)]


@pytest.mark.parametrize("start", range(7))
def test_what_a_function_depends_on(start):
    for name, source, change in CASES[start * 11 :: 77]:
        assert dependences.outcome(source, change) in ("same", "refused"), name


def x(*shape):
    return torch.arange(1.0, 1 + torch.Size(shape).numel()).view(shape)


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("n", torch.zeros(2))

    def forward(self, a):
        self.n += a
        self.n *= 2
        return a + self.n


def requires(a):
    b = a * 1
    b.requires_grad_()
    return b, a + 1


def default_type_inside(a):
    torch.set_default_dtype(torch.float64)
    try:
        return torch.ones(2) + a
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(
    "function",
    [
        lambda a: a.shape,
        lambda a: (a.shape, a * 2, a.size()),
        lambda a: {"s": a.shape[:1], "y": [a.view(-1).shape, a, a.stride()]},
        lambda a: torch.Size([1, 2]),
        requires,
        lambda a: torch.ones(2, requires_grad=True),
        lambda a: a.detach().clone().requires_grad_(),
        default_type_inside,
        Counting(),
    ],
)
def test_results(function):
    ours, theirs = copy.deepcopy(function), copy.deepcopy(function)
    traced = make_traced(ours)
    for _ in range(3):
        expected, got = theirs(x(2)), traced(x(2))
        assert same(expected, got)
        assert torch.utils._pytree.tree_map(type, expected, is_leaf=_is_size) == (
            torch.utils._pytree.tree_map(type, got, is_leaf=_is_size)
        )
    if isinstance(function, nn.Module):
        assert torch.equal(ours.n, theirs.n)


def _is_size(value):
    return type(value) is torch.Size


def test_sizes_stay_symbolic():
    traced = make_traced(lambda a: (a.shape, a + 1), dynamic=True)
    for rows in (2, 3, 4):
        size = traced(x(rows, 2))[0]
        assert size == torch.Size([rows, 2])
        assert type(size) is torch.Size
    assert traced.cache_info().misses == 1


def add_to(a, items):
    items.append(a)
    return a + 1


def put_into(a, items):
    items["y"] = a
    return a + 1


def add_and_raise(a, items):
    items.append(1)
    raise ValueError(a.shape)


def ones_of(count):
    while True:
        yield count


FOREVER = ones_of(1)


@pytest.mark.parametrize(
    ("function", "args", "message"),
    [
        (add_to, ([],), "the function changes a list or dictionary among its arguments"),
        (add_and_raise, ([],), "the function changes a list or dictionary among its arguments"),
        (put_into, ({"x": 1},), "the function changes a list or dictionary among its arguments"),
        (lambda a, d: d["l"].pop() + a, ({"l": [1]},), "the function changes a list or dict"),
        (lambda a: a * next(FOREVER), (), "the function closes over an iterator (generator"),
        (lambda a: a * a._version, (), "the function reads _version of a tensor"),
        (lambda a: a * a.storage_offset(), (), "the function reads storage_offset() of a"),
        (lambda a: a if a.is_leaf else -a, (), "the function reads is_leaf of a tensor"),
        (
            lambda a: (a * 1).requires_grad_().sum(),
            (),
            "gradients pass through a tensor that the function itself lets require them",
        ),
    ],
)
def test_what_is_refused(function, args, message):
    given = copy.deepcopy(args)
    with pytest.raises(TraceError) as caught:
        make_traced(function)(x(2), *args)
    assert caught.value.message.startswith(message)
    assert args == given


def test_arguments_that_only_some_functions_tell_apart():
    traced = make_traced(lambda **given: next(iter(given.values())) * 2)
    assert torch.equal(traced(a=x(2), b=-x(2)), x(2) * 2)
    assert torch.equal(traced(b=-x(2), a=x(2)), -x(2) * 2)
    tagged = x(2)
    tagged.tag = 5
    traced = make_traced(lambda a: a * getattr(a, "tag", 2))
    assert torch.equal(traced(x(2)), x(2) * 2)
    assert torch.equal(traced(tagged), x(2) * 5)


def test_a_hook_of_all_modules():
    net = nn.Linear(2, 2)
    traced = make_traced(lambda a: net(a))
    assert torch.equal(traced(x(2)), net(x(2)))
    hook = nn.modules.module.register_module_forward_hook(lambda module, args, made: made * 3)
    try:
        assert torch.equal(traced(x(2)), net(x(2)))
    finally:
        hook.remove()
    assert torch.equal(traced(x(2)), net(x(2)))
