"""Text of a subclass of str becomes plain text by its characters, wherever a program has text."""

from __future__ import annotations

import enum

import pytest
import torch

from torch_ir.ir import (
    IR,
    Constant,
    Container,
    Device,
    DType,
    FunctionRef,
    Layout,
    Location,
    MemoryFormat,
    Mutation,
    OperatorRef,
    OpNode,
    Signature,
    SymbolRange,
    SymExpr,
    TensorLeaf,
    TensorMeta,
    ValueLeaf,
)
from torch_ir.ir.text import parse
from torch_ir.serde import dumps, loads


class Strange(str):
    """Text that prints as something else."""

    __slots__ = ()

    def __str__(self):
        return "strange"


class Name(enum.StrEnum):
    """An enumeration of text, which prints as something else."""

    X = "x"

    def __str__(self):
        return "X"


def program(text):
    """A program in which every text field is what ``text`` makes of it."""
    x = TensorMeta(text("x"), (2, "s0"), text("float32"))
    y = TensorMeta(text("y"), (2, "s0"), text("float32"), text("n"), 0)
    attributes = {
        text("text"): text("value"),
        text("nested"): [text("item"), {text("key"): text("entry")}],
        text("dtype"): DType(text("float32")),
        text("device"): Device(text("cpu")),
        text("layout"): Layout(text("strided")),
        text("format"): MemoryFormat(text("contiguous_format")),
        text("function"): FunctionRef(text("f")),
        text("operator"): OperatorRef(text("aten.mm.default")),
        text("size"): SymExpr(text("s0 + 1")),
    }
    location = Location(text("net.py"), 1, text("x + 1"), text("fc"), text("Linear"))
    node = OpNode(
        text("n"), text("my.op.default"), [x], [y], attributes,
        {text("self"): 0}, location, {text("u0"): 0},
    )  # fmt: skip
    leaves = Container(text("dict"), [TensorLeaf(text("x")), ValueLeaf(text("v"))],
                       [text("a"), text("b")])  # fmt: skip
    return IR(
        [node], [x], [y], [],
        weight_name_mapping={text("w"): text("fc.weight")},
        constants={text("c"): Constant(text("uint8"), (1,), b"1")},
        model_name=text("M"),
        pytorch_version=text("2.13.0"),
        symbols={text("s0"): SymbolRange(2, 8)},
        functions={text("f"): IR([], [], [], [], model_name=text("F"))},
        mutations=[Mutation(text("x"), y)],
        signature=Signature(leaves, Container(text("my.Class"), [], context=text("{}"))),
        dialect=text("export"),
        weight_aliases={text("a"): text("w")},
        operators={text("my.op.default"): text("my::op(Tensor self) -> Tensor")},
        metadata={text("note"): text("text")},
    )  # fmt: skip


@pytest.mark.parametrize("kind", [Strange, torch.torch_version.TorchVersion])
def test_a_program_is_the_same_whatever_kind_of_text_makes_it(kind):
    plain, made = program(str), program(kind)
    assert made == plain
    assert str(made) == str(plain)
    assert dumps(made) == dumps(plain)
    assert loads(dumps(made)) == plain
    assert parse(str(made)) == plain


def test_an_enumeration_counts_by_its_characters():
    meta = TensorMeta(Name.X, (2,), "float32")
    assert type(meta.name) is str
    assert str(meta) == "%x: f32[2]"


def test_the_version_of_torch_is_text():
    ir = IR([], [], [], [], pytorch_version=torch.__version__)
    assert type(ir.pytorch_version) is str
    assert loads(dumps(ir)) == ir
