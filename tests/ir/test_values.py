"""Attribute values: exact comparison, immutable dicts, torch's enumerations, what is refused."""

from __future__ import annotations

import copy
import enum
import math
import pickle  # noqa: TID251  # of our own values, to show that they can be pickled
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies import attributes
from torch_ir.errors import InvalidIRError
from torch_ir.frozen import identical
from torch_ir.ir import Device, DType, FrozenDict, FunctionRef, Layout, MemoryFormat, SymExpr
from torch_ir.ir.tensor import type_text
from torch_ir.ir.values import as_attribute, dtype_name

exactly = settings(max_examples=100, derandomize=True, deadline=None)


def copied(value):
    """The same value made anew, so that no comparison can go by identity."""
    if isinstance(value, tuple):
        return tuple(copied(item) for item in value)
    return pickle.loads(pickle.dumps(value))


# -- identity of values -----------------------------------------------------------------------


@exactly
@given(attributes())
def test_a_value_is_identical_to_its_copy(value):
    assert identical(value, copied(value))
    assert as_attribute(value) is value or identical(as_attribute(value), value)


@exactly
@given(attributes(), attributes())
def test_identity_is_symmetric_and_implies_the_same_text(left, right):
    assert identical(left, right) == identical(right, left)
    if identical(left, right):
        assert repr(left) == repr(right)


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (1, True, False),
        (1, 1.0, False),
        (1.0, 1 + 0j, False),
        (0.0, -0.0, False),
        (complex(0.0, -0.0), 0j, False),
        (float("nan"), -float("nan"), True),
        (complex(math.nan, 1), complex(math.nan, 1), True),
        (complex(math.nan, 1), complex(math.nan, 2), False),
        ((1, (2.0, None)), (1, (2.0, None)), True),
        ((1,), [1], False),
        ((1,), (1, 2), False),
        ("float32", DType("float32"), False),
        (Layout("strided"), MemoryFormat("contiguous_format"), False),
        ({"a": 0.0, "b": 1}, {"b": 1, "a": 0.0}, True),
        ({"a": 0.0}, {"a": -0.0}, False),
        ({"a": 1}, {"a": 1, "b": 2}, False),
    ],
)
def test_what_is_identical(left, right, same):
    assert identical(left, right) is same
    assert identical(right, left) is same


# -- frozen dicts -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.__setitem__("a", 2),
        lambda d: d.__delitem__("a"),
        lambda d: d.update(a=2),
        lambda d: d.setdefault("b", 1),
        lambda d: d.pop("a"),
        lambda d: d.popitem(),
        lambda d: d.clear(),
        lambda d: d.__ior__({"b": 1}),
    ],
)
def test_a_frozen_dict_refuses_every_change(change):
    frozen = FrozenDict(a=1)
    with pytest.raises(TypeError, match=r"^a FrozenDict cannot be changed; build a new one$"):
        change(frozen)
    assert frozen == {"a": 1}


def test_equality_of_frozen_dicts_is_exact_and_inequality_is_its_opposite():
    for other, same in (({"a": 2}, True), ({"a": 2.0}, False), ({"b": 2}, False), (3, False)):
        assert (FrozenDict(a=2) == other) is same
        assert (FrozenDict(a=2) != other) is not same
    with_nan = FrozenDict(a=float("nan"))
    assert (with_nan != FrozenDict(a=float("nan"))) is False


@exactly
@given(st.dictionaries(st.text(max_size=3), attributes(), max_size=4))
def test_frozen_dicts_copy_pickle_and_hash_as_values(values):
    frozen = FrozenDict(values)
    again = pickle.loads(pickle.dumps(frozen))
    assert type(again) is FrozenDict
    assert again == frozen
    assert hash(again) == hash(frozen)
    assert copy.copy(frozen) is frozen
    assert copy.deepcopy(frozen) is frozen
    assert list(frozen) == list(values)


def test_equal_dicts_have_equal_hashes_in_any_order_and_with_nan():
    assert hash(FrozenDict(a=float("nan"), b=1)) == hash(FrozenDict(b=1, a=float("nan")))


# -- what becomes an attribute ----------------------------------------------------------------


