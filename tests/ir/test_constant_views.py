"""Constants that are views of others: bounds, values, equality, text, and what a check finds."""

import hashlib

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from strategies import constants, views
from torch_ir import parse
from torch_ir.errors import CompileError, InvalidIRError, ParseError, WeightLoadError
from torch_ir.executor import IRExecutor
from torch_ir.ir import IR, Constant, ConstantView, Mutation, TensorMeta
from torch_ir.ir.constants import needed_constants, view_fault
from torch_ir.ir.dtypes import DTYPES
from torch_ir.torch_api import bytes_of, constant_tensor, constant_tensors

TABLE = Constant.from_list([[1, 2, 3], [4, 5, 6]], "int64")
ROW = TABLE.view_of("table", (3,), strides=(1,), offset=3)

quick = settings(max_examples=100, derandomize=True, deadline=None)


# -- values ---------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@quick
@given(st.data(), constants())
def test_a_view_shows_what_torch_shows(data, base):
    assume(not base.dtype.startswith("q"))
    view = data.draw(views(base, "base"))
    size = int(np.prod(view.shape, dtype=object))
    flat = constant_tensor(Constant(base.dtype, (int(np.prod(base.shape)),), base.data))
    wanted = flat.as_strided(view.shape, view.strides, view.view.offset)
    tensor = constant_tensor(view)
    assert (tensor.shape, tensor.stride()) == (wanted.shape, view.strides)
    if DTYPES[view.dtype].numpy is not None and size:
        array = view.numpy()
        assert array.shape == view.shape
        assert not array.flags.writeable
        assert array.base is not None  # nothing is copied, however large the view is
    if 0 < size < 10**6:
        raw = bytes_of(wanted).numpy().tobytes()
        assert view.tobytes() == raw
        assert view.on_its_own() == Constant(view.dtype, view.shape, raw)


@quick
@given(st.data(), constants())
def test_views_are_values(data, base):
    assume(not base.dtype.startswith("q"))
    view = data.draw(views(base, "base"))
    same = Constant(view.dtype, view.shape, bytearray(base.tobytes()), "", view.view)
    by_hash = Constant(view.dtype, view.shape, None, base.digest(), view.view)
    assert view == same == by_hash
    assert hash(view) == hash(same) == hash(by_hash)
    assert view.digest() == base.digest() == hashlib.sha256(base.tobytes()).hexdigest()
    assert view != base.view_of("other", view.shape, strides=view.strides, offset=0)
    if base.tobytes():
        flipped = bytes([base.tobytes()[0] ^ 1]) + base.tobytes()[1:]
        assert Constant(view.dtype, view.shape, flipped, "", view.view) != view


def test_a_view_copies_nothing():
    assert ROW.data is TABLE.data
    assert ROW.tolist() == [4, 5, 6]
    assert np.shares_memory(ROW.numpy(), np.frombuffer(TABLE.data, dtype="int64"))


def test_constants_of_torch_share_the_memory_of_their_base():
    made = constant_tensors({"table": TABLE, "row": ROW}, ["row", "table"])
    made["table"][1, 0] = 7
    assert made["row"].tolist() == [7, 5, 6]


def test_a_tensor_that_is_given_stands_below_the_views_of_its_constant():
    given = {"table": torch.arange(6).reshape(3, 2).t()}
    assert constant_tensors({"table": TABLE, "row": ROW}, ["row"], given)["row"].tolist() == [
        1,
        3,
        5,
    ]


