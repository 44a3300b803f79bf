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
            "[unknown-operator] node 'y': torch has no operator 'aten.nothing.default'. "
            "Did you mean aten.softshrink.default or aten.tan.default?",
        ),
        (
            one_node("aten.relu.default", (2**62, 4), x=X.replace(shape=(2**62, 4))),
            "[impossible-shape] %x: f32[4611686018427387904, 4] is no tensor: "
            "its shape is [4611686018427387904, 4]",
        ),
        (
            one_node("aten.relu.default", (2, 3), x=X.replace(shape=(2**70,))),
            None,
        ),
        (
            one_node("aten.relu.default", ("s0 - 9",), x=X.replace(shape=("s0 - 9",))).replace(
                symbols={"s0": SymbolRange(0, 5)}
            ),
            "[impossible-shape] %x: f32[s0 - 9] is no tensor: its shape is [-4] (with s0 = 5)",
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
    assert (first.expected, first.found) == ("f32[1, 4]", "f32[1, 5]")
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


class Sizes(nn.Module):
    """Results of a size, of twice the size, and of a size that is none."""

    def forward(self, x, y):
        return x.new_ones(7) + 1, torch.cat([x, x]), y.reshape(-1, 2) * 2, y.sum(0)


def dynamic(lies):
    """The program with the shapes of some values replaced."""
    size = torch.export.Dim("size", min=3, max=64)
    even = torch.export.Dim("even", min=2)
    args = (torch.ones(7), torch.ones(6, 2))
    shapes = ({0: size}, {0: even})
    ir = torch_ir.extract_ir(Sizes().eval(), args, dynamic_shapes=shapes)
    assert check_types(ir) == ()
    document = ir.to_dict()
    for node in document["nodes"]:
        for meta in (*node["inputs"], *node["outputs"]):
            meta["shape"] = lies.get(meta["name"], meta["shape"])
    lying = IR.from_dict(document)
    assert lying != ir
    return [str(finding).splitlines()[0] for finding in check_types(lying)]


@pytest.mark.parametrize(
    ("lies", "said"),
    [
        (
            {"cat": [14]},
            "[wrong-type] node 'cat': %cat is not what aten.cat.default gives (with s0 = 11) "
            "(expected f32[22], got f32[14])",
        ),
        (
            {"new_ones": ["s0"], "add": ["s0"]},
            "[wrong-type] node 'new_ones': %new_ones is not what aten.new_ones.default gives "
            "(with s0 = 11) (expected f32[7], got f32[s0])",
        ),
        (
            {"reshape": ["s0", 2], "mul": ["s0", 2]},
            "[wrong-type] node 'reshape': %reshape is not what aten.reshape.default gives "
            "(with s0 = 11, s1 = 13) (expected f32[13, 2], got f32[s0, 2])",
        ),
        (
            {"cat": ["3*s0"]},
            "[wrong-type] node 'cat': %cat is not what aten.cat.default gives (with s0 = 7) "
            "(expected f32[14], got f32[3*s0])",
        ),
    ],
    ids=["a literal for a size", "a size for a literal", "one size for another", "three for two"],
)
def test_a_lie_about_a_size_is_found_also_where_it_holds_for_one_size(lies, said):
    first, *_ = dynamic(lies)
    assert first == said


def test_sizes_are_tried_that_the_guards_and_assertions_allow():
    class Half(nn.Module):
        def forward(self, x, n):
            count = n.item()
            torch._check(count > 0)
            torch._check(count < x.shape[0])
            return x.reshape(2, -1).sum(0), x[:count], x[count:]

    args = (torch.ones(8), torch.tensor(3))
    shapes = ({0: torch.export.Dim.DYNAMIC}, None)
    ir = torch_ir.extract_ir(Half().eval(), args, dynamic_shapes=shapes)
    assert check_types(ir) == ()


def test_a_program_of_many_symbols_is_checked():
    class Listing(nn.Module):
        def forward(self, x):
            return x.tolist()

    ir = torch_ir.extract_ir(Listing().eval(), (torch.arange(300),))
    assert len(ir.symbols) == 300
    assert check_types(ir) == ()
