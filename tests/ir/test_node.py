"""Operator calls: made as a backend engineer writes them, bound by the schema, immutable."""

from __future__ import annotations

import copy
import dataclasses
import pickle  # noqa: TID251  # of our own values, to show that they can be pickled

import pytest
import torch

from torch_ir import OpNode, TensorMeta
from torch_ir.errors import InvalidIRError
from torch_ir.ir import DType, Location

X = TensorMeta("x", (2, 3), "float32")
W = TensorMeta("w", (3, 3), "float32")
Y = TensorMeta("y", (2, 3), "float32", "y")


def test_a_node_is_made_from_lists_dicts_and_positional_arguments():
    node = OpNode(
        "conv2d",
        "aten.conv2d.default",
        [TensorMeta("x", (1, 3, 8, 8), "float32"), TensorMeta("w", (4, 3, 3, 3), "float32")],
        [TensorMeta("conv2d", (1, 4, 6, 6), "float32", "conv2d", 0)],
        {"stride": [1, 1], "padding": [0, 0]},
    )
    assert isinstance(node.inputs, tuple)
    assert isinstance(node.outputs, tuple)
    assert node.attrs == {"stride": (1, 1), "padding": (0, 0)}
    assert node.operands == {"input": 0, "weight": 1}
    assert node.location is None
    assert OpNode("n", "aten.relu.default", [X], [Y]).attrs == {}


def test_every_field_is_frozen():
    node = OpNode("y", "aten.relu.default", [X], [Y])
    for field in dataclasses.fields(node):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(node, field.name, None)
    changed = node.replace(op_type="aten.sigmoid.default")
    assert (node.op_type, changed.op_type) == ("aten.relu.default", "aten.sigmoid.default")


@pytest.mark.parametrize(
    ("op_type", "count", "attrs", "operands"),
    [
        ("aten.add.Tensor", 2, {"alpha": 2}, {"self": 0, "other": 1}),
        ("aten.cat.default", 3, {"dim": 0}, {"tensors": (0, 1, 2)}),
        ("aten.relu.default", 2, {}, None),
        ("aten.no_such_operator.default", 1, {}, None),
        ("mylib.op.default", 2, {}, None),
    ],
)
def test_inputs_are_bound_in_the_order_of_the_schema(op_type, count, attrs, operands):
    assert OpNode("n", op_type, [X] * count, [Y], attrs).operands == operands


def test_operands_that_are_given_are_kept():
    node = OpNode("n", "aten.sub.Tensor", [X, W], [Y], {}, {"self": 1, "other": 0})
    assert (node.argument("self"), node.argument("other")) == (W, X)
    assert node.inputs == (W, X)  # in the order of the schema
    listed = OpNode("n", "aten.index.Tensor", [X, W], [Y], {}, {"self": 0, "indices": [None, 1]})
    assert listed.operands == {"self": 0, "indices": (None, 1)}


@pytest.mark.parametrize(
    ("operands", "message"),
    [
        ({"self": "0"}, "operand 'self' of node 'n' must be an input's index or None, got '0'"),
        ({"self": True}, "operand 'self' of node 'n' must be an input's index or None, got True"),
        ({"t": [0, 1.0]}, "operand 't' of node 'n' must be an input's index or None, got 1.0"),
    ],
)
def test_an_operand_is_an_index(operands, message):
    with pytest.raises(InvalidIRError) as caught:
        OpNode("n", "aten.relu.default", [X], [Y], {}, operands)
    assert str(caught.value) == message


def test_an_attribute_that_cannot_be_stored_is_named():
    with pytest.raises(InvalidIRError) as caught:
        OpNode("n", "aten.add.Tensor", [X, X], [Y], {"alpha": torch.ones(1)})
    assert str(caught.value) == (
        "attribute 'alpha' of node 'n': an attribute cannot hold a torch.Tensor\n"
        "Tensors are operands; sizes are expressions."
    )


def test_equality_is_by_value_and_exact():
    def make(value):
        return OpNode("n", "aten.add.Tensor", [X, X], [Y], {"alpha": value})

    assert make(1) == make(1)
    assert hash(make(float("nan"))) == hash(make(float("nan")))
    assert make(float("nan")) == make(float("nan"))
    for other in (1.0, True, "1"):
        assert make(1) != make(other)
    node = OpNode("n", "aten.to.dtype", [X], [Y], {"dtype": torch.float16}, None, Location("a.py"))
    assert node.attrs["dtype"] == DType("float16")
    assert copy.deepcopy(node) == node
    assert pickle.loads(pickle.dumps(node)) == node


@pytest.mark.parametrize(
    ("location", "text"),
    [
        (Location(), ""),
        (Location("net.py", 12), "net.py:12"),
        (Location("net.py", 12, "return x"), "net.py:12: return x"),
        (Location(module="fc", module_type="torch.nn.Linear"), "fc (Linear)"),
        (Location("net.py", 1, "x", "", "Net"), "net.py:1 in (Net): x"),
    ],
)
def test_a_location_reads_as_a_sentence(location, text):
    assert str(location) == text
