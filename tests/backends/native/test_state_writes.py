"""Large buffers of which a program writes a part: torch writes it beside what a runtime runs."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.export import Dim

import torch_ir
from torch_ir import extract_ir, functionalize
from torch_ir.backends import SUPPORTED, NativeBackend
from torch_ir.backends.native.preparation import prepared, prepared_to_run


class Again(NativeBackend):
    """A runtime whose programs are torch's."""

    name = "again"
    version = "1"

    def supports(self, node, ir):
        return SUPPORTED

    def build(self, program, options):
        return program.module()


def copied(cache, place, x):
    cache.index_copy_(1, place, x)


def put(cache, place, x):
    cache[:, place] = x


def sliced(cache, place, x):
    cache[:, 3:4] = x


def selected(cache, place, x):
    cache[:, 5] = x[:, 0]


def scattered(cache, place, x):
    cache.scatter_(1, place.view(1, 1, 1).expand(x.shape), x)


def shifted(cache, place, x):
    cache[:, 1:9] = cache[:, :8].clone()


WRITES = (copied, put, sliced, selected, scattered, shifted)
READS = {
    "after": lambda cache, before: (cache * 2).sum(-1),
    "before and after": lambda cache, before: before + cache.sum(-1),
    "only before": lambda cache, before: before * 2,
    "a part": lambda cache, before: cache[:, :4].tanh(),
    "as another shape": lambda cache, before: cache.flatten(),
}


class Cached(nn.Module):
    def __init__(self, write, read, *, rows=256):
        super().__init__()
        self.register_buffer("cache", torch.randn(2, rows, 64))
        self.project = nn.Linear(64, 64)
        self.write, self.read = write, read

    def forward(self, x, place):
        before = self.cache.sum(-1)
        self.write(self.cache, place, self.project(x))
        return self.read(self.cache, before)


def compiled(model, *arguments, **shapes):
    ir = extract_ir(model, arguments, **shapes)
    return torch_ir.compile(ir, model.state_dict(), backend=Again())


def operators(run):
    return [node.op_type for node in run.graph.ir.nodes]


def runs_as_eager(run, model, calls):
    """Run both, and look at the state and at results of earlier calls."""
    eager, weights = copy.deepcopy(model), copy.deepcopy(model.state_dict())
    kept = []
    with torch.no_grad():
        for _ in range(2):
            for x, place in calls:
                made, wanted = run(x, place), eager(x, place)
                torch.testing.assert_close(made, wanted)
                torch.testing.assert_close(run.buffers["cache"], eager.cache)
                kept.append((made, made.clone()))
            run.reset()
            eager.load_state_dict(weights)
    assert all(torch.equal(made, as_given) for made, as_given in kept)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, weights[name])


def calls_of(rows=1):
    generator = torch.Generator().manual_seed(0)
    return [
        (torch.randn(2, rows, 64, generator=generator), torch.arange(first, first + rows))
        for first in (1, 8, 200)
    ]


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("write", WRITES)
def test_a_delegate_gives_the_part_and_torch_writes_it(write, read):
    torch.manual_seed(0)
    model = Cached(write, READS[read]).eval()
    run = compiled(model, *calls_of()[0])
    (delegate,) = run.delegates.values()
    (cache,) = [meta for meta in delegate.body.graph_inputs if meta.shape == (2, 256, 64)]
    assert all(meta.shape != cache.shape for meta in delegate.body.graph_outputs)
    assert operators(run)[-1].split(".")[1].endswith("_")
    runs_as_eager(run, model, calls_of())


def test_as_many_rows_as_a_call_has():
    model = Cached(copied, READS["after"]).eval()
    rows = Dim("rows", min=2, max=32)
    run = compiled(model, *calls_of(3)[0], dynamic_shapes=({1: rows}, {0: rows}))
    assert operators(run)[-1] == "aten.index_copy_.default"
    runs_as_eager(run, model, [*calls_of(3), *calls_of(7)])


def test_a_write_that_a_runtime_makes_itself():
    """Of little, of most of the buffer, and of what is given away."""

    def most(cache, place, x):
        cache[:, :200] = x

    for model in (
        Cached(copied, READS["after"], rows=120).eval(),
        Cached(most, READS["after"]).eval(),
        Cached(copied, lambda cache, before: cache).eval(),
    ):
        run = compiled(model, *calls_of()[0])
        assert not any(name.split(".")[1].endswith("_") for name in operators(run)), model
        (x, place), eager = calls_of()[0], copy.deepcopy(model)
        torch.testing.assert_close(run(x, place), eager(x, place))
        torch.testing.assert_close(run.buffers["cache"], eager.cache)


class Tied(nn.Module):
    """One buffer under two names: a write to it is one to both."""

    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.zeros(2, 256, 64))
        self.register_buffer("other", self.cache)

    def forward(self, x, place):
        self.cache.index_copy_(1, place, x)
        return self.cache.sum(-1) + self.other.sum(-1)


class Chain(nn.Module):
    """Two writes: the last is of what the first left."""

    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.zeros(2, 256, 64))

    def forward(self, x, place):
        self.cache.index_copy_(1, place, x)
        first = self.cache.sum(-1)
        self.cache.index_copy_(1, place + 1, x * 2)
        return first + self.cache.sum(-1)


@pytest.mark.parametrize("model", [Tied, Chain])
def test_other_writes_to_buffers_are_right(model):
    model = model().eval()
    run = compiled(model, *calls_of()[0])
    runs_as_eager(run, model, calls_of())


def test_a_call_that_fails_leaves_the_state_as_it_was():
    model = Cached(copied, READS["after"]).eval()
    run = compiled(model, *calls_of()[0])
    (x, place), (y, _), _ = calls_of()
    run(x, place)
    before = run.buffers["cache"]
    with pytest.raises(torch_ir.errors.TorchIRError):
        run(y, torch.tensor([256]))
    assert torch.equal(run.buffers["cache"], before)


def test_a_program_that_is_converted_whole_writes_once():
    model = Cached(copied, READS["after"]).eval()
    ir = functionalize(extract_ir(model, calls_of()[0]))
    own, whole = [
        [node.op_type for node in made.nodes].count("aten.index_copy.default")
        for made in (prepared_to_run(ir, ()), prepared(ir, ()))
    ]
    assert (own, whole) == (2, 1)
