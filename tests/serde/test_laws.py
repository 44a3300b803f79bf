"""What holds for every IR: loading gives back what was saved, and equal IRs have equal bytes."""

import json

import jsonschema
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strategies import arbitrary_irs, attributes, constants, well_formed_irs
from torch_ir.errors import SerializationError
from torch_ir.ir import IR, Constant, FrozenDict, OpNode, SymbolRange, TensorMeta
from torch_ir.serde import (
    dumps,
    ir_from_dict,
    ir_to_dict,
    load,
    loads,
    node_from_dict,
    node_to_dict,
    read_archive_weights,
    save,
)

quick = settings(
    max_examples=60,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def is_storable(value: object) -> bool:
    """Whether every string in a document is UTF-8: no lone surrogates."""
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        return False
    return True


@quick
@given(st.one_of(well_formed_irs(), arbitrary_irs()))
def test_documents_and_files_give_back_the_ir(tmp_path_factory, ir):
    assert ir_from_dict(ir_to_dict(ir)) == ir
    if not is_storable(ir_to_dict(ir)):
        with pytest.raises(SerializationError, match="surrogates not allowed"):
            dumps(ir)
        return
    data = dumps(ir)
    assert loads(data) == ir
    assert json.loads(data) == ir_to_dict(ir) == ir_to_dict(loads(data))
    for name in ("ir.json", "ir.tir"):
        path = tmp_path_factory.getbasetemp() / name
        save(ir, path)
        assert load(path) == ir


@settings(quick, max_examples=20)
@given(arbitrary_irs())
def test_the_order_of_mappings_changes_no_byte(tmp_path_factory, ir):
    if not is_storable(ir_to_dict(ir)):
        return

    def reverse(mapping):
        return mapping and FrozenDict(reversed(mapping.items()))

    names = ("weight_name_mapping", "constants", "symbols", "functions", "weight_aliases")
    nodes = [
        node.replace(attrs=reverse(node.attrs), operands=reverse(node.operands))
        for node in ir.nodes
    ]
    fields = {name: reverse(getattr(ir, name)) for name in (*names, "metadata")}
    same = ir.replace(nodes=nodes, **fields)
    assert same == ir
    assert dumps(same) == dumps(ir)
    one, other = (tmp_path_factory.getbasetemp() / name for name in ("one.tir", "other.tir"))
    save(ir, one)
    save(same, other)
    assert one.read_bytes() == other.read_bytes()


@quick
@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8")), attributes(st.text(st.characters(codec="utf-8")))
    )
)
def test_attribute_values_are_exact(attrs):
    node = OpNode("n", "my.op.default", [], [], attrs)
    assert node_from_dict(json.loads(json.dumps(node_to_dict(node)))) == node


@quick
@given(constants(), constants())
def test_constants_and_weights_keep_every_bit(tmp_path_factory, constant, weight):
    path = tmp_path_factory.getbasetemp() / "bits.tir"
    meta = TensorMeta("w", weight.shape, weight.dtype)
    ir = IR([], [], [], [meta], constants={"c": constant})
    save(ir, path, weights={"w": weight, "extra": constant})
    loaded = load(path).constants["c"]
    assert (loaded.dtype, loaded.shape, loaded.tobytes()) == (
        constant.dtype,
        constant.shape,
        constant.tobytes(),
    )
    assert read_archive_weights(path) == {"w": weight, "extra": constant}
    assert loads(dumps(ir)).constants["c"].tobytes() == constant.tobytes()


@settings(quick, max_examples=40)
@given(st.one_of(well_formed_irs(), arbitrary_irs()))
def test_the_published_schema_accepts_what_is_written(schema, ir):
    if is_storable(ir_to_dict(ir)):
        schema.validate(json.loads(dumps(ir)))


@pytest.mark.parametrize(
    ("spoil", "place"),
    [
        (lambda d: d.pop("nodes"), []),
        (lambda d: d.update(nods=[]), []),
        (lambda d: d.update(format_version="1"), ["format_version"]),
        (lambda d: d["graph_inputs"][0].update(shape=[2.5]), ["graph_inputs", 0, "shape", 0]),
        (lambda d: d["nodes"][0].update(attrs=[1]), ["nodes", 0, "attrs"]),
        (lambda d: d["weight_name_mapping"].update(a=1), ["weight_name_mapping", "a"]),
    ],
)
def test_the_published_schema_refuses_other_documents(schema, spoil, place):
    x = TensorMeta("x", (2,), "float32")
    document = ir_to_dict(IR([OpNode("x", "my.op.default", [x], [x])], [x], [x], []))
    schema.validate(document)
    spoil(document)
    with pytest.raises(jsonschema.ValidationError) as caught:
        schema.validate(document)
    assert list(caught.value.absolute_path) == place


@pytest.mark.parametrize(
    "constant",
    [
        Constant("bool", (2,), b"\x02\x01"),
        Constant("float32", (1,), b"\x01\x00\xc0\x7f"),
        Constant("float64", (), b"\x00\x00\x00\x00\x00\x00\x00\x80"),
        Constant("int8", (3, 0), b""),
        Constant("float32", (0, 10**6), b""),
    ],
    ids=["bool 2", "signaling NaN", "-0.0", "empty", "empty and long"],
)
def test_bits_that_numbers_would_lose(constant):
    back = loads(dumps(IR([], [], [], [], constants={"c": constant}))).constants["c"]
    assert (back.shape, back.tobytes()) == (constant.shape, constant.tobytes())


def test_a_symbol_may_have_no_bounds():
    symbols = {"u0": SymbolRange(None, 0), "u1": SymbolRange(None), "u2": SymbolRange(2**70)}
    ir = IR([], [], [], [], symbols=symbols)
    assert ir_to_dict(ir)["symbols"]["u0"] == {"lower": None, "upper": 0}
    assert loads(dumps(ir)) == ir
