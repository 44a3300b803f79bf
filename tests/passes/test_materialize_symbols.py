"""Arithmetic on sizes as operators: the conformance case B10."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._higher_order_ops import while_loop
from torch.export import Dim

from functions import Call
from passes.equal import assert_same
from torch_ir import IRExecutor, extract_ir, parse
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


TRUTHS = [
    *(f"s0 {sign} s1" for sign in ("==", "!=", "<", "<=", ">", ">=")),
    *("not (s0 > 4)", "(s0 > 4) and (s1 > 4)", "(s0 > 4) or (s1 > 4)", "(s0 > 4) == (s1 > 4)"),
    *("s0 % 2 == 1", "s0 == 1", "(s0 > 1) and True"),
]


@pytest.mark.parametrize("truth", TRUTHS)
def test_a_truth_stays_a_truth_wherever_a_program_needs_one(truth):
    ir = parse(
        f"""
        ir "Truth" {{
          symbol s0: 1..64
          symbol s1: 1..64
          signature ((%x, %b), {{}}) -> (`{truth}`, %full, %both, %branch)
          func &t "t" {{
            signature ((%v,), {{}}) -> (%n,)
            input %v: b8[]
            %n: b8[] = aten.logical_not.default(%v)
            return %n
          }}
          func &f "f" {{
            signature ((%v,), {{}}) -> (%n,)
            input %v: b8[]
            %n: b8[] = aten.clone.default(%v)
            return %n
          }}
          input %x: f32[s0, s1]
          input %b: b8[]
          %full: b8[2] = aten.full.default([2], `{truth}`)
          %both: b8[] = aten.mul.Tensor(%b, other=`{truth}`)
          %branch: b8[] = higher_order.cond(pred=`{truth}`, true_fn=&t, false_fn=&f, operands=[%b])
          return %full, %both, %branch
        }}
        """
    )
    done = run_passes(ir, [MaterializeSymbols()], verify="each").ir
    assert materialize_symbols(done) is done
    for a, b in SIZES:
        args = (torch.zeros(a, b), torch.tensor(True))
        assert_same(ir, done, {}, args)
        expected = SymExpr(truth).evaluate({"s0": a, "s1": b})
        assert IRExecutor(done, {})(*args)[0] is expected


def test_a_loop_goes_on_while_a_truth_of_numbers_holds():
    def count(x):
        return while_loop(lambda i, y: i < 4, lambda i, y: (i + 1, y * 2 + i), (0, x))

    ir, x = extract_ir(Call(count), (torch.ones(2),)), torch.ones(2)
    done = run_passes(ir, [MaterializeSymbols()], verify="each").ir
    assert_same(ir, done, {}, (x,))


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64])
def test_a_number_from_data_is_what_it_was(dtype):
    ir = extract_ir(
        Call(lambda x: (x.item(), x.item() == 1, x + 1)), (torch.ones((), dtype=dtype),)
    )
    done = run_passes(ir, [MaterializeSymbols()], verify="each").ir
    for value in (0, 1):
        x = torch.tensor(value, dtype=dtype)
        first, second = IRExecutor(ir)(x)[:2], IRExecutor(done)(x)[:2]
        assert [(type(n), n) for n in first] == [(type(n), n) for n in second]
