"""Every bad document ends in one SerializationError that names the file and the place."""

# ruff: noqa: E501, PT017  # a case of a table is one line; faults are looked at where they occur

import copy
import json
import pickle  # noqa: TID251  # to write a file that must not be unpickled

import pytest

from torch_ir.errors import SerializationError
from torch_ir.ir import IR, Constant, OpNode, TensorMeta
from torch_ir.serde import (
    dumps,
    ir_from_dict,
    ir_to_dict,
    loads,
    node_from_dict,
    node_to_dict,
    tensor_from_dict,
    tensor_to_dict,
)


def refusal(document, name="m.json"):
    text = document if isinstance(document, bytes | str) else json.dumps(document)
    with pytest.raises(SerializationError) as caught:
        loads(text, name=name)
    return str(caught.value)


# -- the text ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "m.json: at $: the document is empty"),
        (b" \n", "m.json: at $: the document is empty"),
        (b"junk", "m.json: at $: JSON is malformed: invalid character (byte 0)"),
        (b"[]", "m.json: at $: Expected `object`, got `array`"),
        (b"null", "m.json: at $: Expected `object`, got `null`"),
        (b'"x"', "m.json: at $: Expected `object`, got `str`"),
        (b"{}", "m.json: at $: missing required field `graph_inputs`"),
        (b"{} x", "m.json: at $: JSON is malformed: trailing characters (byte 4)"),
        (b"{} {}", "m.json: at $: JSON is malformed: trailing characters (byte 4)"),
        (b"[1] x", "m.json: at $: JSON is malformed: trailing characters (byte 5)"),
        (b'"a" 1', "m.json: at $: JSON is malformed: trailing characters (byte 5)"),
        (b'{"format_version": 1, "nodes": [NaN]}', "m.json: at $: JSON is malformed: invalid character (byte 32)"),
        (b'{"format_version": 1, "nodes": [1e999]}', "m.json: at $.nodes[0]: a number is out of range"),
        (b'{"nodes": [1e999]}', "m.json: at $.nodes[0]: a number is out of range"),
        (b'{"\xff": 1}', "m.json: at $: the document is not UTF-8"),
        (b'{"a": "\xff"}', "m.json: at $: the document is not UTF-8"),
        (b'{"a": ' + b"1" * 5000 + b"}", "m.json: at $: a number is out of range"),
        (
            pickle.dumps({"nodes": []}),
            "m.json: at $: JSON is malformed: invalid character (byte 0)\n"
            "The data looks like a pickle. Nothing is ever unpickled here.",
        ),
    ],
    ids=repr,
)  # fmt: skip
def test_text_that_is_no_document(text, message):
    assert refusal(text).startswith(message)


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":' * 200_000 + b"1" + b"}" * 200_000,
        b'{"format_version":1,"nodes":' + b"[" * 200_000,
        b'{"format_version":1,"functions":{"f":' * 50_000,
        b'{"format_version":1,"signature":' + b'{"inputs":{"type":"tuple","children":[' * 50_000,
        b'{"a":NaN,"b":' + b"[" * 200_000,
    ],
    ids=["objects", "lists", "functions", "signature", "python"],
)
def test_a_bomb_of_nesting(text):
    assert refusal(text).startswith("m.json: at $")


def test_nesting_is_bounded_on_both_ways(full_ir):
    deep = 0
    for _ in range(100):
        deep = (deep,)
    x = TensorMeta("x", (), "float32")
    with pytest.raises(SerializationError) as caught:
        dumps(IR([OpNode("n", "my.op.default", [x], [], {"a": deep})], [x], [], []))
    message = "the document is nested too deeply (at most 64 levels)"
    assert str(caught.value) == f"the IR: at $.nodes[0].attrs.a: {message}"
    document = ir_to_dict(full_ir)
    document["metadata"]["deep"] = json.loads("[" * 100 + "]" * 100)
    assert refusal(document) == "m.json: at $.metadata.deep" + "[0]" * 64 + f": {message}"


def test_every_truncation_is_refused(full_ir):
    data = dumps(full_ir).rstrip()
    for size in range(len(data)):
        refusal(data[:size])


def test_the_text_of_an_archive_is_recognized():
    assert refusal(b"PK\x03\x04").endswith(
        "The data looks like an archive; give its path to load."
    )


# -- the place -----------------------------------------------------------------------------------


def at(document, *steps):
    for step in steps:
        document = document[step]
    return document


