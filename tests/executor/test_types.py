"""Recorded types against what the operators give: a program that lies is told so."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

import torch_ir
from torch_ir import IR, OpNode, TensorMeta
from torch_ir.executor import check_types, execute_ir
from torch_ir.ir import SymbolRange

X = TensorMeta("x", (2, 3), "float32")


def one_node(op_type, shape, dtype="float32", attrs=None, x=X):
    y = TensorMeta("y", shape, dtype, "y")
    return IR([OpNode("y", op_type, [x], [y], attrs or {})], [x], [y], [])


@pytest.mark.parametrize(
    ("ir", "message"),
    [
        (
            one_node("aten.sum.dim_IntList", (2, 3), attrs={"dim": [1]}),
            "[wrong-type] node 'y': %y is not what aten.sum.dim_IntList gives "
            "(expected f32[2], got f32[2, 3])",
        ),
        (
            one_node("aten.argmax.default", (), "float32"),
            "[wrong-type] node 'y': %y is not what aten.argmax.default gives "
            "(expected i64[], got f32[])",
        ),
        (
            one_node("aten.view.default", (5,), attrs={"size": [5]}),
            "[refused-arguments] node 'y': aten.view.default failed: "
            "shape '[5]' is invalid for input of size 6",
        ),
        (
            one_node("aten.nothing.default", (2, 3)),
            "[unbindable-node] node 'y': torch has no operator 'aten.nothing.default'",
        ),
        (
            one_node("aten.relu.default", (2**62, 4), x=X.replace(shape=(2**62, 4))),
            "[impossible-shape] %x: f32[4611686018427387904, 4] is no tensor: "
            "Storage size calculation overflowed with sizes=[4611686018427387904, 4]",
        ),
        (
            one_node("aten.relu.default", (2, 3), x=X.replace(shape=(2**70,))),
            None,
        ),
        (
            one_node("aten.relu.default", ("s0 - 9",), x=X.replace(shape=("s0 - 9",))).replace(
                symbols={"s0": SymbolRange(0, 5)}
            ),
            "[impossible-shape] %x: f32[s0 - 9] is no tensor: Trying to create tensor with "
            "negative dimension -4: [-4] (with s0 = 5)",
        ),
    ],
)
def test_a_type_that_no_operator_gives_is_found(ir, message):
    found = [str(finding) for finding in check_types(ir)]
    if message is None:
        assert [finding.code for finding in check_types(ir)] == ["impossible-shape"]
    else:
        assert found == [message]


def test_a_shape_that_a_stored_program_lies_about_is_found_with_its_source_line(tmp_path):
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).eval()
    ir = torch_ir.extract_ir(model, (torch.ones(1, 3),), model_name="Net")
    document = ir.to_dict()
    (relu,) = [node for node in ir.nodes if node.op_type == "aten.relu.default"]
    for node in document["nodes"]:
        for meta in (*node["inputs"], *node["outputs"]):
            if meta["name"] == relu.name:
                meta["shape"] = [1, 5]
    (tmp_path / "lie.json").write_text(json.dumps(document))
    lying = torch_ir.load_ir(tmp_path / "lie.json")
    assert lying.check() == ()  # the parts fit together; only the operators say otherwise
    first, *_ = check_types(lying)
    assert (first.code, first.node) == ("wrong-type", relu.name)
    assert (first.expected, first.got) == ("f32[1, 4]", "f32[1, 5]")
    assert first.location == relu.location


def test_every_wrong_node_is_found_not_only_the_first():
    x = TensorMeta("x", (2,), "float32")
    a, b = TensorMeta("a", (3,), "float32", "a"), TensorMeta("b", (2,), "int64", "b")
    nodes = [OpNode("a", "aten.relu.default", [x], [a]), OpNode("b", "aten.exp.default", [x], [b])]
    assert [f.node for f in check_types(IR(nodes, [x], [a, b], []))] == ["a", "b"]


def test_a_size_that_depends_on_data_is_believed():
    class Finds(nn.Module):
        def forward(self, x):
            return torch.nonzero(x), torch.unique(x)

    ir = torch_ir.extract_ir(Finds(), (torch.tensor([0.0, 1.0, 2.0]),))
    assert check_types(ir) == ()
    assert execute_ir(ir, (torch.tensor([0.0, 1.0, 2.0]),), {})[0].tolist() == [[1], [2]]
