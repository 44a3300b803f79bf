"""Constants that are views, in JSON and archives: once stored, and refused where they lie."""

import json
import os

import pytest

from torch_ir.errors import SerializationError
from torch_ir.ir import IR, Constant, ConstantView
from torch_ir.serde import dumps, ir_from_dict, ir_to_dict, load, loads, save

TABLE = Constant.from_list([[1, 2, 3], [4, 5, 6]], "int64")
ROW = TABLE.view_of("table", (3,), strides=(1,), offset=3)
COLUMN = TABLE.view_of("table", (2,), strides=(3,), offset=1)


def program(**known):
    return IR([], [], [], [], constants=known)


IN_ORDER = program(column=COLUMN, row=ROW, table=TABLE)


def test_a_view_is_a_record_without_data():
    document = ir_to_dict(IN_ORDER)
    assert document["constants"]["row"] == {
        "dtype": "int64",
        "shape": [3],
        "view": {"of": "table", "strides": [1], "offset": 3},
    }
    loaded = loads(dumps(IN_ORDER))
    assert loaded == IN_ORDER
    assert loaded.constants["row"].data is loaded.constants["table"].data
    assert list(loaded.constants) == ["column", "row", "table"]


def test_the_document_of_views_fits_the_schema(schema):
    schema.validate(json.loads(dumps(IN_ORDER)))


def test_an_archive_holds_one_storage(tmp_path):
    large = Constant("float32", (1000, 1000), os.urandom(4_000_000))
    mask = Constant.from_list([True], "bool")
    views = {
        "transposed": large.view_of("table", (1000, 1000), strides=(1, 1000)),
        "windows": large.view_of("table", (900, 5000), strides=(1000, 1)),
        "mask": mask.view_of("one", (10**6,), strides=(0,)),
    }
    ir = program(table=large, one=mask, **views)
    save(ir, tmp_path / "net.tir")
    assert (tmp_path / "net.tir").stat().st_size < 4_000_000 + 4096
    assert load(tmp_path / "net.tir") == ir
    save(program(one=mask, mask=views["mask"]), tmp_path / "mask.tir")
    assert (tmp_path / "mask.tir").stat().st_size < 4096


def test_a_view_in_an_archive_stays_in_the_mapped_file(tmp_path):
    save(IN_ORDER, tmp_path / "net.tir")
    loaded = load(tmp_path / "net.tir").constants
    assert isinstance(loaded["row"].data, memoryview)
    assert loaded["row"].data is loaded["table"].data


def test_functions_have_views_of_their_own():
    ir = IR([], [], [], [], functions={"f": IN_ORDER})
    assert loads(dumps(ir)) == ir


