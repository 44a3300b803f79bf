"""Programs that run with a part of their weights in memory: the same bits, within a bound."""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import torch_ir
from torch_ir.backends.streaming import memory_bytes
from torch_ir.errors import CompileError, ExecutionError, WeightLoadError
from whole_way import same

WIDTH = 32


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(self.up(self.norm(x)).relu())


class Counting(Block):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen += 1
        return super().forward(x) * self.seen


class Net(nn.Module):
    """Layers, a weight that two steps read, one that is seen through a view, and state."""

    def __init__(self, kind):
        super().__init__()
        self.embedding = nn.Embedding(40, WIDTH)
        self.layers = nn.ModuleList([kind() for _ in range(6)])
        self.scale = nn.Parameter(torch.rand(WIDTH, 3))

    def forward(self, ids):
        scale = self.scale.t()
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x)
        return {"logits": x @ self.embedding.weight.t(), "scaled": x @ scale.t()}


def made(tmp_path, kind=Block, **options):
    torch.manual_seed(0)
    model, ids = Net(kind).eval(), torch.arange(6).reshape(2, 3)
    path = tmp_path / "model.safetensors"
    save_file(model.state_dict(), path)
    return torch_ir.extract_ir(model, (ids,), **options), model.state_dict(), path, ids


@pytest.mark.parametrize("regions", [None, "auto"])
@pytest.mark.parametrize("kind", [Block, Counting])
def test_a_run_within_a_bound_has_the_bits_of_one_in_memory(tmp_path, kind, regions):
    ir, weights, path, ids = made(tmp_path, kind, regions=regions)
    whole = torch_ir.compile(ir, weights)
    total = sum(tensor.numel() * tensor.element_size() for tensor in weights.values())
    read = []
    budget = 100_000
    assert total > budget
    run = torch_ir.compile(
        ir, path, memory=budget, options={"progress": lambda *done: read.append(done)}
    )
    for _ in range(3):
        got, wanted = run(ids), whole(ids)
        assert all(same(got[key], wanted[key]) for key in wanted)
    assert 0 < run.peak <= budget - run.needed
    assert len({id(step.body) for step in run.steps}) < len(run.steps) - 3
    assert read[len(run.steps) - 1][0] == read[0][1] == read[-1][1]
    run.reset()
    assert same(run(ids)["logits"], torch_ir.compile(ir, weights)(ids)["logits"])


def test_weights_never_take_more_than_the_bound(tmp_path):
    ir, weights, path, ids = made(tmp_path)
    wanted = torch_ir.compile(ir, weights)(ids)["logits"]
    steps = []
    for memory in range(24_000, 120_000, 8_000):
        run = torch_ir.compile(ir, path, memory=memory)
        assert same(run(ids)["logits"], wanted)
        assert run.peak + run.needed <= memory
        steps.append(len(run.steps))
    assert steps == sorted(steps, reverse=True)
    assert steps[0] > steps[-1]


def test_a_bound_that_does_not_suffice(tmp_path):
    ir, _, path, _ = made(tmp_path)
    with pytest.raises(CompileError) as caught:
        torch_ir.compile(ir, path, memory="4KB")
    assert caught.value.message.startswith("the program needs ")
    assert "are the weights of node 'linear'; it may take 4,096" in caught.value.message


def test_shards_and_short_reads(tmp_path, monkeypatch):
    ir, weights, _, ids = made(tmp_path)
    (tmp_path / "shards").mkdir()
    names = sorted(weights)
    parts = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, keys in parts.items():
        save_file({key: weights[key] for key in keys}, tmp_path / "shards" / file)
    index = {key: file for file, keys in parts.items() for key in keys}
    text = json.dumps({"weight_map": index})
    (tmp_path / "shards" / "model.safetensors.index.json").write_text(text)
    whole = os.preadv
    monkeypatch.setattr(os, "preadv", lambda f, into, at: whole(f, [into[0][:1000]], at))
    run = torch_ir.compile(ir, tmp_path / "shards", memory="90KB")
    assert same(run(ids)["logits"], torch_ir.compile(ir, weights)(ids)["logits"])


def test_a_file_that_is_cut_off(tmp_path):
    ir, _, path, ids = made(tmp_path)
    run = torch_ir.compile(ir, path, memory="90KB")
    os.truncate(path, path.stat().st_size - 10_000)
    with pytest.raises(WeightLoadError) as caught:
        run(ids)
    assert caught.value.message.startswith(f"{path} ends within the weight ")
    with pytest.raises(WeightLoadError, match="not a whole safetensors file"):
        torch_ir.compile(ir, path, memory="90KB")
    path.unlink()
    with pytest.raises(WeightLoadError, match="cannot be read: No such file"):
        run(ids)


