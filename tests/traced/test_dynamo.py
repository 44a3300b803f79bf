"""``torch.compile`` with programs as its backend."""

from __future__ import annotations

import copy
import importlib.metadata
import tomllib
from pathlib import Path

import pytest
import torch
from torch import nn

from torch_ir.errors import InputError
from torch_ir.traced.dynamo import torch_ir
from traced.comparing import same

X = torch.randn(4, 3)


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Dropout(0.5))


def test_torch_finds_the_backend_by_its_name():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    entry = project["project"]["entry-points"]["torch_dynamo_backends"]["torch_ir"]
    assert importlib.metadata.EntryPoint("torch_ir", entry, "").load() is torch_ir


@pytest.mark.parametrize("options", [None, {"executor": "aten"}, {"dialect": "core_aten"}])
def test_a_model_in_training(options):
    net, other = model(), model()
    compiled = torch.compile(net, backend=torch_ir, options=options)
    for seed in range(3):
        torch.manual_seed(seed)
        theirs = other(X)
        torch.manual_seed(seed)
        ours = compiled(X)
        assert same(ours, theirs)
        ours.sum().backward()
        theirs.sum().backward()
    assert same(net[0].weight.grad, other[0].weight.grad)
    assert same(dict(net.state_dict()), dict(other.state_dict()))


@pytest.mark.parametrize("executor", ["reference", ("reference", "aten"), "prims"])
def test_evaluation_on_other_executors(executor):
    net = model().eval()
    compiled = torch.compile(copy.deepcopy(net), backend=torch_ir, options={"executor": executor})
    with torch.no_grad():
        torch.testing.assert_close(compiled(X), net(X))


def test_unknown_options_are_refused():
    graph = torch.fx.symbolic_trace(nn.ReLU())
    with pytest.raises(InputError) as caught:
        torch_ir(graph, [X], options={"executer": "aten"})
    assert str(caught.value) == (
        "the backend 'torch_ir' has no option 'executer'\nDid you mean executor?"
    )
    with pytest.raises(InputError, match="there is no executor 'nvfuser'"):
        torch_ir(graph, [X], options={"executor": "nvfuser"})
    with pytest.raises(InputError, match="has no modes"):
        torch_ir(graph, [X], mode="max-autotune")
