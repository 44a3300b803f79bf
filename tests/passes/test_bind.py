"""Backend operators that stand for a pattern: the cases B1 to B6, and the spec's own."""

from __future__ import annotations

import operator

import pytest
import torch
from torch import nn

from passes.equal import assert_same
from torch_ir import compile_graph, decompose, extract_ir
from torch_ir.dialects.backend import bind_pattern_to_op, ops
from torch_ir.dialects.backend.binding import bindings
from torch_ir.dialects.backend.schemas import BACKEND_SCHEMAS
from torch_ir.errors import ExecutionError, PassError
from torch_ir.infer.resolve import resolve_operator
from torch_ir.ir import IR, OpNode, TensorMeta

LIBRARY = torch.library.Library("bindtest", "FRAGMENT")
LINRELU = "bindtest::linrelu(Tensor x, Tensor w) -> Tensor"


@bind_pattern_to_op(LIBRARY, LINRELU)
def linrelu(x, w):
    return torch.relu(torch.mm(x, w))


LIBRARY.define("named(Tensor x, *, float by=2.0) -> Tensor")
LIBRARY.define("named.twice(Tensor x) -> (Tensor, Tensor)")
LIBRARY.define("own(Tensor x) -> Tensor")
LIBRARY.impl("own", lambda x: x * 2, "CompositeExplicitAutograd")
LIBRARY.define("bare(Tensor x) -> Tensor")


@bind_pattern_to_op(LIBRARY, "named")
def named(x, by):
    return x * by


@bind_pattern_to_op(LIBRARY, "bindtest::named.twice")
def twice(x):
    return x + 1, x - 1


@bind_pattern_to_op(LIBRARY, "own")
def own(x):
    return x + x


X, W = torch.randn(2, 3), torch.randn(3, 4)


class Calls(nn.Module):
    def forward(self, x, w):
        return torch.ops.bindtest.linrelu(x, w)


def message(schema_or_name, function, **options):
    with pytest.raises(PassError) as caught:
        bind_pattern_to_op(LIBRARY, schema_or_name, **options)(function)
    return str(caught.value)


def called() -> IR:
    """A program that calls the operator."""
    x, w = TensorMeta("x", (2, 3), "float32"), TensorMeta("w", (3, 4), "float32")
    y = TensorMeta("y", (2, 4), "float32", "y")
    node = OpNode("y", "bindtest.linrelu.default", [x, w], [y], {}, {"x": 0, "w": 1})
    return IR([node], [x, w], [y], [], operators={"bindtest.linrelu.default": LINRELU})


def test_b1_runs_on_real_fake_and_meta_tensors_as_the_pattern():
    assert torch.equal(torch.ops.bindtest.linrelu(X, W), linrelu(X, W))
    assert torch.ops.bindtest.linrelu(X.to("meta"), W.to("meta")).shape == (2, 4)
    with torch._subclasses.FakeTensorMode() as mode:
        fakes = mode.from_tensor(X), mode.from_tensor(W)
        assert torch.ops.bindtest.linrelu(*fakes).shape == (2, 4)


def test_b1_a_pattern_that_does_not_fit_the_schema_is_refused_at_binding():
    assert message("bad(Tensor x) -> Tensor", linrelu) == (
        "linrelu takes 2 arguments, bindtest.bad.default 1 argument\n"
        "    linrelu(x, w)\n"
        "    bindtest::bad(Tensor x) -> Tensor\n"
        "Give the function the arguments of the schema, in its order."
    )
    assert message("bad(Tensor x, Tensor w) -> (Tensor, Tensor)", linrelu) == (
        "the pattern of bindtest.bad.default returns 1 value, its schema 2 values\n"
        "    bindtest::bad(Tensor x, Tensor w) -> (Tensor, Tensor)"
    )
    assert message("bad(Tensor x, Tensor w) -> int", linrelu) == (
        "result 0 of the pattern of bindtest.bad.default is a Tensor, its schema says int\n"
        "    bindtest::bad(Tensor x, Tensor w) -> int"
    )
    assert not hasattr(torch.ops.bindtest, "bad")


