"""Documents without a version: the seed's keys alone, and what other writers make of them."""

# ruff: noqa: E501  # a case of a table is one line

import json
import tracemalloc

import pytest

from torch_ir.errors import SerializationError
from torch_ir.ir import IR, TensorMeta
from torch_ir.serde import loads


def tensor(name, shape=(2,), dtype="float32", **fields):
    return {"name": name, "shape": list(shape), "dtype": dtype, **fields}


def made(name, node, index=0):
    return tensor(name, producer_node=node, producer_output_idx=index)


def node(name, op_type, inputs, outputs, **attrs):
    return {"name": name, "op_type": op_type, "inputs": inputs, "outputs": outputs, "attrs": attrs}


def document(nodes, graph_outputs=(), **fields):
    return {
        "model_name": "M",
        "pytorch_version": "2.13.0",
        "graph_inputs": [tensor("x")],
        "graph_outputs": list(graph_outputs),
        "weights": [],
        "weight_name_mapping": {},
        "nodes": nodes,
        **fields,
    }


def loaded(*arguments, **fields):
    return loads(json.dumps(document(*arguments, **fields)))


GETITEM = "<built-in function getitem>"
HALVES = [made("split_0", "split", 0), made("split_1", "split", 1)]
SPLIT = node("split", "aten.split.Tensor", [made("x", "x")], [tensor("split_0"), tensor("split_1")], split_size=1)  # fmt: skip


def test_taking_a_result_is_folded_into_its_users():
    ir = loaded(
        [
            SPLIT,
            node("getitem", GETITEM, HALVES, [tensor("getitem")], index=1),
            node("relu", "aten.relu.default", [made("getitem", "getitem")], [tensor("relu")]),
        ],
        [tensor("relu"), tensor("getitem"), tensor("x")],
    )
    assert [n.name for n in ir.nodes] == ["split", "relu"]
    assert [o.name for o in ir.nodes[0].outputs] == ["split.0", "split.1"]
    second = TensorMeta("split.1", (2,), "float32", "split", 1)
    relu = TensorMeta("relu", (2,), "float32", "relu")
    assert ir.nodes[1].inputs == (second,)
    assert ir.graph_outputs == (relu, second, TensorMeta("x", (2,), "float32"))
    assert ir.check() == ()


def test_a_result_keeps_its_position_where_others_are_absent():
    backward = node("back", "aten.native_layer_norm_backward.default", [], [tensor("back_1")])
    taken = node("getitem", GETITEM, [made("back_1", "back", 0)], [tensor("getitem")], index=1)
    ir = loaded([backward, taken], [tensor("getitem")])
    assert ir.graph_outputs == (TensorMeta("back.1", (2,), "float32", "back", 1),)


def test_a_getitem_that_says_nothing_stays():
    ir = loaded([SPLIT, node("getitem", GETITEM, HALVES, [tensor("getitem")])])
    assert [n.op_type for n in ir.nodes] == ["aten.split.Tensor", GETITEM]


@pytest.mark.parametrize(
    ("op_type", "count", "attrs", "operands"),
    [
        ("aten.cat.default", 3, {"_tensor_list_sizes": [3]}, {"tensors": (0, 1, 2)}),
        ("aten.index.Tensor", 2, {"_tensor_list_sizes": [1]}, {"self": 0, "indices": (1,)}),
        (
            "aten.index.Tensor",
            2,
            {"_tensor_list_sizes": [1], "_tensor_list_none_masks": [[True, False]]},
            {"self": 0, "indices": (None, 1)},
        ),
        (
            "aten.index_put.default",
            3,
            {"_tensor_list_sizes": [1]},
            {"self": 0, "indices": (1,), "values": 2},
        ),
        (
            "aten.lstm.input",
            7,
            {"_tensor_list_sizes": [2, 4]},
            {"input": 0, "hx": (1, 2), "params": (3, 4, 5, 6)},
        ),
        ("aten.add.Tensor", 1, {"other": 2.0}, {"self": 0}),
        ("aten.linear.default", 3, {}, {"input": 0, "weight": 1, "bias": 2}),
        ("aten.cat.default", 3, {"_tensor_list_sizes": [9]}, {"tensors": (0, 1, 2)}),
        ("aten.cat.default", 2, {"_tensor_list_sizes": "x"}, {"tensors": (0, 1)}),
        ("aten.relu.default", 2, {}, None),
        ("my.op.default", 2, {"_tensor_list_sizes": [2]}, None),
    ],
)
def test_arguments_are_bound_in_the_schemas_order(op_type, count, attrs, operands):
    ir = loaded([node("n", op_type, [made("x", "x")] * count, [tensor("n")], **attrs)])
    assert ir.nodes[0].operands == operands
    assert not any(name.startswith("_tensor") for name in ir.nodes[0].attrs)


