"""Operator schemas read without torch: what torch itself says of every overload in the table."""

from __future__ import annotations

import pytest
import torch

from torch_ir import InvalidIRError
from torch_ir.ops.schema import bind_in_order, known_operators, lookup, parse_schema
from torch_ir.torch_api import operator_schema, overload


def described_by_torch(argument):
    """Name, kind, written and alias marks of an argument, from torch's own parsed schema."""
    marks = argument.alias_info
    before = sorted(marks.before_set) if marks is not None else []
    return (
        argument.name,
        argument.kwarg_only,
        argument.has_default_value(),
        bool(marks is not None and marks.is_write),
        before[0].rpartition("::")[2] if before else "",
    )


def described(argument):
    given = (argument.name, argument.keyword_only, argument.default is not None)
    return (*given, argument.is_written, argument.alias)


def torch_overload(op_type):
    namespace, packet, name = op_type.split(".")
    if namespace == "quantized_decomposed":
        import torch.ao.quantization.fx._decomposed  # noqa: F401  # registers them
    return overload(namespace, packet, name)


@pytest.mark.recorded
def test_every_schema_is_the_one_that_torch_has():
    wrong, seen = [], 0
    for op_type in known_operators():
        operator = torch_overload(op_type)
        if operator is None:
            continue  # of another build of torch
        seen += 1
        own, schema = operator._schema, lookup(op_type)
        expected = [described_by_torch(a) for a in own.arguments]
        arguments = [described(a) for a in schema.arguments]
        for i, argument in enumerate(own.arguments):  # torch tells no alias set of a list
            if str(argument.type).startswith("List[") and i < len(arguments):
                arguments[i] = (*arguments[i][:4], "")
        written = [a.is_written for a in schema.returns]
        expected_written = [bool(r.alias_info and r.alias_info.is_write) for r in own.returns]
        if arguments != expected or written != expected_written or schema.text != str(own):
            wrong.append(op_type)
    assert wrong == []
    assert seen > 0.95 * len(known_operators())
    assert len(known_operators()) > 3000


@pytest.mark.recorded
def test_every_tensor_argument_is_known_as_one():
    """The kinds of torch's own types: a tensor, an optional tensor, or a list of these."""
    wrong = []
    for op_type in known_operators():
        operator = torch_overload(op_type)
        if operator is None:
            continue
        for argument, own in zip(
            lookup(op_type).arguments, operator._schema.arguments, strict=True
        ):
            kind = str(own.type)
            single = kind in ("Tensor", "Optional[Tensor]")
            several = kind.removeprefix("Optional[").startswith(("List[Tensor", "List[Optional[T"))
            optional = kind.startswith("Optional[")
            if (argument.takes_tensor, argument.takes_tensor_list) != (single, several):
                wrong.append((op_type, argument.name, kind))
            if argument.is_optional != optional:
                wrong.append((op_type, argument.name, kind))
    assert wrong == []


@pytest.mark.parametrize(
    ("op_type", "name", "default"),
    [
        ("aten.add.Tensor", "alpha", "1"),
        ("aten.conv2d.default", "stride", "[1, 1]"),
        ("aten.div.Tensor_mode", "rounding_mode", None),
        ("aten.gelu.default", "approximate", '"none"'),
        ("aten.linear.default", "bias", "None"),
    ],
)
def test_defaults(op_type, name, default):
    assert lookup(op_type).argument(name).default == default


def test_a_list_has_its_length_and_its_written_argument():
    schema = lookup("aten.split_copy.Tensor_out")
    out = schema.argument("out")
    assert (out.type, out.keyword_only, out.is_written) == ("Tensor[]", True, True)
    assert schema.argument("missing") is None
    assert lookup("aten.add") is None
    assert lookup("aten.add.tensor") is None
    assert str(lookup("aten.relu.default")) == "aten::relu(Tensor self) -> Tensor"


# -- binding in order -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op_type", "count", "attrs", "operands"),
    [
        ("aten.relu.default", 1, {}, {"self": 0}),
        ("aten.relu.default", 0, {}, None),
        ("aten.relu.default", 2, {}, None),
        ("aten.add.Tensor", 2, {"alpha": 2}, {"self": 0, "other": 1}),
        ("aten.linear.default", 2, {}, {"input": 0, "weight": 1}),
        ("aten.layer_norm.default", 3, {}, {"input": 0, "weight": 1, "bias": 2}),
        ("aten.layer_norm.default", 2, {"weight": None}, {"input": 0, "bias": 1}),
        ("aten.cat.default", 3, {"dim": 1}, {"tensors": (0, 1, 2)}),
        ("aten.cat.default", 0, {}, {"tensors": ()}),
        ("aten.index.Tensor", 3, {}, {"self": 0, "indices": (1, 2)}),
        ("aten.index_put.default", 3, {}, {"self": 0, "indices": (1,), "values": 2}),
        ("aten.where.self", 3, {}, {"condition": 0, "self": 1, "other": 2}),
        ("aten.arange.start_step", 0, {"start": 0, "end": 3}, {}),
    ],
)
def test_tensors_in_the_order_of_the_schema(op_type, count, attrs, operands):
    assert bind_in_order(lookup(op_type), count, attrs) == operands


def test_binding_in_order_uses_each_tensor_once():
    """For every operator and every number of tensors: no tensor is lost, none is used twice."""
    for op_type in known_operators():
        schema = lookup(op_type)
        for count in range(6):
            operands = bind_in_order(schema, count, {})
            if operands is None:
                continue
            slots = [s for v in operands.values() for s in (v if isinstance(v, tuple) else (v,))]
            assert slots == list(range(count)), op_type
            for name in operands:
                argument = schema.argument(name)
                assert argument.takes_tensor or argument.takes_tensor_list


# -- operators that a library registers -------------------------------------------------------


def test_a_custom_operator_has_the_schema_that_torch_says():
    with torch.library._scoped_library("torch_ir_schema_test", "DEF") as library:
        library.define("scale(Tensor(a!) x, Tensor[]? rest=None, *, str mode='a,b') -> Tensor(a!)")
        scale = overload("torch_ir_schema_test", "scale", "default")
        assert scale is not None
        schema = operator_schema(scale)
        assert [described(a) for a in schema.arguments] == [
            ("x", False, False, True, "a"),
            ("rest", False, True, False, ""),
            ("mode", True, True, False, ""),
        ]
        assert schema.arguments[2].default == '"a,b"'
        assert schema.arguments[1].takes_tensor_list
    assert overload("torch_ir_schema_test", "nothing", "default") is None
    assert overload("not", "an operator", "") is None


@pytest.mark.parametrize("text", ["", "relu", "aten::relu(Tensor self", "a::b(Tensor x) Tensor"])
def test_what_is_no_schema_is_refused(text):
    with pytest.raises(InvalidIRError) as caught:
        parse_schema(text)
    assert str(caught.value) == f"{text!r} is not the schema of an operator"
