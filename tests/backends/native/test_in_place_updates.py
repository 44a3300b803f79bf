"""Runtimes that write a part of a large buffer in the buffer's own memory."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.export import Dim

import torch_ir
from backends.native.test_state_writes import (
    READS,
    WRITES,
    Again,
    Cached,
    Chain,
    Tied,
    calls_of,
    copied,
    operators,
    put,
    runs_as_eager,
    scattered,
)
from torch_ir import extract_ir, parse


class InPlace(Again):
    """A runtime that gives what it writes where the old value was."""

    in_place = frozenset(
        f"aten.{name}" for name in ("index_copy.default", "index_put.default", "scatter.src")
    )

    def __init__(self):
        self.calls = 0

    def into(self, built, places):
        def call(*given):
            self.calls += 1
            made = list(built(*given))
            for result, place in places.items():
                given[place].copy_(self.changed(made[result]))
                made[result] = given[place]
            return made

        return call

    def changed(self, value):
        return value


def compiled(model, backend, *arguments, **shapes):
    ir = extract_ir(model, arguments, **shapes)
    return torch_ir.compile(ir, model.state_dict(), backend=backend)


def is_written_in_place(run):
    """Whether the runtime writes the buffer, and torch nothing."""
    (delegate,) = run.delegates.values()
    return bool(delegate.written) and len(operators(run)) == 1


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("write", WRITES)
def test_a_runtime_writes_where_nothing_else_reads(write, read):
    torch.manual_seed(0)
    model = Cached(write, READS[read]).eval()
    backend = InPlace()
    run = compiled(model, backend, *calls_of()[0])
    is_alone = write in (copied, put, scattered) and "before" not in read
    assert is_written_in_place(run) == is_alone
    runs_as_eager(run, model, calls_of())
    assert all(verdict.used for verdict in run.verdicts)


def test_what_a_runtime_writes_where_the_old_value_was_is_no_fault_of_it():
    torch.manual_seed(0)
    model, inputs = Cached(copied, READS["after"]).eval(), calls_of()[0]
    ir = extract_ir(model, inputs)
    run = torch_ir.compile(ir, model.state_dict(), backend=InPlace())
    assert is_written_in_place(run)
    report = torch_ir.compare(ir, model.state_dict(), inputs, run=run, mode="isolated")
    assert report.first is None


@pytest.mark.parametrize("model", [Tied, Chain])
def test_buffers_that_are_not_only_its_own(model):
    model = model().eval()
    run = compiled(model, InPlace(), *calls_of()[0])
    assert not any(delegate.written for delegate in run.delegates.values())
    runs_as_eager(run, model, calls_of())


def test_what_is_added_to_is_not_written_twice():
    def added(cache, place, x):
        cache.index_put_((torch.arange(2)[:, None], place[None]), x, accumulate=True)

    model = Cached(added, READS["after"]).eval()
    run = compiled(model, InPlace(), *calls_of()[0])
    assert not any(delegate.written for delegate in run.delegates.values())
    runs_as_eager(run, model, calls_of())


def test_a_buffer_that_is_given_away_is_copied():
    model = Cached(copied, lambda cache, before: cache.view(-1)).eval()
    run = compiled(model, InPlace(), *calls_of()[0])
    runs_as_eager(run, model, calls_of())


@pytest.mark.parametrize("backend", [Again, InPlace])
def test_a_buffer_that_another_one_keeps_is_not_written_before(backend):
    ir = parse("""ir {
      weight @cache: f32[256, 64]
      weight @before: f32[256, 64]
      mutate @before = @cache
      mutate @cache = %new
      input %x: f32[1, 64]
      input %i: i64[1]
      %new: f32[256, 64] = aten.index_copy.default(@cache, 0, %i, %x)
      %y: f32[256] = aten.sum.dim_IntList(%new, [1])
      return %y
    }""")
    weights = {"cache": torch.zeros(256, 64), "before": torch.ones(256, 64)}
    run = torch_ir.compile(ir, weights, backend=backend())
    cache = weights["cache"].clone()
    for place in (3, 5):
        run(torch.full((1, 64), float(place)), torch.tensor([place]))
        assert torch.equal(run.buffers["before"], cache)
        cache[place] = place
        assert torch.equal(run.buffers["cache"], cache)


def test_a_runtime_that_writes_elsewhere_is_found_out():
    class Elsewhere(InPlace):
        def changed(self, value):
            return value.roll(1, dims=1)

    model = Cached(copied, READS["after"]).eval()
    run = compiled(model, Elsewhere(), *calls_of()[0])
    assert [verdict.nodes for verdict in run.verdicts if not verdict.used] == [("index_copy_",)]
    runs_as_eager(run, model, calls_of())


def test_torch_takes_over_where_a_call_fails():
    class Failing(InPlace):
        def changed(self, value):
            if self.calls > 6:
                raise RuntimeError("no more")
            return value

    model = Cached(copied, READS["after"]).eval()
    backend = Failing()
    run = compiled(model, backend, *calls_of()[0])
    backend.calls = 5
    runs_as_eager(run, model, calls_of())
    (verdict,) = run.verdicts
    assert (verdict.used, verdict.reason) == (False, "RuntimeError: no more")


@pytest.mark.parametrize("write", [copied, put, scattered])
def test_onnxruntime_copies_no_cache(write):
    pytest.importorskip("onnxruntime")
    torch.manual_seed(0)
    model = Cached(write, READS["after"]).eval()
    run = compiled(model, "onnxruntime", *calls_of()[0])
    assert is_written_in_place(run)
    runs_as_eager(run, model, calls_of())
    (delegate,) = run.delegates.values()
    taken = [meta for meta in delegate.body.graph_inputs if meta.name not in delegate.held]
    given = [torch.zeros(meta.shape, dtype=getattr(torch, meta.dtype)) for meta in taken]
    cache = given[[meta.shape for meta in taken].index((2, 256, 64))]
    assert sum(result is cache for result in delegate.compiled(*given)) == 1
    assert cache.count_nonzero() > 0  # the row has the bias of a projection
    moved = torch.zeros_like(cache)
    cache.set_(moved)  # the tensor is the same, and lies elsewhere
    delegate.compiled(*given)
    assert moved.count_nonzero() > 0


def test_onnxruntime_in_place_with_as_many_rows_as_there_are():
    pytest.importorskip("onnxruntime")
    model = Cached(copied, READS["after"]).eval()
    rows = Dim("rows", min=2, max=32)
    shapes = {"dynamic_shapes": ({1: rows}, {0: rows})}
    run = compiled(model, "onnxruntime", *calls_of(3)[0], **shapes)
    assert is_written_in_place(run)
    runs_as_eager(run, model, [*calls_of(3), *calls_of(7)])


def test_calls_of_several_threads_take_turns():
    pytest.importorskip("onnxruntime")
    model = Cached(copied, READS["after"]).eval()
    run = compiled(model, "onnxruntime", *calls_of()[0])
    x, place = calls_of()[0]
    wanted = run(x, place)
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: run(x, place), range(40)))
    assert all(torch.equal(one, wanted) for one in made)