@pytest.mark.parametrize(
    ("steps", "key", "value", "message"),
    [
        (("nodes", 0, "inputs", 0, "shape"), 1, -1, "$.nodes[0].inputs[0].shape[1]: a dimension cannot be negative, got -1"),
        (("nodes", 0, "inputs", 0, "shape"), 1, 2.5, "$.nodes[0].inputs[0].shape[1]: Expected `int | str`, got `float`"),
        (("nodes", 0, "inputs", 0, "shape"), 1, True, "$.nodes[0].inputs[0].shape[1]: Expected `int | str`, got `bool`"),
        (("graph_inputs", 0, "shape"), 0, "s0 +", "$.graph_inputs[0].shape[0]: 's0 +' is not an expression"),
        (("graph_inputs", 0, "shape"), 0, "__import__('os')", "$.graph_inputs[0].shape[0]: '__import__' is not a function of expressions"),
        (("graph_inputs", 0), "shape", [1] * 129, "$.graph_inputs[0].shape: Expected `array` of length <= 128"),
        (("weights", 0), "dtype", "float31", "$.weights[0].dtype: 'float31' is not an element type\nDid you mean float32 or float16?"),
        (("nodes", 0), "op_type", 7, "$.nodes[0].op_type: Expected `str`, got `int`"),
        (("nodes", 0), "attrs", None, "$.nodes[0].attrs: Expected `object`, got `null`"),
        (("nodes", 0), "atrs", {}, "$.nodes[0]: contains unknown field `atrs`\nDid you mean attrs or operators?"),
        (("nodes", 0, "attrs"), "k", [1, {"$expr": "1 +"}], "$.nodes[0].attrs.k[1].$expr: '1 +' is not an expression"),
        (("nodes", 0, "attrs"), "k", {"$dtyp": "float32"}, "$.nodes[0].attrs.k: '$dtyp' is not a tag of an attribute\nDid you mean $dtype?"),
        (("nodes", 0, "attrs"), "k", {}, "$.nodes[0].attrs.k: an attribute cannot be an object with the keys []\nAn object in"),
        (("nodes", 0, "attrs"), "k", {"$int": "1_0"}, "$.nodes[0].attrs.k.$int: '1_0' is not an integer of at most 4096 digits"),
        (("nodes", 0, "attrs"), "k", {"$int": 3}, "$.nodes[0].attrs.k.$int: expected a string, got int"),
        (("nodes", 0, "attrs"), "k", {"$float": "1.0"}, "$.nodes[0].attrs.k.$float: '1.0' is not nan, inf or -inf"),
        (("nodes", 0, "attrs"), "k", {"$complex": [1, 2]}, "$.nodes[0].attrs.k.$complex: expected the real and the imaginary part as two floats"),
        (("nodes", 0, "operands"), "a b", [0, "x"], '$.nodes[0].operands["a b"][1]: Expected `int | null`, got `str`'),
        (("weight_name_mapping",), 'a"b', 3, '$.weight_name_mapping["a\\"b"]: Expected `str`, got `int`'),
        (("constants", "large"), "base64", "!", "$.constants.large.base64: Invalid base64 encoded string"),
        (("constants", "large"), "shape", [10**9], "$.constants.large: a constant bf16[1000000000] has 2000000000 bytes, got 6"),
        (("constants", "large"), "shape", [2**62] * 128, "$.constants.large: a constant bf16["),
        (("constants", "large"), "shape", [1, 10**4000], "$.constants.large.shape[1]: Expected `int` <= 9223372036854775807"),
        (("constants", "large"), "shape", [-1], "$.constants.large.shape[0]: Expected `int` >= 0"),
        (("graph_inputs", 0), "shape", [10**4000, -1], "$.graph_inputs[0].shape[1]: a dimension cannot be negative, got -1"),
        (("constants", "small"), "data", [[1], [2, 3]], "$.constants.small.data: expected a list of 1 to fill the shape"),
        (("constants", "small"), "data", [[1, "2"]], "$.constants.small.data[0][1]: expected a number, got str"),
        (("constants", "small"), "data", [[1, 2.5]], "$.constants.small.data: the values are not all int64: required argument is not an integer"),
        (("constants", "small"), "data", [[1, 2**63]], "$.constants.small.data: the values are not all int64: "),
        (("constants", "small"), "base64", "AAAA", "$.constants.small: a constant needs exactly one of data, base64, fill, tensor and view"),
        (("constants",), "c", {"dtype": "int8", "shape": [1], "tensor": "c"}, "$.constants.c: a constant can be given by reference in an archive only"),
        (("symbols",), "s0", {"lower": 9, "upper": 2}, "$.symbols.s0: the range 9..2 is empty"),
        (("mutations", 0, "value"), "dtype", "x", "$.mutations[0].value.dtype: 'x' is not an element type"),
        (("signature",), "outputs", {"type": "tuple"}, "$.signature.outputs: expected a tensor's name, a value, or a container with type and children"),
        (("signature",), "outputs", {"value": 1, "type": "tuple"}, "$.signature.outputs: a leaf with a value cannot be a container too"),
        (("signature",), "outputs", {"type": "dict", "children": ["y"]}, "$.signature.outputs: a dict of 1 children has 0 keys"),
        (("functions", "f", "graph_inputs", 0), "shape", [-2], "$.functions.f.graph_inputs[0].shape[0]: a dimension cannot be negative, got -2"),
        (("functions", "f", "graph_inputs", 0), "shape", 3, "$.functions.f.graph_inputs[0].shape: Expected `array`, got `int`"),
        ((), "format_version", 3, "$.format_version: format version 3 is newer than this torch-ir, which reads 2\nUpgrade torch-ir"),
        ((), "format_version", -1, "$.format_version: expected a version number, got -1"),
        ((), "format_version", "1", "$.format_version: Expected `int`, got `str`"),
        ((), "node", [], "$: contains unknown field `node`\nDid you mean nodes or code?"),
    ],
    ids=str,
)  # fmt: skip
def test_the_message_names_the_place(full_ir, steps, key, value, message):
    document = ir_to_dict(full_ir)
    at(document, *steps)[key] = value
    assert refusal(document).startswith(f"m.json: at {message}")
    with pytest.raises(SerializationError) as caught:
        ir_from_dict(document)
    if key != "format_version":
        assert str(caught.value).startswith(f"<dict>: at {message}")


