"""Arithmetic on sizes as operators: the conformance case B10."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.export import Dim

from passes.equal import assert_same
from torch_ir import IRExecutor, extract_ir
from torch_ir.dialects.backend.schemas import BACKEND_SCHEMAS
from torch_ir.errors import PassError
from torch_ir.ir import IR, DType, OpNode, SymbolRange, SymExpr, TensorMeta
from torch_ir.passes import run_passes
from torch_ir.passes.materialize_symbols import MaterializeSymbols, materialize_symbols
from torch_ir.serde import dumps, loads

SIZES = [(2, 3), (5, 2), (7, 7), (11, 4)]


def program(expression: str) -> IR:
    """A program that returns the value of an expression over two sizes."""
    x = TensorMeta("x", ("s0", "s1"), "float32")
    y = TensorMeta("y", (1,), "int64", "y")
    attrs = {"size": (1,), "fill_value": SymExpr(expression), "dtype": DType("int64")}
    node = OpNode("y", "aten.full.default", [], [y], attrs)
    symbols = {"s0": SymbolRange(2, 64), "s1": SymbolRange(2, 64)}
    return IR([node], [x], [y], [], symbols=symbols)


@pytest.mark.parametrize(
    "expression",
    [
        "s0 + s1",
        "s0 - 3*s1",
        "-s0",
        "s0 * s1 - 7",
        "(s0 - 9) // s1",
        "(s0 - 9) % 4",
        "s0**3",
        "max(s0, s1, 6)",
        "min(s0 - s1, 0)",
        "abs(s0 - s1)",
        "int(s0 < s1) + 2*int(s0 == s1)",
        "int((s0 > 4) and not (s1 <= 3))",
        "int((s0 != s1) or (s1 >= 7))",
    ],
)
def test_b10_integer_arithmetic_is_that_of_python(expression):
    ir = program(expression)
    done = run_passes(ir, [MaterializeSymbols()]).ir
    assert {n.op_type for n in done.nodes[:-1]} <= set(BACKEND_SCHEMAS)
    assert done.nodes[-1].attrs["fill_value"].is_symbol
    assert loads(dumps(done)) == done
    run = IRExecutor(done, {})
    for a, b in SIZES:
        (result,) = run(torch.zeros(a, b))
        assert result.item() == SymExpr(expression).evaluate({"s0": a, "s1": b})


def test_b10_what_is_not_integer_is_an_error_before_anything_runs():
    with pytest.raises(PassError) as caught:
        materialize_symbols(program("floor(s0 / s1)"))
    assert str(caught.value) == (
        "1 expression cannot be computed with integers\n"
        "    - node 'y': aten.full.default: "
        "floor(s0 / s1): s0 / s1 is not computed with integers\n"
        "A runtime for such programs needs operators of its own for them."
    )


class Flat(nn.Module):
    def forward(self, x):
        rows = x.shape[0]
        both = torch.cat([x, x]).view(rows * 8)
        return both, x.new_zeros(rows * 8), x.new_ones(rows % 3 + 2), rows * 3 - 1


def test_a_program_with_sizes_that_vary_gives_the_same():
    ir = extract_ir(
        Flat().eval(), (torch.ones(6, 4),), dynamic_shapes={"x": {0: Dim("rows", min=3, max=20)}}
    )
    done = run_passes(ir, [MaterializeSymbols()]).ir
    prims = [node for node in done.nodes if node.op_type.startswith("executorch_prims.")]
    assert prims[0].location == ir.nodes[1].location
    assert [str(n) for n in prims].count(str(prims[0])) == 1  # what is needed twice is made once
    values = [v for n in done.nodes for v in n.attrs.values()]
    assert all(v.is_symbol for v in values if isinstance(v, SymExpr))
    for rows in (3, 7, 20):
        x = torch.randn(rows, 4)
        assert_same(ir, done, {}, (x,))
        assert IRExecutor(done, {})(x)[-1] == rows * 3 - 1


def test_a_program_without_arithmetic_is_the_same_object():
    ir = program("s0")
    assert materialize_symbols(ir) is ir
