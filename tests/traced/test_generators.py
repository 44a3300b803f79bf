"""Generators of random numbers: the draws of eager, and the generator left as eager leaves it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import pytest
import torch

from torch_ir import IRExecutor, make_ir, make_traced
from torch_ir.errors import CompileError, ExecutionError, TraceError
from torch_ir.executor import register_generator
from traced.comparing import same

X = torch.zeros(3)


def seeded(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def everything(x, g):
    x.normal_(generator=g)
    return (
        torch.rand(3, generator=g) + torch.rand(3),
        torch.randperm(5, generator=g),
        torch.multinomial(torch.ones(4), 2, generator=g),
        torch.bernoulli(x.abs().clamp(0, 1), generator=g),
        torch.empty(2).uniform_(generator=g),
        torch.nn.functional.dropout(x, 0.5, True),
        torch.normal(torch.zeros(2), 1.0, generator=g),
    )


def agree(function: Callable[..., Any], traced: Callable[..., Any], seed: int) -> None:
    results = []
    for call in (function, traced):
        torch.manual_seed(seed)
        x, generator = X.clone(), seeded(seed)
        made = [call(x, generator) for _ in range(2)]
        results.append((made, x, generator.get_state(), torch.get_rng_state()))
    assert same(*results)


def test_the_draws_and_the_state_are_those_of_eager():
    traced = make_traced(everything)
    for seed in range(3):
        agree(everything, traced, seed)
    assert traced.cache_info()[:2] == (5, 1), "another generator is no reason to trace"


def test_generators_that_are_the_same_and_not():
    def function(x, g, h):
        return torch.rand(2, generator=g), torch.rand(2, generator=h)

    traced = make_traced(function)
    for _ in range(2):
        one, two = seeded(), seeded(4)
        assert same(traced(X, one, two), function(X, seeded(), seeded(4)))
        one, two = seeded(), seeded()
        assert same(traced(X, one, one), function(X, two, two))
        assert torch.equal(one.get_state(), two.get_state())
    assert traced.cache_info()[:2] == (2, 2)


def test_the_default_generator_by_name():
    def function(x, g):
        return torch.rand(2, generator=g), torch.rand(2)

    traced = make_traced(function)
    for seed in range(2):
        torch.manual_seed(seed)
        found = traced(X, torch.default_generator)
        torch.manual_seed(seed)
        assert same(found, function(X, torch.default_generator))


def test_a_closed_over_generator():
    g = seeded()

    def function(x):
        return x + torch.rand(3, generator=g)

    traced = make_traced(function)
    for _ in range(2):
        g.manual_seed(5)
        found = [traced(X), traced(X)]
        g.manual_seed(5)
        assert same(found, [function(X), function(X)])
    g = seeded(9)
    found = traced(X)
    g = seeded(9)
    assert torch.equal(found, function(X))
    with pytest.raises(TraceError) as caught:
        make_traced(lambda x, h: function(x) + torch.rand(3, generator=h))(X, g)
    assert str(caught.value) == (
        "<lambda> is given a generator of random numbers that it closes over too\n"
        "Give it as an argument alone."
    )


def test_a_generator_that_nothing_shows_is_refused():
    hidden = SimpleQueue()
    hidden.put(seeded())
    with pytest.raises(TraceError, match="draws from a generator that is found neither in its"):
        make_traced(lambda x: torch.rand(3, generator=hidden.get()))(X)


def test_a_generator_that_is_seeded_inside_is_refused_and_stays_as_it_was():
    g = seeded()
    state = g.get_state()
    with pytest.raises(TraceError, match="the function seeds torch's random numbers"):
        make_traced(lambda x, g: torch.rand(3, generator=g.manual_seed(1)))(X, g)
    assert torch.equal(g.get_state(), state)


def test_gradients_of_draws():
    def function(x, g):
        return (x * torch.rand(3, generator=g)).sum()

    x = torch.ones(3, requires_grad=True)
    found = torch.autograd.grad(make_traced(function)(x, seeded()), x)
    assert same(found, torch.autograd.grad(function(x, seeded()), x))


def test_several_threads_draw_from_generators_of_their_own():
    traced = make_traced(lambda x, g: x + torch.rand(3, generator=g))
    expected = [[X + torch.rand(3, generator=g) for _ in range(20)] for g in map(seeded, range(4))]
    found: list[Any] = [None] * 4

    def work(seed: int) -> None:
        g = seeded(seed)
        found[seed] = [traced(X, g) for _ in range(20)]

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert same(found, expected)


def test_other_executors_refuse():
    traced = make_traced(lambda x, g: torch.rand(3, generator=g), executor="prims")
    with pytest.raises(ExecutionError) as caught:
        traced(X, seeded())
    assert str(caught.value) == (
        "the function draws from a generator of its own, as torch's kernels alone can\n"
        "Use the executor 'aten'."
    )


def test_programs_name_their_generators():
    ir = make_ir(lambda x, g: x + torch.rand(3, generator=g), dialect="aten")(X, seeded())
    assert ir.nodes[0].attrs["generator"] == "generator_0"
    flat = ir.replace(signature=None)
    with pytest.raises(CompileError) as caught:
        IRExecutor(flat)(X)
    assert caught.value.findings[0].message == (
        "argument 'generator' of aten.rand.generator: there is no generator 'generator_0'. "
        "Register one with torch_ir.executor.register_generator, and keep it."
    )
    g = seeded()
    register_generator("generator_0", g)
    assert torch.equal(IRExecutor(flat)(X)[0], torch.rand(3, generator=seeded()))
    with pytest.raises(ExecutionError) as caught:
        register_generator("generator_0", seeded())
    assert str(caught.value) == (
        "there is a generator 'generator_0' already\nChoose another name."
    )


def test_draws_between_bounds():
    def function(x):
        return x.random_(3, 9), x.clone().random_(-3, 3), x.clone().random_(9)

    traced = make_traced(function)
    for seed in range(3):
        made = []
        for called in (traced, function):
            torch.manual_seed(seed)
            made.append([*called(torch.zeros(2, 3)), torch.get_rng_state()])
        assert same(*made)