def test_constants_are_no_weights():
    ir = loaded(
        [],
        weights=[tensor("w"), tensor("idx", dtype="int64"), tensor("none", (0, 3))],
        constants={
            "idx": {"data": [1, 2], "dtype": "int64"},
            "none": {"data": [], "dtype": "float32"},
            "half": {"data": [0.5, -1], "dtype": "bfloat16"},
        },
    )
    assert [weight.name for weight in ir.weights] == ["w"]
    assert ir.constants["idx"].tolist() == [1, 2]
    assert ir.constants["none"].shape == (0, 3)
    assert ir.constants["half"].tobytes() == b"\x00\x3f\x80\xbf"


def test_the_numbers_of_pythons_json_are_read():
    nodes = [
        node("n", "my.op.default", [], [], low=float("-inf"), nan=float("nan"), s="NaN"),
    ]
    ir = loaded(nodes, constants={"mask": {"data": [float("-inf"), 0.0], "dtype": "float32"}})
    assert ir.nodes[0].attrs == {"low": float("-inf"), "nan": float("nan"), "s": "NaN"}
    assert ir.constants["mask"].tolist() == [float("-inf"), 0.0]


def test_keys_of_other_writers_are_ignored():
    ir = loaded([], extra=1, graph_outputs=[tensor("x", color="red")])
    assert ir == IR([], [TensorMeta("x", (2,), "float32")], [TensorMeta("x", (2,), "float32")], [], model_name="M", pytorch_version="2.13.0")  # fmt: skip


def test_the_least_that_is_a_document():
    text = '{"graph_inputs": [], "graph_outputs": [], "weights": [], "nodes": []}'
    assert loads(text) == IR([], [], [], [])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"nodes": None}, "$.nodes: Expected `array`, got `null`"),
        ({"nodes": [{"name": "a", "op_type": "b", "inputs": [], "outputs": [], "attrs": None}]}, "$.nodes[0].attrs: Expected `object`, got `null`"),
        ({"constants": [1]}, "$.constants: Expected `object`, got `array`"),
        ({"constants": {"a.b": {"data": [[1], [1, 2]]}}}, '$.constants["a.b"].data[1]: expected a list of 1 to fill the shape'),
        ({"constants": {"a": {"data": [1], "dtype": "f"}}}, "$.constants.a: 'f' is not an element type"),
        ({"constants": {"a": {"dtype": "int8"}}}, "$.constants.a: missing required field `data`"),
        ({"graph_outputs": [tensor("x", (2, -1))]}, "$.graph_outputs[0].shape[1]: a dimension cannot be negative, got -1"),
        ({"nodes": [SPLIT, node("g", GETITEM, HALVES, [tensor("g")], index=0), node("r", "r", [tensor("x", (), "flot32")], [])]}, "$.nodes[2].inputs[0].dtype: 'flot32' is not an element type"),
        ({"nodes": [node("n", "my.op.default", [], [], a={"b": 1})]}, "$.nodes[0].attrs.a: 'b' is not a tag of an attribute"),
    ],
    ids=str,
)  # fmt: skip
def test_bad_ones_are_refused_at_their_place(fields, message):
    with pytest.raises(SerializationError) as caught:
        loads(json.dumps({**document([]), **fields}))
    assert str(caught.value).startswith(f"<string>: at {message}")


@pytest.mark.parametrize("sizes", [[10**8], [2**31], [1, 2**63 - 1]])
def test_a_count_is_compared_with_the_inputs_before_anything_is_made(sizes):
    cat = node("cat", "aten.cat.default", [tensor("x")], [tensor("cat")], _tensor_list_sizes=sizes)
    tracemalloc.start()
    try:
        assert loaded([cat], [made("cat", "cat")]).nodes[0].operands == {"tensors": (0,)}
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 10**7
