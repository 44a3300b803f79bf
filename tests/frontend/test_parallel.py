"""Tensor parallel programs, against the whole one: over a list of ranks, in one process."""

from functools import cache

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

import torch_ir
from torch_ir import ExportError, WeightLoadError, denote_ranks, extract_parallel, shard_weights


class Layer(nn.Module):
    """Attention and an MLP, with the heads of one rank counted from what it has."""

    def __init__(self, width=8, heads=4):
        super().__init__()
        self.head = width // heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        q, k, v = (
            f(x).unflatten(-1, (-1, self.head)).transpose(1, 2)
            for f in (self.query, self.key, self.value)
        )
        weights = torch.softmax(q @ k.transpose(-1, -2), -1)
        x = x + self.out((weights @ v).transpose(1, 2).flatten(-2))
        return x + self.down(torch.relu(self.up(x)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(12, 8)
        self.layers = nn.ModuleList([Layer(), Layer()])

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return x


PLAN = {
    "layers.*.query": ColwiseParallel(),
    "layers.*.key": ColwiseParallel(),
    "layers.*.value": ColwiseParallel(),
    "layers.*.out": RowwiseParallel(),
    "layers.*.up": ColwiseParallel(),
    "layers.*.down": RowwiseParallel(),
}
TOKENS = torch.tensor([[1, 5, 11, 0], [3, 6, 7, 2]])


@cache
def model():
    torch.manual_seed(0)
    return Model().eval()


@cache
def extracted(ranks):
    return extract_parallel(model(), (TOKENS,), PLAN, ranks=ranks)


def meant(programs, weights):
    ranks = len(programs)
    payloads = [shard_weights(ir, weights, rank) for rank, ir in enumerate(programs)]
    distinct = {id(ir): ir for ir in programs}
    cores = {key: torch_ir.decompose(ir) for key, ir in distinct.items()}
    lowered = [cores[id(ir)] for ir in programs]
    groups = {"tp": [list(range(ranks))]}
    return denote_ranks(lowered, payloads, [[TOKENS]] * ranks, groups=groups)


@pytest.mark.parametrize("ranks", [2, 4])
def test_shards_mean_what_the_whole_does(ranks):
    net = model()
    ir = extracted(ranks)
    assert torch_ir.parse(str(ir)) == ir
    assert {n.attrs["group_name"] for n in ir.nodes if "group_name" in n.attrs} == {"tp"}
    assert [n.op_type.split(".")[1] for n in ir.nodes if "_c10d" in n.op_type].count(
        "all_reduce"
    ) == 4
    assert ir.metadata["shards"]["layers.1.down.weight"] == {"dim": 1, "parts": ranks}
    with torch.no_grad():
        whole = net(TOKENS)
    for (result,) in meant([ir] * ranks, net.state_dict()):
        np.testing.assert_allclose(result, whole.numpy(), rtol=1e-5, atol=1e-6)


def test_a_vocabulary_gives_each_rank_a_program_of_its_own():
    net = model()
    plan = {**PLAN, "embed": RowwiseParallel(input_layouts=Replicate())}
    programs = [extract_parallel(net, (TOKENS,), plan, ranks=2, rank=rank) for rank in range(2)]
    assert programs[0] != programs[1]
    with torch.no_grad():
        whole = net(TOKENS)
    for (result,) in meant(programs, net.state_dict()):
        np.testing.assert_allclose(result, whole.numpy(), rtol=1e-5, atol=1e-6)


def test_the_model_is_left_alone_and_uneven_parts_are_refused():
    net = model()
    before = {name: id(tensor) for name, tensor in net.named_parameters()}
    with pytest.raises(ExportError) as error:
        extract_parallel(net, (TOKENS,), {"layers.0.up": ColwiseParallel()}, ranks=3)
    assert str(error.value) == (
        "dimension 0 of 'layers.0.up.weight' is 16, which 3 ranks cannot share"
    )
    assert {name: id(tensor) for name, tensor in net.named_parameters()} == before
    assert not torch.distributed.is_initialized()
    ir = extracted(2)
    with pytest.raises(WeightLoadError, match=r"rank 2 has no part of 'layers\.0\.query\.weight'"):
        shard_weights(ir, net.state_dict(), 2)
