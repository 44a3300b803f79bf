"""Programs shared by ranks: plans, rules, and what they mean together."""

import random

import numpy as np
import pytest
import torch
from torch import nn

import torch_ir
from torch_ir import PassError, decompose, extract_ir, shard, validate_ranks
from torch_ir.backends.reference import ReferenceParts


class Block(nn.Module):
    """Attention with grouped heads and an MLP."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.query, self.key, self.value, self.out = (
            nn.Linear(8, n, bias=b) for n, b in ((16, True), (8, True), (8, False), (8, True))
        )
        self.out = nn.Linear(16, 8)
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        y = self.norm(x)
        q, k, v = (
            f(y).view(*y.shape[:2], -1, 2).transpose(1, 2)
            for f in (self.query, self.key, self.value)
        )
        k, v = (t[:, :, None].expand(-1, -1, 2, -1, -1).flatten(1, 2) for t in (k, v))
        made = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(made.transpose(1, 2).reshape(*x.shape[:2], -1))
        return x + self.down(nn.functional.silu(self.up(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(12, 8)
        self.layers = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(8, 12, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


PLAN = {
    **{f"layers.*.{name}": "column" for name in ("query", "key", "value", "up")},
    **{f"layers.*.{name}": "row" for name in ("out", "down")},
}
TOKENS = torch.tensor([[1, 5, 11, 0], [3, 6, 7, 2]])


def collectives(ir):
    return [n.op_type.split(".")[1] for n in ir.nodes if "_c10d" in n.op_type]


def agreed(ir, weights, inputs, plan, ranks=2):
    programs = shard(ir, plan, ranks=ranks)
    for program in programs:
        assert {finding.code for finding in program.check()} <= {"forbidden-operator"}
        assert torch_ir.parse(str(program)) == program
    report = validate_ranks(ir, programs, weights, inputs)
    assert report.verdict == "agree", str(report)
    return programs


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    return Net().eval()


@pytest.fixture(scope="module")
def ir(net):
    return extract_ir(net, (TOKENS,), regions="auto")


@pytest.mark.parametrize("ranks", [2, 4])
def test_columns_and_rows_meet_in_one_sum_a_pair(net, ir, ranks):
    programs = agreed(ir, net.state_dict(), (TOKENS,), PLAN, ranks)
    assert collectives(programs[0]) == ["all_reduce", "wait_tensor"] * 4
    assert "gathered" not in programs[0].metadata
    assert all(program is programs[0] for program in programs)
    assert dict(programs[0].metadata["shards"]["layers.1.down.weight"]) == {
        "dim": 1,
        "parts": ranks,
    }
    whole = torch_ir.passes.inline_functions(ir)
    named = {meta.name for node in programs[0].nodes for meta in node.outputs}
    assert {meta.name for node in whole.nodes for meta in node.outputs} <= named
    paths = {node.location.module for node in programs[0].nodes if node.location}
    assert paths == {node.location.module for node in whole.nodes if node.location}


def test_a_vocabulary_is_summed_at_its_table_and_gathered_at_its_head(net, ir):
    plan = {**PLAN, "embed": "vocabulary", "head": "vocabulary"}
    programs = agreed(ir, net.state_dict(), (TOKENS,), plan)
    assert programs[0] != programs[1]
    assert collectives(programs[0])[:2] == ["all_reduce", "wait_tensor"]
    assert collectives(programs[0])[-2:] == ["all_gather_into_tensor", "wait_tensor"]
    assert programs[0].metadata["gathered"] == (ir.output_names[0],)


def test_core_programs_are_shared_too(net, ir):
    agreed(decompose(ir), net.state_dict(), (TOKENS,), {**PLAN, "embed": "vocabulary"})


class Experts(nn.Module):
    """A mixture whose experts all see all rows."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(8, 4)
        self.up, self.down = (nn.Parameter(torch.randn(4, *s)) for s in ((8, 12), (12, 8)))

    def forward(self, x):
        parts = torch.softmax(self.gate(x), -1)
        hidden = torch.relu(torch.bmm(x.expand(4, *x.shape), self.up))
        return (torch.bmm(hidden, self.down) * parts.t().unsqueeze(-1)).sum(0)