HOSTILE = {
    "no base": (
        {"of": "tabel", "strides": [1], "offset": 3},
        {},
        ": the constant 'row' is a view of 'tabel', which is no constant\nDid you mean table?",
    ),
    "a base in a program around": (
        {"of": "x" * 1000, "strides": [1]},
        {},
        f": the constant 'row' is a view of '{'x' * 79}, which is no constant\nKeep the base with "
        "its views, or drop the view with on_its_own().",
    ),
    "a view of a view": (
        {"of": "column", "strides": [1]},
        {},
        ".view.of: the constant 'row' is a view of 'column', which is itself a view\nSay where "
        "its values lie in 'table'.",
    ),
    "a view of itself": (
        {"of": "row", "strides": [1]},
        {},
        ".view.of: the constant 'row' is a view of 'row', which is itself a view\nSay where its "
        "values lie in 'row'.",
    ),
    "another dtype": (
        {"of": "table", "strides": [1]},
        {"dtype": "int32"},
        ": the constant 'row' is int32, and a view of 'table', which is int64\nA view has the "
        "dtype of its base.",
    ),
    "behind the end": (
        {"of": "table", "strides": [1], "offset": 4},
        {},
        ": the constant 'row' ends at element 6 of 'table', which has 6 elements\nStrides and "
        "offset count elements of the base, from 0.",
    ),
    "far behind the end": (
        {"of": "table", "strides": [2**63 - 1], "offset": 2**63 - 1},
        {},
        ": the constant 'row' ends at element 27670116110564327421 of 'table', which has 6 "
        "elements\nStrides and offset count elements of the base, from 0.",
    ),
    "a negative stride": (
        {"of": "table", "strides": [-1], "offset": 5},
        {},
        ".view.strides[0]: Expected `int` >= 0",
    ),
    "a negative offset": (
        {"of": "table", "strides": [1], "offset": -1},
        {},
        ".view.offset: Expected `int` >= 0",
    ),
    "a stride that is no integer": (
        {"of": "table", "strides": [1.5]},
        {},
        ".view.strides[0]: Expected `int`, got `float`",
    ),
    "another number of strides": (
        {"of": "table", "strides": [1, 1]},
        {},
        ": a view of the shape [3] needs 1 stride, got [1, 1]",
    ),
    "more elements than a tensor can have": (
        {"of": "table", "strides": [0] * 3},
        {"shape": [2**40] * 3},
        ": no tensor has the shape [1099511627776, 1099511627776, 1099511627776] with strides "
        "[0, 0, 0] from element 0",
    ),
    "data of its own": (
        {"of": "table", "strides": [1]},
        {"data": [1, 2, 3]},
        ": a constant needs exactly one of data, base64, fill, tensor and view",
    ),
    "a tensor of an archive": (
        {"of": "table", "strides": [1]},
        {"tensor": "table"},
        ": a constant needs exactly one of data, base64, fill, tensor and view",
    ),
    "an unknown key": (
        {"of": "table", "strides": [1], "ofset": 1},
        {},
        ".view: contains unknown field `ofset`\nDid you mean offset?",
    ),
}


@pytest.mark.parametrize(("view", "changes", "message"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_views_are_refused(view, changes, message):
    document = ir_to_dict(IN_ORDER)
    document["constants"]["row"].update(view=view, **changes)
    for read in (
        lambda: loads(json.dumps(document), name="m.json"),
        lambda: ir_from_dict(document),
    ):
        with pytest.raises(SerializationError) as caught:
            read()
        assert str(caught.value).partition(": at $")[2] == f".constants.row{message}"


def test_a_huge_view_costs_nothing_to_load():
    document = ir_to_dict(IN_ORDER)
    document["constants"]["row"] |= {
        "shape": [10**12],
        "view": {"of": "table", "strides": [0], "offset": 5},
    }
    ir = ir_from_dict(document)
    assert ir.constants["row"].numpy()[10**12 - 1] == 6
    assert hash(ir.constants["row"]) == hash(loads(dumps(ir)).constants["row"])
    assert loads(dumps(ir)) == ir
    assert str(ir).count("view(@table") == 2


def test_a_view_without_its_base_is_not_saved(tmp_path):
    for name in ("net.json", "net.tir"):
        with pytest.raises(SerializationError) as caught:
            save(program(row=ROW, tables=TABLE), tmp_path / name)
        assert str(caught.value) == (
            "the IR: at $.constants.row: the constant 'row' is a view of 'table', which is no "
            "constant\nDid you mean tables?"
        )
        assert not (tmp_path / name).exists()


def test_a_view_of_other_values_than_its_base_has_is_not_saved():
    other = Constant.from_list([[1, 2, 3], [4, 5, 7]], "int64")
    with pytest.raises(SerializationError) as caught:
        dumps(program(row=ROW, table=other))
    assert str(caught.value) == (
        "the IR: at $.constants.row: the constant 'row' is a view of 'table', which has other "
        "values now\nMake it anew with view_of() of its base, or drop the view with on_its_own()."
    )


def test_a_view_known_by_the_hash_of_its_base_is_not_saved():
    base = Constant("int64", (2, 3), None, TABLE.digest())
    row = Constant("int64", (3,), None, TABLE.digest(), ConstantView("table", (1,), 3))
    with pytest.raises(SerializationError, match=r"at \$.constants.table: the values of this"):
        dumps(program(row=row, table=base))