def test_a_view_that_would_fill_the_memory_is_never_written_out():
    huge = Constant.from_list([0.5], "float32").view_of("one", (10**12, 4), strides=(0, 0))
    assert huge.numpy()[10**12 - 1, 3] == 0.5
    message = (
        "the values of a view f32[1000000000000, 4] are 16000000000000 bytes, more than are "
        "written out\nRead it with numpy(), which copies nothing."
    )
    for read in (
        huge.tobytes,
        huge.tolist,
        huge.on_its_own,
        lambda: np.array(huge, dtype="float64"),
        lambda: huge.__array__(copy=True),
    ):
        with pytest.raises(InvalidIRError) as caught:
            read()
        assert str(caught.value) == message


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: TABLE.view_of("table", (2,), strides=(-1,), offset=3),
            "a view of a constant cannot have the strides [-1] and offset 3\n"
            "Strides and offset are integers from 0.",
        ),
        (
            lambda: TABLE.view_of("table", (2,), strides=(True,)),
            "a view of a constant cannot have the strides [True] and offset 0\n"
            "Strides and offset are integers from 0.",
        ),
        (
            lambda: TABLE.view_of("table", (2,), strides=(1, 1)),
            "a view of the shape [2] needs 1 stride, got [1, 1]",
        ),
        (
            lambda: TABLE.view_of("table", (3,), strides=(2,), offset=2),
            "a view i64[3] of 'table' with strides [2] from element 2 needs 7 elements, its base "
            "has 6",
        ),
        (
            lambda: TABLE.view_of("table", (0,), strides=(1,), offset=7),
            "a view i64[0] of 'table' with strides [1] from element 7 needs 7 elements, its base "
            "has 6",
        ),
        (
            lambda: TABLE.view_of("table", (2**62, 4), strides=(0, 0)),
            "no tensor has the shape [4611686018427387904, 4] with strides [0, 0] from element 0",
        ),
        (
            lambda: Constant("qint8", (2,), b"ab").view_of("q", (1,), strides=(1,)),
            "a quantized constant (qint8) cannot be a view",
        ),
        (
            lambda: ROW.view_of("row", (2,), strides=(1,)),
            "'row' is itself a view of 'table'\nSay where the values lie in 'table'.",
        ),
        (
            lambda: Constant("int64", (2,), b"\0" * 12, "", ConstantView("t", (0,))),
            "a view i64[2] of 't' with strides [0] from element 0 needs 1 element, its base has "
            "1.5",
        ),
    ],
)
def test_what_is_no_view(make, message):
    with pytest.raises(InvalidIRError) as caught:
        make()
    assert str(caught.value) == message


# -- the constants of a program -------------------------------------------------------------------


def program(**known):
    return IR([], [], [], [], constants=known)


FAULTS = {
    "no base": (
        program(tabel=TABLE, row=ROW),
        "the constant 'row' is a view of 'table', which is no constant. Did you mean tabel?",
    ),
    "no base and nothing like it": (
        program(row=ROW),
        "the constant 'row' is a view of 'table', which is no constant. Keep the base with its "
        "views, or drop the view with on_its_own().",
    ),
    "a view of a view": (
        program(
            table=Constant.from_list([0] * 6, "int64").view_of("zeros", (2, 3), strides=(3, 1)),
            row=ROW,
            zeros=Constant.from_list([0] * 6, "int64"),
        ),
        "the constant 'row' is a view of 'table', which is itself a view. Say where its values "
        "lie in 'zeros'.",
    ),
    "another dtype": (
        program(table=Constant("float64", (2, 3), TABLE.data), row=ROW),
        "the constant 'row' is int64, and a view of 'table', which is float64. A view has the "
        "dtype of its base.",
    ),
    "other values": (
        program(table=Constant.from_list([[1, 2, 3], [4, 5, 7]], "int64"), row=ROW),
        "the constant 'row' is a view of 'table', which has other values now. Make it anew with "
        "view_of() of its base, or drop the view with on_its_own().",
    ),
    "a smaller base": (
        program(table=Constant.from_list([1, 2], "int64"), row=ROW),
        "the constant 'row' ends at element 5 of 'table', which has 2 elements. Strides and "
        "offset count elements of the base, from 0.",
    ),
}