def test_b1_a_pattern_that_refuses_every_argument_needs_an_example():
    def picky(x):
        return torch.mm(x[:, :5], x[:5, :]) if x.shape == (5, 5) else 1 / 0

    assert message("picky(Tensor x) -> Tensor", picky) == (
        "no arguments were found to try bindtest.picky.default with: division by zero\n"
        "    bindtest::picky(Tensor x) -> Tensor\n"
        "Give some: bind_pattern_to_op(..., example_inputs=(...))."
    )
    bind_pattern_to_op(LIBRARY, "picky(Tensor x) -> Tensor", example_inputs=(torch.ones(5, 5),))(
        picky
    )
    assert torch.ops.bindtest.picky(torch.ones(5, 5))[0, 0] == 5


def test_b2_a_schema_that_is_defined_is_bound_by_its_name():
    assert torch.equal(torch.ops.bindtest.named(X, by=3.0), X * 3)
    assert torch.equal(torch.ops.bindtest.named(X), X * 2)
    assert torch.equal(torch.ops.bindtest.named.twice(X)[1], X - 1)


def test_b2_a_second_schema_or_pattern_is_an_error():
    assert message(LINRELU, linrelu) == (
        f"bindtest.linrelu.default is already defined: {LINRELU}\n"
        "Give its name without the schema."
    )
    assert message("linrelu", linrelu) == (
        "bindtest.linrelu.default already stands for a pattern\n"
        "Bind each pattern to an operator or overload of its own."
    )
    assert message("linrel", linrelu) == (
        "there is no operator 'bindtest.linrel.default'\nDid you mean bindtest.linrelu.default or "
        "bindtest.bare.default?"
    )
    assert message("aten::linrelu", linrelu) == (
        "'aten::linrelu' is not in the library 'bindtest'\n"
        "Leave the namespace out, or give a library of 'aten'."
    )


def test_b3_operators_of_other_libraries_are_no_backend_operators():
    with pytest.raises(AttributeError) as caught:
        _ = ops.aten.add
    told = "'aten' is no library of backend operators; they are "
    assert str(caught.value).startswith(told)
    libraries = str(caught.value).removeprefix(told).split(", ")
    assert {"bindtest", "executorch_prims", "quantized_decomposed"} <= {*libraries}
    assert str(ops.bindtest.linrelu.default) == LINRELU


def test_b4_an_operator_without_kernel_and_pattern_is_an_error_until_it_is_bound():
    with pytest.raises(AttributeError) as caught:
        _ = ops.bindtest.bare.default
    assert str(caught.value) == (
        "bindtest.bare.default has neither a kernel nor a pattern; give it one with "
        "bind_pattern_to_op"
    )


@pytest.mark.parametrize(
    "retrace",
    [
        lambda exported: exported,
        lambda exported: torch.export.export(exported.module(), (X, W)),
        lambda exported: exported.run_decompositions({}),
        lambda exported: exported.run_decompositions(),
    ],
    ids=["export", "export-again", "no-decompositions", "all-decompositions"],
)
def test_b5_tracing_by_every_route_gives_the_operators_of_the_pattern(retrace):
    program = retrace(torch.export.export(Calls(), (X, W)))
    nodes = [str(n.target) for n in program.graph.nodes if n.op == "call_function"]
    assert nodes == ["aten.mm.default", "aten.relu.default"]


def test_b5_a_program_that_calls_it_runs_and_decomposes():
    ir = called()
    assert ir.check() == ()
    assert torch.equal(compile_graph(ir).eval((X, W))[0], linrelu(X, W))
    done = decompose(ir)
    assert [node.op_type for node in done.nodes] == ["aten.mm.default", "aten.relu.default"]
    assert_same(ir, done, {}, (X, W))
    kept = decompose(ir, preserve=["bindtest.linrelu.default"])
    assert [node.op_type for node in kept.nodes] == ["bindtest.linrelu.default"]


def test_b6_an_operator_with_a_kernel_of_its_own_is_never_decomposed():
    class Own(nn.Module):
        def forward(self, x):
            return torch.ops.bindtest.own(x)

    ir = extract_ir(Own(), (X,))
    assert [node.op_type for node in ir.nodes] == ["bindtest.own.default"]
    assert [node.op_type for node in decompose(ir).nodes] == ["bindtest.own.default"]


