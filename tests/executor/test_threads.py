"""One compiled graph, many threads: each gets the right answer."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch
from torch import nn

import torch_ir
from backends.torch_again import TorchAgain
from small_models import CASES
from torch_ir import IRExecutor, compile_graph, extract_ir
from whole_way import same

THREADS = 8


def at_once(work, count=THREADS):
    """The result of ``work(i)`` for each thread; all begin together."""
    barrier = Barrier(count)

    def start(i):
        barrier.wait()
        return work(i)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(start, range(count)))


@pytest.mark.parametrize("name", ["attention", "conv", "dropping", "scatter"])
def test_each_thread_gets_the_answer_to_its_own_question(name):
    case = CASES[name]
    model = case.model()
    args, kwargs = case.inputs()
    graph = compile_graph(extract_ir(model, args, kwargs=kwargs), model.state_dict())
    inputs = [*args, *kwargs.values()]
    asked = [[inputs[0] * (i + 1), *inputs[1:]] for i in range(THREADS)]
    expected = [graph.eval(question) for question in asked]
    found = at_once(lambda i: [graph.eval(asked[i]) for _ in range(50)])
    for answers, right in zip(found, expected, strict=True):
        assert all(same(answer, right) for answer in answers)


class Counter(nn.Module):
    """Counts its calls in two buffers, which must never disagree."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("again", torch.zeros(()))

    def forward(self, x):
        self.calls.add_(1)
        self.again.copy_(self.again + x)
        return self.calls * 1, self.again * 1


def test_with_state_they_take_turns():
    one = torch.ones(())
    graph = compile_graph(extract_ir(Counter(), (one,)), Counter().state_dict())
    assert graph.holds_state
    found = at_once(lambda i: [graph.eval((one,)) for _ in range(100)])
    pairs = [(int(calls), int(again)) for answers in found for calls, again in answers]
    assert all(calls == again for calls, again in pairs)
    assert sorted(calls for calls, _ in pairs) == list(range(1, THREADS * 100 + 1))
    assert {key: int(value) for key, value in graph.buffers.items()} == {
        "calls": THREADS * 100,
        "again": THREADS * 100,
    }


def test_gradients_are_taken_in_threads_too():
    model, x = nn.Linear(8, 3), torch.ones(2, 8)
    graph = compile_graph(extract_ir(model, (x,)), model.state_dict())
    asked = [x * (i + 1) for i in range(THREADS)]

    def work(i):
        outputs, pullback = graph.vjp((asked[i],))
        _, tangents = graph.jvp((asked[i],), (asked[i],))
        return outputs, pullback(tangents)

    expected = [work(i) for i in range(THREADS)]
    for answers, right in zip(
        at_once(lambda i: [work(i) for _ in range(10)]), expected, strict=True
    ):
        assert all(same(answer, right) for answer in answers)


@pytest.mark.parametrize("make", ["executor", "aten", "reference", "runtime", "several"])
def test_first_calls_at_once_have_one_state(make):
    one = torch.ones(())
    ir, weights = extract_ir(Counter(), (one,)), Counter().state_dict()
    if make == "executor":
        run = IRExecutor(ir, weights)
    else:
        named = {"runtime": TorchAgain(), "several": [TorchAgain(), "tuned"]}
        run = torch_ir.compile(ir, weights, backend=named.get(make, make))
    found = at_once(lambda i: [run(one) for _ in range(10)])
    pairs = [(int(calls), int(again)) for answers in found for calls, again in answers]
    assert all(calls == again for calls, again in pairs)
    assert sorted(calls for calls, _ in pairs) == list(range(1, THREADS * 10 + 1))