def places(value, steps=()):
    yield steps
    if isinstance(value, dict | list):
        for step, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(item, (*steps, step))


def test_any_field_of_another_type_is_refused_or_gives_an_ir(full_ir):
    document = json.loads(dumps(full_ir))
    others = (None, True, -1, 2**70, 0.5, "", "x", [], [None], ["x"], {}, {"x": 1}, {"$expr": "1"})
    for steps in places(document):
        for other in others:
            changed = copy.deepcopy(document)
            if steps:
                at(changed, *steps[:-1])[steps[-1]] = other
            else:
                changed = other
            try:
                again = loads(json.dumps(changed))
            except SerializationError as error:
                assert "<string>: at $" in str(error)
            else:
                assert loads(dumps(again)) == again
                again.check()


def test_any_field_that_is_missing_is_refused_or_gives_an_ir(full_ir):
    document = json.loads(dumps(full_ir))
    for steps in places(document):
        if steps:
            changed = copy.deepcopy(document)
            del at(changed, *steps[:-1])[steps[-1]]
            try:
                assert isinstance(loads(json.dumps(changed)), IR)
            except SerializationError as error:
                assert "<string>: at $" in str(error)


# -- parts, and dicts ----------------------------------------------------------------------------


def test_a_tensor_has_the_seeds_keys():
    meta = TensorMeta("y", (2, "2*s0"), "float32", "relu")
    document = tensor_to_dict(meta)
    assert document == {
        "name": "y",
        "shape": [2, "2*s0"],
        "dtype": "float32",
        "producer_node": "relu",
        "producer_output_idx": 0,
    }
    assert tensor_from_dict(document) == meta
    assert tensor_to_dict(TensorMeta("x", (), "bool")) == {
        "name": "x",
        "shape": [],
        "dtype": "bool",
    }


def test_a_node_needs_no_attrs_and_no_operands():
    x = tensor_to_dict(TensorMeta("x", (2,), "float32"))
    node = node_from_dict(
        {"name": "y", "op_type": "aten.relu.default", "inputs": [x], "outputs": []}
    )
    assert node.operands == {"self": 0}
    assert node_to_dict(node)["attrs"] == {}


@pytest.mark.parametrize("convert", [ir_from_dict, node_from_dict, tensor_from_dict])
@pytest.mark.parametrize("value", [None, [], "x", 3, {}, {1: 2}, {"name": 1}])
def test_dicts_that_are_no_documents(convert, value):
    with pytest.raises(SerializationError, match=r"^<dict>: at \$"):
        convert(value)


def test_a_dict_may_hold_what_json_cannot(full_ir):
    document = ir_to_dict(full_ir)
    document["nodes"][0]["attrs"].update(z=float("inf"), t=(1, 2))
    attrs = ir_from_dict(document).nodes[0].attrs
    assert attrs["z"] == float("inf")
    assert attrs["t"] == (1, 2)


# -- saving --------------------------------------------------------------------------------------


def test_what_a_file_cannot_hold_is_named(full_ir):
    ir = full_ir
    for changed, place in (
        (ir.replace(model_name="\ud800"), "$.model_name"),
        (ir.replace(metadata={"k": ("a", "\ud800")}), "$.metadata.k[1]"),
        (ir.replace(weight_aliases={"\ud800": "x"}), "$.weight_aliases[\"'\\ud800'\"]"),
    ):
        with pytest.raises(SerializationError) as caught:
            dumps(changed)
        message = (
            "the value cannot be written as JSON: 'utf-8' codec can't encode character '\\ud800'"
        )
        assert str(caught.value).startswith(f"the IR: at {place}: {message}")


def test_a_constant_without_values_cannot_be_saved():
    hollow = Constant("float32", (2,), None, "0" * 64)
    with pytest.raises(SerializationError) as caught:
        dumps(IR([], [], [], [], constants={"fc.bias": hollow}))
    assert str(caught.value) == (
        'the IR: at $.constants["fc.bias"]: the values of this constant Constant(f32[2]) are not in '
        "the text that it was parsed from\nGive them to parse(text, constants=...) before saving."
    )


def test_integers_have_a_bound():
    x = TensorMeta("x", (), "float32")
    for value, message in ((10**4200, "an integer of 13953 bits is too large for a file"),):
        with pytest.raises(SerializationError) as caught:
            dumps(IR([OpNode("n", "my.op.default", [x], [], {"a": value})], [x], [], []))
        assert str(caught.value) == f"the IR: at $.nodes[0].attrs.a: {message}"