@pytest.mark.parametrize(("ir", "message"), FAULTS.values(), ids=FAULTS)
def test_a_check_finds_views_without_their_base(ir, message):
    assert [(finding.code, finding.message) for finding in ir.check()] == [("bad-view", message)]


@pytest.mark.parametrize(("ir", "message"), FAULTS.values(), ids=FAULTS)
def test_what_a_check_finds_does_not_run(ir, message):
    row = TensorMeta("row", (3,), "int64")
    with pytest.raises(CompileError) as caught:
        IRExecutor(ir.replace(graph_outputs=[row]), {}).execute(())
    assert caught.value.message == message


def test_a_view_known_by_a_hash_runs_when_its_base_is_given():
    row = TensorMeta("row", (3,), "int64")
    ir = program(table=TABLE, row=ROW).replace(graph_outputs=[row])
    known = parse(str(ir).replace("[[1, 2, 3], [4, 5, 6]]", f"sha256:{TABLE.digest()}"))
    assert known == ir
    with pytest.raises(InvalidIRError, match=r"^the values of this constant i64"):
        known.constants["row"].numpy()
    table = torch.tensor([[1, 2, 3], [4, 5, 6]])
    assert IRExecutor(known, constants={"table": table}).execute(())[0].tolist() == [4, 5, 6]


def test_a_base_that_is_given_and_does_not_fit_is_named():
    ir = program(table=TABLE, row=ROW)
    for table in (torch.ones(2, 2, dtype=torch.int64), torch.ones(2, 3)):
        with pytest.raises(WeightLoadError, match="'table': expected i64"):
            IRExecutor(ir, constants={"table": table}).execute(())


def test_a_base_that_nothing_uses_is_no_fault():
    row = TensorMeta("row", (3,), "int64")
    assert IR([], [], [row], [], constants={"table": TABLE, "row": ROW}).check() == ()


@pytest.mark.parametrize("target", ["table", "row"])
def test_what_is_written_shares_no_memory(target):
    other, meta = {"table": "row", "row": "table"}[target], TensorMeta(target, (3,), "int64")
    meta = meta.replace(shape=(2, 3)) if target == "table" else meta
    ir = program(table=TABLE, row=ROW).replace(mutations=[Mutation(target, meta)])
    assert [str(finding) for finding in ir.check()] == [
        f"[shared-mutation] %{target} is written, and shares its memory with the constant "
        f"{other!r}. Make the view by aten.as_strided of its base in the program."
    ]


def test_the_base_of_a_view_is_needed_with_it():
    known = {"other": TABLE, "row": ROW, "table": TABLE}
    assert list(needed_constants(known, ["row", "x"])) == ["row", "table"]
    assert list(needed_constants(known, ["table"])) == ["table"]
    assert view_fault(known, "row") is None


# -- text -----------------------------------------------------------------------------------------

TEXT = """ir {
  constant @row: i64[3] as %c_row = view(@table, strides=[1], offset=3)
  constant @table: i64[2, 3] = [[1, 2, 3], [4, 5, 6]]
  return @row
}"""


def test_a_view_is_one_line_that_parses_back():
    ir = parse(TEXT)
    assert str(ir) == TEXT
    assert ir.constants == {"row": ROW, "table": TABLE}
    scalar = TABLE.view_of("a b", (), strides=(), offset=4)
    ir = program(**{"a b": TABLE, "one": scalar})
    assert 'constant @one: i64[] = view(@"a b", strides=[], offset=4)' in str(ir)
    assert parse(str(ir)) == ir


