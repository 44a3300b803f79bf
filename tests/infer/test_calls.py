"""What a call gives, asked for one node at a time: types, storage, and why nobody can tell."""

import pytest
import torch

from torch_ir import IR, OpNode, TensorMeta, compile_graph
from torch_ir.dialects import verify
from torch_ir.errors import CompileError, ExecutionError, PassError
from torch_ir.infer import TensorType, call_on
from torch_ir.infer.binder import bind
from torch_ir.infer.engine import call_at
from torch_ir.infer.fake import value_types
from torch_ir.infer.types import contiguous
from torch_ir.ir import DType, FunctionRef, SymbolRange, SymExpr

NAMESPACE = "torch_ir_test_infer"
X = TensorMeta("x", (2, 3), "float32")


def node(op_type, inputs=(X,), shape=(2, 3), attrs=None, dtype="float32"):
    return OpNode("y", op_type, inputs, [TensorMeta("y", shape, dtype, "y")], attrs or {})


def program(call, **fields):
    return IR([call], call.inputs, call.outputs, [], dialect="aten", **fields)


def bare_assert(x):
    raise AssertionError  # as ``assert`` without a message, which this file's own would have


@pytest.fixture
def library():
    with torch.library._scoped_library(NAMESPACE, "DEF") as made:
        yield made


def defined(library, fake):
    library.define("op(Tensor x) -> Tensor")
    library.impl("op", lambda x: x.clone(), "CPU")
    if fake is not None:
        torch.library.register_fake(f"{NAMESPACE}::op", fake, lib=library)
    call = node(f"{NAMESPACE}.op.default").replace(operands={"x": 0})
    return call, program(call, operators={call.op_type: f"{NAMESPACE}::op(Tensor x) -> Tensor"})


# -- binding --------------------------------------------------------------------------------------


def test_arguments_are_bound_by_the_schema():
    call = node("aten.sum.dim_IntList", shape=(2,), attrs={"dim": [1], "dtype": DType("float64")})
    args, kwargs = bind(call, ["value"])
    assert args == ["value", [1]]
    assert kwargs == {"dtype": torch.float64}


def test_expressions_take_the_numbers_of_symbols():
    call = node("aten.view.default", attrs={"size": [SymExpr("2*s0"), -1]})
    assert bind(call, ["value"], {"s0": 3}) == (["value", [6, -1]], {})


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (node("aten.rleu.default"), ExecutionError, "torch has no operator"),
        (node("aten.relu.default", inputs=(X, X)), PassError, "do not fit"),
        (node("aten.relu.default", attrs={"alpha": 1}), PassError, "has no argument 'alpha'"),
        (
            node("aten.add.Tensor").replace(operands={"self": 0}),
            PassError,
            "argument 'other' of aten.add.Tensor is not given",
        ),
        (
            node("aten.add.Tensor", attrs={"other": FunctionRef("body")}),
            PassError,
            "the function 'body' is not called here",
        ),
    ],
)
def test_what_cannot_be_bound_is_said(call, error, message):
    with pytest.raises(error, match=message):
        bind(call, call.inputs)


# -- outcomes -------------------------------------------------------------------------------------


def test_types_strides_and_storage_of_a_view():
    call = node("aten.t.default", shape=(3, 2))
    outcome = call_on(program(call), call)
    assert outcome.kind == "ok"
    assert outcome.results == (TensorType((3, 2), "float32", (1, 3)),)
    assert outcome.shares == (frozenset({0}),)


def test_types_are_said_over_the_symbols_of_the_program():
    x = TensorMeta("x", ("s0", 3), "float32")
    call = node("aten.t.default", inputs=(x,), shape=(3, "s0"))
    outcome = call_on(program(call, symbols={"s0": SymbolRange(2, None)}), call)
    assert outcome.results == (TensorType((3, SymExpr("s0")), "float32", (1, 3)),)


def test_given_types_count_and_not_the_recorded_ones():
    call = node("aten.relu.default")
    turned = TensorType((2, 3), "float32", (1, 2))
    assert call_on(program(call), call, [turned]).results == (turned,)


