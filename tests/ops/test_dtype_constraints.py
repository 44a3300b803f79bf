"""The dtype constraint language and the table of all operators: E4-E8, and exact grouping."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from project.tool import load_tool
from torch_ir import InvalidIRError
from torch_ir.dialects import edge
from torch_ir.dialects.edge import constraint_of, read_entry
from torch_ir.ops.dtype_constraints import constrained_operators, write_entry
from torch_ir.ops.schema import parse_schema

group = load_tool("edge_grouping").group
FOO = parse_schema("test::foo(Tensor self, Tensor other) -> Tensor")
FIRST = """
- func: foo
  namespace: edge
  inherits: test::foo
  type_alias:
    T0: [Float, Double]
    T1: [Char]
    T2: [Int]
  type_constraint:
  - self: T0
    other: T0
    __ret_0: T0
"""
SECOND = FIRST + "  - {self: T1, other: T1, __ret_0: T2}\n"


def foo(text, self, other, ret):
    query = {"self": self, "other": other, "__ret_0": ret}
    return read_entry(text, FOO).validate({k: v for k, v in query.items() if v})


def test_e4_sigmoid_knows_the_dtypes_of_its_argument_and_of_its_result():
    schema = edge.ops.aten.sigmoid.default.schema
    assert edge.ops.aten.sigmoid.default._schema is schema  # the name that torch's operators have
    assert str(schema) == "aten::sigmoid(Tensor self) -> Tensor"
    assert schema.arguments[0].allowed_types == {
        *("bool", "uint8", "int8", "int16", "int32", "int64", "uint16"),
        *("float16", "bfloat16", "float32", "float64"),
    }
    assert schema.returns[0].allowed_types == {"float16", "bfloat16", "float32", "float64"}


def test_e5_log_softmax_takes_floating_point_numbers_only():
    schema = edge.ops.aten._log_softmax.default.schema
    floats = {"float16", "bfloat16", "float32", "float64"}
    assert schema.arguments[0].allowed_types == schema.returns[0].allowed_types == floats


def test_e6_names_that_share_an_alias_have_one_dtype_and_no_name_is_missing_or_foreign():
    assert foo(FIRST, "float32", "float32", "float32")
    assert not foo(FIRST, "float32", "float32", "float64")
    assert not foo(FIRST, "float32", "float64", "float32")
    assert not foo(FIRST, None, "float32", "float32")
    assert not foo(FIRST, "float32", "float32", None)
    assert not read_entry(FIRST, FOO).validate(
        {"self": "float32", "other": "float32", "__ret": "float32"}
    )


def test_e7_rows_are_alternatives_and_a_failure_leaves_nothing_behind():
    assert foo(SECOND, "int8", "int8", "int32")
    assert not foo(SECOND, "int8", "int8", "int8")
    assert not foo(SECOND, "int8", "float32", "float32")
    table = read_entry(SECOND, FOO)
    right = {"self": "float32", "other": "float32", "__ret_0": "float32"}
    wrong = {**right, "other": "float64"}
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(table.validate, [wrong, right] * 200))
    assert found == [False, True] * 200


@pytest.mark.parametrize("weight", ["float32", None])
@pytest.mark.parametrize("bias", ["float32", None])
def test_e8_weight_and_bias_of_a_layer_norm_may_each_be_left_out(weight, bias):
    table = constraint_of("aten.native_layer_norm.default")
    results = {"__ret_0": "float32", "__ret_1": "float32", "__ret_2": "float32"}
    query = {"input": "float32", **results}
    query |= {k: v for k, v in (("weight", weight), ("bias", bias)) if v}
    assert table.validate(query)
    for name in ("input", *results):
        assert not table.validate({k: v for k, v in query.items() if k != name})
    assert not table.validate({**query, "bias": "int32"})


def test_e8_a_layer_norm_of_half_may_have_float_weights():
    query = {
        "input": "float16",
        "weight": "float32",
        "bias": "float32",
        "__ret_0": "float16",
        "__ret_1": "float32",
        "__ret_2": "float32",
    }
    assert constraint_of("aten.native_layer_norm.default").validate(query)


def test_half_and_bfloat16_give_float():
    query = {"self": "float16", "other": "bfloat16", "__ret_0": "float32"}
    assert constraint_of("aten.add.Tensor").validate(query)


def test_numbers_are_constrained_by_their_kind():
    table = constraint_of("aten.add.Scalar")
    assert table.validate({"self": "int32", "other": "int64", "__ret_0": "int32"})
    assert table.validate({"self": "int32", "other": "float64", "__ret_0": "float32"})
    assert not table.validate({"self": "int32", "other": "float64", "__ret_0": "int32"})
    assert edge.ops.aten.add.Scalar.schema.arguments[1].allowed_types == {
        *("bool", "int64", "float64")
    }


def test_an_operator_without_rows_takes_all_dtypes_of_edge():
    schema = edge.ops.aten.linalg_cholesky_ex.default.schema
    assert schema.arguments[0].allowed_types == edge.EDGE_DTYPES


def test_names_are_kept_and_unknown_ones_name_the_closest():
    assert edge.ops.aten.sigmoid.default is edge.ops.aten.sigmoid.default
    with pytest.raises(AttributeError) as caught:
        edge.ops.aten.sigmoid.defualt  # noqa: B018  # the access is what is tested
    assert str(caught.value) == (
        "there is no Edge operator 'aten.sigmoid.defualt'. "
        "Did you mean aten.sigmoid.default or aten.sigmoid_.default?"
    )
    assert "sigmoid" in dir(edge.ops.aten)


def test_the_table_covers_every_functional_core_operator():
    from torch_ir.dialects import spec_of
    from torch_ir.ops.schema import known_operators

    specs = [spec_of(name) for name in known_operators() if name.startswith("aten.")]
    core = {
        spec.op_type
        for spec in specs
        if "core" in spec.traits
        and spec.is_functional
        and any(r.type.startswith("Tensor") for r in spec.schema.returns)
    }
    assert core - set(constrained_operators()) == set()


def test_every_entry_reads_back_as_it_is_written():
    for name in constrained_operators():
        table = constraint_of(name)
        assert read_entry(write_entry(table)) == table, name


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("Flaot", "the alias T0 has the unknown dtype 'Flaot'\nDid you mean Float or BFloat16?"),
        ("Float]\n    nonsense", "'nonsense, Double]' is not a line of a dtype constraint"),
    ],
)
def test_what_is_no_entry_is_refused(wrong, message):
    with pytest.raises(InvalidIRError) as caught:
        read_entry(FIRST.replace("Float", wrong, 1), FOO)
    assert str(caught.value) == message


def test_a_row_that_lacks_a_tensor_is_refused():
    with pytest.raises(InvalidIRError) as caught:
        read_entry(FIRST.replace("    other: T0\n", ""), FOO)
    assert str(caught.value) == (
        "a row of test::foo says nothing of 'other'\n"
        "A row says a dtype for each of self, other, __ret_0."
    )


DTYPE = st.sampled_from(["int32", "int64", "float32", "float64", "bool"])
COLUMNS = st.tuples(DTYPE, DTYPE, st.none() | DTYPE, st.none() | DTYPE, DTYPE)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.frozensets(COLUMNS, min_size=1, max_size=60))
def test_grouped_rows_take_exactly_what_was_observed(observed):
    names = ["self", "other", "weight", "bias", "__ret_0"]
    required = frozenset({"self", "other", "__ret_0"})
    assert group("test::foo", names, observed, required).expand() == observed


@pytest.mark.recorded
def test_a_fresh_sample_of_combinations_agrees_with_torch():
    tools = Path(__file__).parents[2] / "tools"
    sys.path.insert(0, str(tools))
    try:
        import measure_edge_constraints
    finally:
        sys.path.remove(str(tools))
    counts, legal = measure_edge_constraints.measure(5000, seed=2)
    assert counts == {"false accept": 0, "false reject": 0}
    assert legal > 2500
