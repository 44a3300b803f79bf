"""The program as one immutable value, and the views of it that are computed once."""

from __future__ import annotations

import copy
import dataclasses
import pickle  # noqa: TID251  # of our own values, to show that they can be pickled

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from strategies import well_formed_irs
from torch_ir import IR, Constant, OpNode, TensorMeta
from torch_ir.errors import InvalidIRError
from torch_ir.ir import FrozenDict, Mutation, SymbolRange

exactly = settings(max_examples=30, derandomize=True, deadline=None)

X = TensorMeta("x", (2, 8), "float32")
WEIGHT = TensorMeta("fc.weight", (4, 8), "float32")
USED = WEIGHT.replace(name="p_fc_weight")
H = TensorMeta("linear", (2, 4), "float32", "linear", 0)
Y = TensorMeta("add", (2, 4), "float32", "add", 0)
LINEAR = OpNode("linear", "aten.linear.default", [X, USED], [H])
ADD = OpNode("add", "aten.add.Tensor", [H, H], [Y])


def small():
    """A program as a user of pytorch-ir writes it: lists and dicts, by position."""
    return IR([LINEAR, ADD], [X], [Y], [WEIGHT], {"p_fc_weight": "fc.weight"}, {}, "Net", "2.13")


def test_a_program_is_made_from_lists_and_dicts_by_position():
    ir = small()
    assert repr(ir) == "IR(model_name='Net', nodes=2, inputs=1, outputs=1, weights=1)"
    for name in ("nodes", "graph_inputs", "graph_outputs", "weights", "mutations"):
        assert isinstance(getattr(ir, name), tuple)
    for name in ("weight_name_mapping", "constants", "symbols", "functions", "metadata"):
        assert isinstance(getattr(ir, name), FrozenDict)
    assert ir.check() == ()
    assert (ir.dialect, ir.signature, ir.pytorch_version) == ("export", None, "2.13")


def test_every_field_is_frozen():
    ir = small()
    for field in dataclasses.fields(ir):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(ir, field.name, None)
    assert ir.replace(model_name="Other") != ir
    assert ir.replace(model_name="Net") == ir


def test_views_by_name():
    ir = small()
    assert ir.by_name == {"linear": LINEAR, "add": ADD}
    assert ir.producers == {"linear": LINEAR, "add": ADD}
    assert ir.users == {"x": (LINEAR,), "p_fc_weight": (LINEAR,), "linear": (ADD,)}
    assert ir.node("add") is ADD
    for view in ("by_name", "producers", "users"):
        assert getattr(ir, view) is getattr(ir, view)  # computed once
    changed = ir.replace(nodes=[LINEAR])
    assert changed.by_name == {"linear": LINEAR}
    assert ir.by_name == {"linear": LINEAR, "add": ADD}


def test_a_missing_node_is_named_with_the_closest():
    with pytest.raises(InvalidIRError) as caught:
        small().node("liner")
    assert str(caught.value) == "there is no node 'liner'\nDid you mean linear?"


def test_external_values_are_named_by_the_mapping_or_by_their_key():
    constant = Constant.from_list([1.0], "float32")
    bias = TensorMeta("bias", (4,), "float32")
    ir = small().replace(weights=[WEIGHT, bias], constants={"table": constant})
    assert ir.external_values() == {
        "p_fc_weight": ("fc.weight", WEIGHT),
        "bias": ("bias", bias),
        "table": ("table", constant),
    }


def test_constants_are_made_from_tensors_and_arrays():
    ir = small().replace(constants={"a": torch.tensor([1, 2]), "b": np.float32([0.5])})
    assert ir.constants["a"] == Constant.from_list([1, 2], "int64")
    assert ir.constants["b"] == Constant.from_list([0.5], "float32")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("constants", {"a": [1]}, "a constant cannot be a list\nGive a tensor, an array, or a"),
        ("metadata", {"a": b"x"}, "an attribute cannot hold b'x' of type bytes\nAttributes are"),
    ],
)
def test_a_field_holds_only_what_formats_can_hold(field, value, message):
    with pytest.raises(InvalidIRError) as caught:
        small().replace(**{field: value})
    assert str(caught.value).startswith(message)


def test_a_range_of_a_symbol_has_both_ends():
    assert [n in SymbolRange(2, 4) for n in (1, 2, 4, 5)] == [False, True, True, False]
    assert 10**9 in SymbolRange(2)
    with pytest.raises(InvalidIRError) as caught:
        SymbolRange(5, 4)
    assert str(caught.value) == "the range 5..4 is empty"


@exactly
@given(well_formed_irs())
def test_a_program_is_a_value(ir):
    again = copy.deepcopy(ir)
    pickled = pickle.loads(pickle.dumps(ir))
    assert again == ir == pickled
    assert hash(again) == hash(ir) == hash(pickled)
    assert ir.replace() == ir
    assert str(again) == str(ir)


@exactly
@given(well_formed_irs())
def test_the_views_agree_with_the_nodes(ir):
    for node in ir.nodes:
        assert ir.by_name[node.name] is node
        for meta in node.inputs:
            assert node in ir.users[meta.name]
        for meta in node.outputs:
            assert ir.producers[meta.name] is node
    taken = {meta.name for node in ir.nodes for meta in node.inputs}
    assert ir.users.keys() == taken
    keys = {meta.name for meta in ir.weights} | ir.constants.keys()
    assert {key for key, _ in ir.external_values().values()} == keys


def test_a_mutation_is_a_value():
    assert Mutation("x", Y) == Mutation("x", Y)
    assert small().replace(mutations=[Mutation("x", Y)]).mutations == (Mutation("x", Y),)
