import json
from dataclasses import dataclass

import pytest
from click.testing import CliRunner

from torch_ir import serde
from torch_ir.cli import main
from torch_ir.ir import IR, Location, OpNode, TensorMeta

MODEL = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 4)
        self.drop = nn.Dropout(0.5)

    def forward(self, x, scale=None):
        y = self.drop(self.fc(x)).relu()
        return y if scale is None else y * scale


def build():
    return Net(), (torch.ones(2, 3),)


def with_keywords():
    return Net(), (torch.ones(2, 3),), {"scale": torch.ones(4)}


def broken():
    raise ValueError("no such checkpoint")


def nothing():
    return None


def leaves():
    raise SystemExit(3)


class Branches(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


number = 3
"""


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty current directory, with the model's source in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net_source.py").write_text(MODEL)
    return tmp_path


@pytest.fixture
def run(place):
    def call(*args, stdin=None):
        result = CliRunner().invoke(main, list(map(str, args)), input=stdin, prog_name="torch-ir")
        return Result(result.exit_code, result.stdout, result.stderr)

    return call


def linear_relu():
    x = TensorMeta("x", (2, 3), "float32")
    weight = TensorMeta("p_fc_weight", (4, 3), "float32")
    y = TensorMeta("linear", (2, 4), "float32", "linear")
    z = TensorMeta("relu", (2, 4), "float32", "relu")
    where = Location("net.py", 7, "y = self.fc(x)", "fc", "torch.nn.Linear")
    nodes = [
        OpNode("linear", "aten.linear.default", [x, weight], [y], location=where),
        OpNode("relu", "aten.relu.default", [y], [z]),
    ]
    return IR(
        nodes,
        [x],
        [z],
        [weight.replace(name="fc.weight")],
        {"p_fc_weight": "fc.weight"},
        model_name="Net",
    )


@pytest.fixture
def ir(place):
    """A small IR, stored as m.json, m.tir and m.ir."""
    ir = linear_relu()
    serde.save(ir, place / "m.json")
    serde.save(ir, place / "m.tir")
    (place / "m.ir").write_text(str(ir))
    return ir


@pytest.fixture
def broken_ir(ir, place):
    """The same with a use of what is not defined, as broken.json."""
    relu = ir.nodes[1].replace(inputs=(TensorMeta("ghost", (2, 4), "float32"),))
    broken = ir.replace(nodes=(ir.nodes[0], relu))
    serde.save(broken, place / "broken.json")
    return broken