def test_b6_a_kernel_that_computes_something_else_is_refused():
    LIBRARY.define("other(Tensor x) -> Tensor")
    LIBRARY.impl("other", lambda x: x * 3, "CompositeExplicitAutograd")
    text = message("other", own, example_inputs=(torch.ones(1),))
    assert text == (
        "the kernel of bindtest.other.default does not compute what the pattern does\n"
        "    arguments [tensor([1.])]\n"
        "    pattern   [tensor([2.])]\n"
        "    kernel    [tensor([3.])]\n"
        "Correct one of them, or give the tolerance that they agree within."
    )


def test_a_tolerance_is_relative_to_the_results_of_the_pattern():
    LIBRARY.define("tiny(Tensor x) -> Tensor")
    LIBRARY.impl("tiny", lambda x: x * 5e-6, "CompositeExplicitAutograd")
    told = "the kernel of bindtest.tiny.default does not compute what the pattern does"
    options = {"example_inputs": (torch.ones(4),), "tolerance": 1e-3}
    assert message("tiny", lambda x: x * 1e-6, **options).startswith(told)
    bind_pattern_to_op(LIBRARY, "tiny", **options)(lambda x: x * 5.001e-6)


# -- the operators of the specification -----------------------------------------------------------


def test_the_operators_of_the_specification_have_its_schemas():
    for op_type, text in BACKEND_SCHEMAS.items():
        registered = str(resolve_operator(op_type)._schema)
        bound = bindings().get(op_type)
        if bound is None or not bound.has_kernel:  # those of ExecuTorch keep their own
            assert registered == text


@pytest.mark.parametrize("name", ["add", "mul", "sub", "floordiv", "gt", "lt", "ge", "le", "eq"])
def test_b10_prims_compute_what_python_does(name):
    prim = resolve_operator(f"executorch_prims.{name}.int")
    for a in (-7, -1, 0, 1, 6, True):
        for b in (-3, -1, 2, 7):
            assert prim(a, b) == getattr(operator, name)(a, b)


CODES = (
    torch.tensor([0, 3, 100, 255], dtype=torch.uint8),
    torch.tensor([3, 3, 50, 255], dtype=torch.uint8),
)
PARAMETERS = ((0.1, 3), (0.2, 3), (0.3, 3))


def quantized(name, dtype):
    low, high = (0, 255) if dtype == torch.uint8 else (-128, 127)
    a, b, out = [(scale, zero, low, high) for scale, zero in PARAMETERS]
    first, second = [codes.to(dtype) for codes in CODES]
    op = resolve_operator(f"quantized_decomposed.{name}.default")
    return op(first, *a, second, *b, *out)


def test_b8_quantized_additions_are_those_of_dequantized_values():
    assert quantized("add", torch.uint8).tolist() == [2, 3, 67, 255]
    assert quantized("add_relu", torch.uint8).tolist() == [3, 3, 67, 255]
    assert quantized("add", torch.int8).dtype == torch.int8
    scalar = resolve_operator("quantized_decomposed.add.scalar")
    a, out = (0.1, 3, 0, 255), (0.3, 3, 0, 255)
    made = scalar(CODES[0], *a, torch.uint8, 0.6, *out, torch.uint8)
    assert made.tolist() == [4, 5, 37, 89]


def test_b9_rows_of_a_quantized_table_are_dequantized_by_row_or_group():
    embedding = resolve_operator("quantized_decomposed.embedding_byte.default")
    weight = torch.arange(8, dtype=torch.uint8).reshape(2, 4)
    rows = embedding(
        weight, torch.tensor([0.5, 2.0]), torch.tensor([0.0, 4.0]), 0, 255, torch.tensor([1, 0])
    )
    assert rows.tolist() == [[0.0, 2.0, 4.0, 6.0], [0.0, 0.5, 1.0, 1.5]]
    groups = embedding(
        weight,
        torch.tensor([[0.5, 1.0], [2.0, 4.0]]),
        torch.zeros(2, 2),
        0,
        255,
        torch.tensor([[1]]),
    )
    assert groups.tolist() == [[[8.0, 10.0, 24.0, 28.0]]]
    pattern = bindings()["quantized_decomposed.embedding_byte.default"].pattern
    with pytest.raises(ExecutionError, match="embedding_byte has 2 rows"):
        pattern(weight, torch.ones(3), torch.ones(3), 0, 255, torch.tensor([0]))
