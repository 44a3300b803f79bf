"""One model, one program: what torch traced before leaves no trace in the names of symbols."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import sympy
import torch
from torch import nn
from torch.export import Dim

from dynamic_models import DYNAMIC, extracted, hashes
from torch_ir.frontend.symbols.scalars import expression_text
from torch_ir.ir import SymExpr
from torch_ir.serde import dumps
from whole_way import runs_as_eager


def test_symbols_are_numbered_as_the_program_shows_them():
    ir = extracted("from data")
    assert [str(meta) for meta in ir.graph_inputs] == [
        "%x: f32[s0]",
        "%y: f32[2*s0 + 1]",
        "%n: i64[]",
    ]
    assert {name: str(bounds) for name, bounds in ir.symbols.items()} == {
        "s0": "2..64",
        "u0": "0..64",
        "u1": "0..129",
        "u2": "0..64",
        "z0": "..",
    }
    by_name = ir.by_name
    assert dict(by_name["item"].binds) == {"u2": 0}
    assert dict(by_name["item_1"].binds) == {"z0": 0}
    assert str(by_name["cat"].outputs[0]) == "%cat: f32[u0 + u1]"
    results = "(`2*u2`, %cat, %slice_1, `z0 * 2.0`, `(u0 > 2) and (u1 > 3)`)"
    assert f"signature ((%x, %y, %n), {{}}) -> {results}" in str(ir)
    message = by_name["_assert_scalar_default_6"].attrs["assert_msg"]
    assert message.startswith("Runtime assertion failed for expression u2 <= s0 on node")


def test_bodies_of_control_flow_know_the_symbols_of_the_program():
    ir = extracted("branches")
    assert set(ir.symbols) == {"s0", "s1"}
    for body in ir.functions.values():
        assert [str(meta) for meta in body.graph_inputs] == ["%x: f32[s0]", "%y: f32[s1]"]
        assert body.symbols == ir.symbols


def test_guards_and_numbers_among_the_arguments_are_renamed():
    ir = extracted("guard")
    assert str(ir.guards[0]) == "((3*s0) % 2) == 0"
    assert {symbol for guard in ir.guards for symbol in guard.symbols} == {"s0"}
    assert str(ir.signature.inputs.children[0].children[1].value) == "s1"


@pytest.mark.parametrize("name", DYNAMIC)
def test_the_same_program_comes_again_after_other_traces(name):
    first = dumps(extracted(name))
    for other in DYNAMIC:
        extracted(other)
    torch.export.export(nn.ReLU(), (torch.ones(3, 4),), dynamic_shapes=({1: Dim.DYNAMIC},))
    assert dumps(extracted(name)) == first


def test_another_process_gives_the_same_bytes():
    code = "import json, dynamic_models; print(json.dumps(dynamic_models.hashes()))"
    process = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    assert json.loads(process.stdout) == hashes()


@pytest.mark.parametrize("name", DYNAMIC)
def test_what_is_renamed_runs_as_before(name):
    make, args, shapes = DYNAMIC[name]
    runs_as_eager(lambda: make().eval(), args, dynamic_shapes=shapes)


def test_conditions_are_joined_in_the_order_in_which_torch_made_their_symbols():
    first, second = (sympy.Symbol(name, integer=True) for name in ("u9", "u10"))
    both = sympy.And(first > 2, second > 3)
    assert both.args == (second > 3, first > 2)  # sympy's order is that of the alphabet
    assert SymExpr(expression_text(both)) == SymExpr("u9 > 2 and u10 > 3")