class PickedExperts(Experts):
    """A mixture that picks the weights of two experts for each row."""

    def forward(self, x):
        parts, picked = torch.topk(torch.softmax(self.gate(x), -1), 2)
        picked, rows = picked.reshape(-1), x.repeat_interleave(2, 0)
        hidden = nn.functional.silu(torch.bmm(rows.unsqueeze(1), self.up[picked]))
        made = torch.bmm(hidden, self.down[picked]).squeeze(1) * parts.reshape(-1, 1)
        return made.view(-1, 2, 8).sum(1)


@pytest.mark.parametrize("kind", [Experts, PickedExperts])
@pytest.mark.parametrize("ranks", [2, 4])
def test_experts_take_one_sum(kind, ranks):
    torch.manual_seed(0)
    mixture, x = kind().eval(), torch.randn(5, 8)
    whole = extract_ir(mixture, (x,))
    programs = agreed(whole, mixture.state_dict(), (x,), {"up": "expert", "down": "expert"}, ranks)
    assert collectives(programs[0]) == ["all_reduce", "wait_tensor"]
    assert {meta.shape[0] for meta in programs[0].weights if len(meta.shape) == 3} == {4 // ranks}


class Cached(nn.Module):
    def __init__(self):
        super().__init__()
        self.key, self.out = nn.Linear(4, 8, bias=False), nn.Linear(8, 4, bias=False)
        self.register_buffer("keys", torch.zeros(1, 3, 8))

    def forward(self, x, position):
        self.keys.index_copy_(1, position, self.key(x))
        return self.out(self.keys)


def test_state_stays_split():
    torch.manual_seed(0)
    model, inputs = Cached().eval(), (torch.randn(1, 1, 4), torch.tensor([1]))
    whole = extract_ir(model, inputs)
    plan = {"key": "column", "out": "row", "keys": 2}
    programs = agreed(whole, model.state_dict(), inputs, plan)
    assert collectives(programs[0]) == ["all_reduce", "wait_tensor"]
    (mutation,) = programs[0].mutations
    assert mutation.value.shape == (1, 3, 4)


class Call(nn.Module):
    """One call of a weight and an argument of its shape."""

    def __init__(self, function):
        super().__init__()
        self.weight, self.function = nn.Parameter(torch.rand(4, 4, 4)), function

    def forward(self, x):
        return self.function(self.weight, x)


PICKED, F = torch.tensor([3, 1]), nn.functional


def put_at(tensor, x):
    tensor[:, PICKED] = x[:, :2]
    return tensor


CALLS = {
    "add": lambda w, x: w + x,
    "broadcast": lambda w, x: w * x[0, 0] - x[:, :1],
    "where": lambda w, x: torch.where(x > 0.5, w, x),
    "whole products": lambda w, x: (w @ x, x @ w, torch.bmm(w, x)),
    "matrix and batch": lambda w, x: (w @ x[0], x[0] @ w),
    "linear": lambda w, x: (F.linear(w, x[0]), F.linear(w, x[0], x[1, 0]), F.linear(x, w[0])),
    "turned": lambda w, x: (w.transpose(0, -1) + x, w.permute(2, 0, 1) * x),
    "unsqueezed": lambda w, x: (w.unsqueeze(1).squeeze(1), w[:, 2]),
    "sliced": lambda w, x: (w[:, 1:3], w[:, 0:9]),
    "viewed": lambda w, x: (w.view(16, 4), w.view(2, 2, 4, -1), w.reshape(4, 4, 2, 2)),
    "flattened": lambda w, x: (w.unflatten(1, (2, 2)), w.flatten(1, 2), w.flatten()),
    "expanded": lambda w, x: w[None].expand(2, 4, -1, 4).contiguous(),
    "joined": lambda w, x: (torch.cat([w, x], 1), torch.stack([x, w], 1)),
    "parts": lambda w, x: (*w.chunk(2, 1), *w.split(3), *w.unbind(2)),
    "picked": lambda w, x: (w[PICKED], w[:, PICKED], w[PICKED, PICKED], w[PICKED - 4] * x[:2]),
    "put": lambda w, x: (w.index_copy(1, PICKED, x[:, :2]), w.slice_scatter(x[:, :2], 1, 1, 3)),
    "put at": lambda w, x: put_at(w.clone(), x),
    "added at": lambda w, x: torch.zeros(4, 4, 4).index_add(0, PICKED, F.silu(w[PICKED]) * x[:2]),
    "selected": lambda w, x: w.index_select(0, PICKED),
    "summed": lambda w, x: (w.sum(), w.sum(1), w.sum((0, -1), keepdim=True), w.mean(2)),
    "greatest": lambda w, x: (w.amax(1), w.argmax(1), w.max(2).values, w.var(0)),
    "normed": lambda w, x: (w.softmax(-1), w.log_softmax(1), F.layer_norm(w, (4,), x[0, 0])),
    "ordered": lambda w, x: (*w.sort(1), *w.topk(2, 0), w.cumsum(2), w.flip(1)),
    "repeated": lambda w, x: w.repeat(1, 2, 1),
    "of the type": lambda w, x: (w.type_as(x[None]), x[0, 0, :2].type_as(w), w.to(x[None, 0])),
    "squeezed": lambda w, x: (w[:, None].squeeze(), w[:, None].squeeze((0, 1, 2, 3))),
    "convolved": lambda w, x: F.conv1d(x, w, padding=1),
    "convolved back": lambda w, x: (
        F.conv_transpose1d(x, w, padding=1),
        F.conv_transpose1d(x, w[:, :1], groups=4),
        F.conv_transpose1d(w, x, x[0, 0]),
    ),
    "pooled": lambda w, x: (
        F.max_pool1d(w, 2),
        F.avg_pool2d(w, 2),
        F.adaptive_avg_pool1d(w, 2),
        F.adaptive_avg_pool2d(w[None], 2),
        F.max_pool2d(w[None], 2),
        F.max_pool3d(w[None, None], 2),
    ),
    "normed by channels": lambda w, x: (
        F.batch_norm(w, x[0, 0], x[0, 1]),
        F.batch_norm(w, x[0, 0], x[0, 1], x[1, 0], x[1, 1]),
        F.batch_norm(x, *w.detach()[0, :2], w[1, 0], w[1, 1]),
    ),
    "added products": lambda w, x: (
        torch.baddbmm(w, x, x),
        torch.baddbmm(x, w, x),
        torch.baddbmm(x, x, w),
        torch.baddbmm(x[0, :1], w, w),
        torch.baddbmm(x, w, x, alpha=2),
        torch.addmm(w[0], x[0], w[1]),
    ),
    "convolved input": lambda w, x: (F.conv1d(w, x, x[0, 0]), F.conv1d(w, x[:, :1], groups=4)),
    "looked up": lambda w, x: F.embedding(PICKED, w[0]) @ x,
    "owned": lambda w, x: (w[PICKED].relu() + 1, w[PICKED].chunk(2, -1)[0] * w[PICKED][..., 2:]),
    "owned otherwise": lambda w, x: w[PICKED] * w[PICKED.flip(0)],
    "owned rows": lambda w, x: (torch.bmm(w[PICKED], x[:2]).view(-1, 4).sum(0), w[PICKED] / 3),
}


@pytest.mark.parametrize("name", CALLS)
def test_every_rule_means_what_the_whole_call_does(name):
    torch.manual_seed(0)
    model, x = Call(CALLS[name]).eval(), torch.rand(4, 4, 4)
    whole = extract_ir(model, (x,))
    for dim, ranks in ((0, 2), (1, 4), (2, 2)):
        agreed(whole, model.state_dict(), (x,), {"weight": dim}, ranks)


class Grouped(nn.Module):
    """Rows in the order of their experts, each group with the weights of one."""

    def __init__(self):
        super().__init__()
        self.up = nn.Parameter(torch.rand(4, 8, 16).bfloat16())
        self.down = nn.Parameter(torch.rand(4, 16, 8).bfloat16())

    def forward(self, x, ends):
        hidden = F.silu(torch._grouped_mm(x, self.up, offs=ends))
        made = torch._grouped_mm(hidden, self.down, offs=ends)
        return (made * x[:, :1]).float().view(-1, 2, 8).sum(1)


INFINITE = {
    "product": lambda w, x: w[PICKED] * x[:2],
    "batch": lambda w, x: torch.bmm(w[PICKED], x[:2]),
    "batch of rows": lambda w, x: torch.bmm(x[:2], w[PICKED]),
    "matrix": lambda w, x: w[PICKED][:, 0] @ x[0],
    "division": lambda w, x: w[PICKED].relu() / (x[:2] - x[:2]),
    "quotient": lambda w, x: w[PICKED] / w[PICKED],
    "number": lambda w, x: w[PICKED] * float("inf"),
    "laid out": lambda w, x: (w[PICKED].view(2, 2, 2, 4) * x[0, 0]).transpose(1, 2).sum(1),
    "again": lambda w, x: w[PICKED][torch.tensor([1, 0, 0])] * x[:3],
    "many": lambda w, x: w[PICKED.view(2, 1)] * x[:2, None],
    "zero": lambda w, x: w[PICKED] / 0,
}


@pytest.mark.parametrize("name", INFINITE)
def test_what_a_rank_does_not_own_is_no_nan(name):
    torch.manual_seed(0)
    model, x = Call(INFINITE[name]).eval(), torch.rand(4, 4, 4) + 1
    x[:, 1:3, 1:3] = float("inf")
    whole = decompose(extract_ir(model, (x,)))
    (wanted,) = torch_ir.denote(whole, model.state_dict(), [x])
    for ranks in (2, 4):
        programs = shard(whole, {"weight": "expert"}, ranks=ranks)
        shards = [
            torch_ir.shard_weights(program, model.state_dict(), rank)
            for rank, program in enumerate(programs)
        ]
        groups = {"tp": [[*range(ranks)]]}
        found = torch_ir.denote_ranks(programs, shards, [[x]] * ranks, groups=groups)
        for (result,) in found:
            np.testing.assert_allclose(result, wanted, rtol=1e-5)


def test_groups_of_experts_are_shared():
    torch.manual_seed(0)
    model, x = Grouped().eval(), torch.rand(8, 8).bfloat16()
    x[1] = float("inf")
    ends = torch.tensor([2, 3, 8, 8], dtype=torch.int32)
    whole = extract_ir(model, (x, ends))
    programs = shard(whole, {"up": "expert", "down": "expert"}, ranks=2)
    assert collectives(programs[0]) == ["all_reduce", "wait_tensor"]
    parts: list[torch.Tensor] = []
    for rank, program in enumerate(programs):  # their sum is taken here: no denotation has it
        own = program.replace(nodes=[n for n in program.nodes if "_c10d" not in n.op_type])
        part = next(n for n in program.nodes if "all_reduce" in n.op_type).inputs[0]
        own = own.replace(graph_outputs=[part], signature=None)
        shards = torch_ir.shard_weights(program, model.state_dict(), rank)
        parts += torch_ir.compile_graph(own, shards).eval((x, ends))
    with torch.no_grad():
        torch.testing.assert_close(sum(parts), model(x, ends))


STEPS = {
    "linear": lambda w, x: F.linear(x, w[0]),
    "product": lambda w, x: torch.bmm(x, w),
    "product of": lambda w, x: torch.bmm(w, x),
    "sum": lambda w, x: x + w,
    "gated": lambda w, x: F.silu(x) * w,
    "normed": lambda w, x: F.layer_norm(x, (4,), w[0, 0]),
    "softmax": lambda w, x: x.softmax(1),
    "turned": lambda w, x: x.transpose(0, 2),
    "again": lambda w, x: x.reshape(2, 8, 4).transpose(1, 2).reshape(4, 4, 4),
    "picked": lambda w, x: w[torch.tensor([1, 3, 0, 0])] * x,
    "convolved": lambda w, x: F.conv1d(x, w, padding=1)[..., :4].mean(2, keepdim=True) + x,
    "parts": lambda w, x: torch.cat([p.tanh() for p in x.chunk(2, 1)], 1),
    "summed": lambda w, x: x.sum(0, keepdim=True) * w,
}


class Chain(nn.Module):
    """Steps in a row, each with a weight of its own."""

    def __init__(self, names):
        super().__init__()
        self.names = names
        self.weights = nn.ParameterList([torch.rand(4, 4, 4) for _ in names])

    def forward(self, x):
        for name, weight in zip(self.names, self.weights, strict=True):
            x = STEPS[name](weight, x)
        return x


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_mean_what_they_did_under_random_plans(seed):
    draw = random.Random(seed)
    torch.manual_seed(seed)
    names = [draw.choice(list(STEPS)) for _ in range(5)]
    model, x = Chain(names).eval(), torch.rand(4, 4, 4)
    whole = extract_ir(model, (x,))
    whole = decompose(whole) if seed % 3 == 2 else whole
    keys = [meta.name for meta in whole.weights]
    for ranks in (2, 4):
        plan = {key: draw.choice([0, 1, 2, "whole"]) for key in keys}
        agreed(whole, model.state_dict(), (x,), plan, ranks)


def test_programs_of_ranks_are_lowered_and_partitioned(net, ir):
    programs = shard(ir, {**PLAN, "embed": "vocabulary"}, ranks=2)
    shards = [
        torch_ir.shard_weights(program, net.state_dict(), rank)
        for rank, program in enumerate(programs)
    ]
    (wanted,) = torch_ir.denote(decompose(ir), net.state_dict(), [TOKENS])
    made = [decompose(program) for program in programs]
    for (result,) in torch_ir.denote_ranks(made, shards, [[TOKENS]] * 2, groups={"tp": [[0, 1]]}):
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)
    assert collectives(torch_ir.to_edge(programs[0]).ir()) == collectives(programs[0])
    parts = torch_ir.Partitioner(ReferenceParts())(made[0])
    assert parts.ir != programs[0]