def test_the_value_of_a_base_is_that_of_its_views():
    long = Constant.from_list(list(range(100)), "int64")
    ir = program(long=long, row=long.view_of("long", (3,), strides=(7,), offset=2))
    text = str(ir)
    assert parse(text) == ir
    assert parse(text).constants["row"].data is None
    assert parse(text, constants={"long": long}).constants["row"].tolist() == [2, 9, 16]
    assert parse(text, constants=ir.constants) == ir
    tensors = constant_tensors(ir.constants, ir.constants)
    assert parse(text, constants=tensors) == ir


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "@table, s",
            "@tabel, s",
            """\
line 2: @row is a view of 'tabel', which is no constant
    2 |   constant @row: i64[3] as %c_row = view(@tabel, strides=[1], offset=3)
      |                                          ^^^^^^
Did you mean table?""",
        ),
        (
            "[[1, 2, 3], [4, 5, 6]]",
            "view(@row, strides=[3, 1], offset=0)",
            """\
line 2: @row is a view of 'table', which is itself a view
    2 |   constant @row: i64[3] as %c_row = view(@table, strides=[1], offset=3)
      |                                          ^^^^^^
Say where its values lie in 'row'.""",
        ),
        (
            "offset=3",
            "offset=4",
            """\
line 2: @row ends at element 6 of 'table', which has 6 elements
    2 |   constant @row: i64[3] as %c_row = view(@table, strides=[1], offset=4)
      |                                     ^^^^
Strides and offset count elements of the base, from 0.""",
        ),
        (
            "offset=3",
            "offset=-3",
            """\
line 2: a view of a constant cannot have the strides [1] and offset -3
    2 |   constant @row: i64[3] as %c_row = view(@table, strides=[1], offset=-3)
      |                                     ^^^^
Strides and offset are integers from 0.""",
        ),
        (
            "@row: i64[3]",
            "@row: f32[3]",
            """\
line 2: @row is float32, and a view of 'table', which is int64
    2 |   constant @row: f32[3] as %c_row = view(@table, strides=[1], offset=3)
      |                                     ^^^^
A view has the dtype of its base.""",
        ),
        (
            "[1], offset",
            "[1, 1], offset",
            """\
line 2: a view of the shape [3] needs 1 stride, got [1, 1]
    2 |   constant @row: i64[3] as %c_row = view(@table, strides=[1, 1], offset=3)
      |                                     ^^^^""",
        ),
        (
            "strides=[1]",
            "strides=[1.5]",
            """\
line 2: '1.5' is not an integer
    2 |   constant @row: i64[3] as %c_row = view(@table, strides=[1.5], offset=3)
      |                                                           ^^^""",
        ),
        (
            ", strides=[1]",
            "",
            """\
line 2: expected 'strides', got 'offset'
    2 |   constant @row: i64[3] as %c_row = view(@table, offset=3)
      |                                                  ^^^^^^""",
        ),
        (
            "3] as %c_row = view(@table, strides=[1]",
            "9223372036854775807, 9] as %c_row = view(@table, strides=[0, 0]",
            """\
line 2: no tensor has the shape [9223372036854775807, 9] with strides [0, 0] from element 3
    2 |   constant @row: i64[9223372036854775807, 9] as %c_row = view(@table, strides=[0, 0], offset=3)
      |                                                          ^^^^""",  # noqa: E501  # a picture shows the line as it is
        ),
        (
            "@table: i64",
            "@row: i64",
            """\
line 3: the constant @row is given twice
    3 |   constant @row: i64[2, 3] = [[1, 2, 3], [4, 5, 6]]
      |            ^^^^""",
        ),
    ],
)
def test_every_fault_of_a_view_has_its_sentence(old, new, message):
    assert old in TEXT
    with pytest.raises(ParseError) as caught:
        parse(TEXT.replace(old, new))
    assert str(caught.value) == message


@pytest.mark.parametrize("given", [torch.tensor([4, 5, 7]), torch.tensor([4, 5]), TABLE])
def test_a_value_given_for_a_view_is_what_it_shows(given):
    with pytest.raises(ParseError) as caught:
        parse(TEXT, constants={"row": given})
    assert (
        str(caught.value)
        == """\
line 2: the value given for @row is another one
    2 |   constant @row: i64[3] as %c_row = view(@table, strides=[1], offset=3)
      |                                     ^^^^
The text has a view of @table; give the value of that one."""
    )