@pytest.mark.parametrize("is_replaced", [False, True], ids=["written", "replaced"])
def test_a_file_that_is_no_longer_the_one_that_was_compiled_for(tmp_path, is_replaced):
    ir, weights, path, ids = made(tmp_path)
    run = torch_ir.compile(ir, path, memory="90KB")
    run(ids)
    if is_replaced:
        new = tmp_path / "new"
        save_file(weights, new, metadata={"behind": "other places"})
        new.replace(path)
    else:
        os.utime(path, ns=(0, 0))
    with pytest.raises(WeightLoadError) as caught:
        run(ids)
    assert str(caught.value) == (
        f"{path} was written since the program was compiled, which reads the weight "
        "'scale' there\nCompile the program again."
    )


def counting(tmp_path, is_functional):
    """A program whose layers count their calls, in place or at the end; it, and its results."""
    torch.manual_seed(0)
    model, ids = Net(Counting).eval(), torch.arange(6).reshape(2, 3)
    path = tmp_path / "model.safetensors"
    save_file(model.state_dict(), path)
    exported = torch.export.export(model, (ids,))
    ir = torch_ir.extract_ir(exported.run_decompositions({}) if is_functional else exported)
    whole = torch_ir.compile(ir, model.state_dict())
    return ir, path, ids, [whole(ids)["logits"] for _ in range(16)]


@pytest.mark.parametrize("is_functional", [False, True], ids=["in place", "functional"])
def test_threads_take_turns_where_there_is_state(tmp_path, is_functional):
    ir, path, ids, wanted = counting(tmp_path, is_functional)
    run = torch_ir.compile(ir, path, memory=100_000)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(lambda _: run(ids)["logits"], wanted))
    finally:
        sys.setswitchinterval(before)
    assert all(any(same(result, one) for result in results) for one in wanted)


@pytest.mark.parametrize("is_functional", [False, True], ids=["in place", "functional"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_a_call_that_ends_between_two_writes(tmp_path, is_functional, error):
    ir, path, ids, wanted = counting(tmp_path, is_functional)
    steps, ends = [], {0: error()}

    def progress(*_):
        steps.append(_)
        if len(steps) % len(run.steps) == 4 and (raised := ends.pop(0, None)):
            raise raised

    run = torch_ir.compile(ir, path, memory=100_000, options={"progress": progress})
    with pytest.raises(error):
        run(ids)
    if is_functional:
        assert same(run(ids)["logits"], wanted[0])
        return
    with pytest.raises(ExecutionError) as caught:
        run(ids)
    assert str(caught.value) == (
        "the buffers are half written: the last call failed between two writes\n"
        "Call reset() to start again with their first values."
    )
    run.reset()
    assert [same(run(ids)["logits"], one) for one in wanted[:2]] == [True, True]


def test_a_call_within_a_call_is_refused_where_there_is_state(tmp_path):
    ir, path, ids, wanted = counting(tmp_path, is_functional=True)
    within = []

    def progress(*_):
        if within:
            within.pop()(ids)

    run = torch_ir.compile(ir, path, memory=100_000, options={"progress": progress})
    within.append(run)
    with pytest.raises(ExecutionError, match="the program is called within a call of it"):
        run(ids)
    assert same(run(ids)["logits"], wanted[0])


class Showing(nn.Module):
    """Gives its state, a part of it, and a weight that no operator reads, as they are."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x):
        self.seen.add_(1)
        return self.fc(x) * self.seen, self.seen, self.seen[1:3], self.fc.bias.detach()


def test_results_stay_and_what_is_written_in_them_is_in_no_later_ones(tmp_path):
    model, x = Showing(), torch.randn(2, 4)
    path = tmp_path / "model.safetensors"
    save_file(model.state_dict(), path)
    exported = torch.export.export(model, (x,))
    run = torch_ir.compile(torch_ir.extract_ir(exported), path, memory="1MB")
    kept = []
    for call in range(1, 4):
        results = run(x)
        assert same(results[0], (model.fc(x) * call).detach())
        assert same(results[1:3], (torch.full((4,), float(call)), torch.full((2,), float(call))))
        assert same(results[3], model.fc.bias.detach())
        for result in results:
            result.fill_(7.0)
        kept.append(results)
    assert all(bool((result == 7).all()) for results in kept for result in results)


def test_what_cannot_be_streamed(tmp_path):
    ir, weights, path, _ = made(tmp_path)
    for given, options in (
        (weights, {}),
        (path, {"backend": "reference"}),
        (path, {"grad": True}),
    ):
        with pytest.raises(ExecutionError) as caught:
            torch_ir.compile(ir, given, memory="1GB", **options)
        assert caught.value.message.startswith("memory= is for weights in files")
    for wrong in ("much", "-1", "1PB", True):
        with pytest.raises(ExecutionError, match="is no amount of memory"):
            memory_bytes(wrong)