def test_what_is_wrong_is_found(net, ir):
    (program, _) = shard(ir, PLAN, ranks=2)
    nodes = [
        n.replace(attrs={**n.attrs, "reduce_op": "max"}) if "reduce_op" in n.attrs else n
        for n in program.nodes
    ]
    report = validate_ranks(ir, [program.replace(nodes=nodes)] * 2, net.state_dict(), (TOKENS,))
    assert report.verdict == "disagree"


@pytest.mark.parametrize(
    ("plan", "ranks", "message"),
    [
        ({"layers.0.up": "column"}, 3, "dimension 0 of 'layers.0.up.weight' is 16"),
        ({"layers.9.up": "column"}, 2, "no weight of the program is called or lies in"),
        ({"layers.0.up": "colum"}, 2, "'colum' is no way to share a weight"),
        ({"layers.0.up": "column", "*.up": "row"}, 2, "the plan splits 'layers.0.up."),
        ({"layers.0.up": 2}, 2, "has no dimension 2"),
    ],
)
def test_plans_that_do_not_fit_are_refused(ir, plan, ranks, message):
    with pytest.raises(PassError) as error:
        shard(ir, plan, ranks=ranks)
    assert message in str(error.value)


def test_a_pattern_that_fits_nothing_is_told_what_there_is(ir):
    messages = []
    for pattern in ("layers.0.up.wieght", "zzz"):
        with pytest.raises(PassError) as error:
            shard(ir, {pattern: "column"}, ranks=2)
        messages.append(error.value.remedy)
    near, none = messages
    assert near == "Did you mean layers.0.up.weight or layers.1.up.weight?"
    keys = sorted(key for key, _ in ir.external_values().values())
    assert none == f"Patterns are of weights, or of modules: {str(keys)[:300]}."


def test_a_program_of_a_rank_is_not_shared_again(ir):
    program = shard(ir, PLAN, ranks=2)[0]
    with pytest.raises(PassError, match="is a collective of the group 'tp' already"):
        shard(program, PLAN, ranks=2)


def test_one_image_alone_and_dimensions_from_the_end():
    ir = torch_ir.parse("""ir {
  weight @a.weight: f32[4, 2, 1, 1] as %w
  weight @b.weight: f32[2, 4, 1, 1] as %v
  input %x: f32[2, 3, 3]
  %h: f32[4, 3, 3] = aten.conv2d.default(%x, %w)
  %y: f32[2, 3, 3] = aten.conv2d.default(%h, %v)
  return %y
}""")
    weights = {"a.weight": torch.randn(4, 2, 1, 1), "b.weight": torch.randn(2, 4, 1, 1)}
    programs = shard(ir, {"a": "column", "b": "row"}, ranks=2)
    assert validate_ranks(ir, programs, weights, (torch.randn(2, 3, 3),)).verdict == "agree"
    with pytest.raises(PassError, match="has no dimension -1"):
        shard(ir, {"a": -1}, ranks=2)