class Color(enum.IntEnum):
    RED = 3


class Mode(enum.StrEnum):
    SUM = "sum"


@pytest.mark.parametrize(
    ("given", "attribute"),
    [
        (torch.float32, DType("float32")),
        (torch.half, DType("float16")),
        (torch.chalf, DType("complex32")),
        (torch.float8_e4m3fn, DType("float8_e4m3fn")),
        (torch.strided, Layout("strided")),
        (torch.sparse_csr, Layout("sparse_csr")),
        (torch.jagged, Layout("jagged")),
        (torch._mkldnn, Layout("_mkldnn")),
        (torch.channels_last, MemoryFormat("channels_last")),
        (torch.preserve_format, MemoryFormat("preserve_format")),
        (torch.device("cuda:1"), Device("cuda:1")),
        (torch.device("meta"), Device("meta")),
        (torch.Size([2, 3]), (2, 3)),
        (Color.RED, 3),
        (Mode.SUM, "sum"),
        (np.float64(0.1), 0.1),
        (np.str_("sum"), "sum"),
        ([1, [None, (True, "x")]], (1, (None, (True, "x")))),
        (SymExpr("s0"), SymExpr("s0")),
        (FunctionRef("body"), FunctionRef("body")),
        (2**200, 2**200),
    ],
)
def test_what_torch_and_python_give_becomes_a_plain_value(given, attribute):
    made = as_attribute(given)
    assert identical(made, attribute)
    assert identical(as_attribute(made), made)


def test_each_enumeration_of_torch_has_its_torch_free_form():
    for kind in (torch.layout, torch.memory_format):
        for value in vars(torch).values():
            if isinstance(value, kind):
                assert str(as_attribute(value)) == str(value)


@pytest.mark.parametrize(
    "value",
    [object(), {1}, b"x", np.int64(3), np.float32(1), range(3), torch.nn.Parameter],
)
def test_what_no_format_can_hold_is_refused(value):
    with pytest.raises(InvalidIRError) as caught:
        as_attribute([value])
    assert str(caught.value) == (
        f"an attribute cannot hold {value!r:.80} of type {type(value).__name__}\n"
        "Attributes are None, bool, int, float, complex, str, symbolic expressions, dtypes, "
        "devices, layouts, memory formats, function and operator references, and lists "
        "and dicts of these; tensors are operands."
    )


def test_tensors_are_operands():
    with pytest.raises(InvalidIRError) as caught:
        as_attribute(torch.ones(1))
    assert str(caught.value) == (
        "an attribute cannot hold a torch.Tensor\nTensors are operands; sizes are expressions."
    )


def test_endless_nesting_is_refused():
    endless: list[object] = []
    endless.append(endless)
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    for value in (endless, deep):
        with pytest.raises(
            InvalidIRError, match=r"^an attribute cannot be nested more than 100 deep$"
        ):
            as_attribute(value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DType("flaot32"), "'flaot32' is not an element type\nDid you mean float32?"),
        (lambda: Layout("stride"), "'stride' is not a layout\nDid you mean strided?"),
        (
            lambda: MemoryFormat("nchw"),
            "'nchw' is not a memory format\n"
            "One of contiguous_format, preserve_format, channels_last, channels_last_3d.",
        ),
        (lambda: Layout(None), "the name of Layout is text, got NoneType"),
    ],
)
def test_unknown_names_are_refused_with_the_closest(make, message):
    with pytest.raises(InvalidIRError, match="^" + re.escape(message)):
        make()


def test_every_dtype_of_torch_has_one_name():
    for dtype in {value for value in vars(torch).values() if isinstance(value, torch.dtype)}:
        assert dtype_name(dtype, strict=False) == str(dtype).removeprefix("torch.")


def test_a_dtype_that_no_ir_has_is_refused_unless_asked():
    with pytest.raises(InvalidIRError, match="uint4"):
        dtype_name(torch.uint4)
    assert type_text(torch.empty(2, 3, dtype=torch.int64)) == "i64[2, 3]"
    assert type_text(torch.empty(2, dtype=torch.uint4)) == "uint4[2]"