def test_storage_is_told_by_position_among_the_inputs():
    other = TensorMeta("z", (3, 2), "float32")
    call = node("aten.lerp.Tensor_out", inputs=(X, X, X, X), shape=(2, 3))
    assert call_on(program(call), call).shares == (frozenset({3}),)
    call = node("aten.view_as.default", inputs=(other, X)).replace(
        operands={"self": 1, "other": 0}
    )
    assert call_on(program(call), call).shares == (frozenset({call.operands["self"]}),)


def test_a_refusal_says_what_torch_says():
    call = node("aten.mm.default", inputs=(X, X))
    outcome = call_on(program(call), call)
    assert outcome.kind == "refused"
    assert "same reduction dim" in outcome.refusal


def test_an_unknown_operator_is_refused_with_the_closest_name():
    outcome = call_at(node("aten.rleu.default"), [contiguous(X)], {})
    assert (outcome.kind, outcome.results) == ("refused", ())
    assert "aten.relu.default" in outcome.remedy


def test_data_may_decide_a_size():
    call = node("aten.nonzero.default", shape=(2, 2), dtype="int64")
    assert call_at(call, [contiguous(X)], {}).kind == "data-dependent"


def test_an_autocast_region_is_part_of_the_call():
    call = node("aten.mm.default", inputs=(X, TensorMeta("z", (3, 2), "float32")), shape=(2, 2))
    types = [contiguous(meta) for meta in call.inputs]
    (plain,) = call_at(call, types, {}).results
    (inside,) = call_at(call, types, {}, (("cpu", "bfloat16", True),)).results
    assert (plain.dtype, inside.dtype) == ("float32", "bfloat16")


def test_numbers_of_different_kinds_are_different_calls():
    for number, dtype in ((2, "int64"), (2.0, "float32"), (True, "int64")):
        ints = TensorMeta("x", (2,), "int64")
        call = node("aten.add.Scalar", (ints,), (2,), {"other": number}, "int64")
        (made,) = call_on(program(call), call).results
        assert made.dtype == dtype, number


def test_a_generator_of_the_users_is_not_advanced():
    call = node("aten.bernoulli.default", attrs={"generator": "noise"})
    assert call_on(program(call), call).kind == "data-dependent"


def test_what_follows_an_unknown_value_has_no_type():
    body = [
        node("aten.relu.default"),
        OpNode("z", "aten.mm.default", [X, X], [TensorMeta("z", (2, 3), "float32", "z")]),
    ]
    last = TensorMeta("z", (2, 3), "float32", "z")
    body.append(OpNode("w", "aten.neg.default", [last], [TensorMeta("w", (2, 3), "float32", "w")]))
    found = value_types(IR(body, [X], [body[2].outputs[0]], []))
    assert list(found) == ["x", "y"]


# -- custom operators -----------------------------------------------------------------------------


def test_a_refusal_without_a_message_is_never_empty(library):
    call, ir = defined(library, bare_assert)
    assert call_on(ir, call).refusal == "AssertionError"
    (violation,) = verify(ir, "aten")
    assert violation.message == f"{call.op_type}: AssertionError"


def test_the_compiler_tells_a_refusal_without_a_message(library):
    _, ir = defined(library, bare_assert)
    with pytest.raises(CompileError, match="failed: AssertionError"):
        compile_graph(ir)


def test_an_operator_without_a_fake_kernel_is_told_from_one_that_refuses(library):
    call, ir = defined(library, None)
    assert call_on(ir, call).kind == "no-fake-kernel"


def a_size_of_data(x):
    return x.new_empty(torch.library.get_ctx().new_dynamic_size(), 2)


@pytest.mark.parametrize("fake", [a_size_of_data, lambda x: x.new_empty(int(x.sum().item()), 2)])
def test_a_fake_kernel_whose_result_data_decides_is_a_fake_kernel(library, fake):
    call, ir = defined(library, fake)
    assert call_on(ir, call).kind == "data-dependent"
    assert verify(ir, "aten") == ()


def test_an_operator_that_is_registered_anew_is_asked_anew():
    seen = []
    for size in (4, 5):
        with torch.library._scoped_library(NAMESPACE, "DEF") as library:
            call, ir = defined(library, lambda x, size=size: x.new_empty(size))
            seen.append(call_on(ir, call).results[0].shape)
    assert seen == [(4,), (5,)]
