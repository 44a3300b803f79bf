"""Patterns with numbers, in every form of a program: an Edge program holds them as constants."""

from __future__ import annotations

import operator

import pytest
import torch
from torch import nn

import torch_ir
from torch_ir.ops.schema import known_operators
from torch_ir.passes import run_passes
from torch_ir.passes.patterns import Rewrite, RewritePatterns, near_misses

FLOATS = torch.tensor([[0.5, 1.25, -2.0], [3.0, -0.75, 0.1]])
INTS = torch.tensor([[1, 2, 3], [4, 5, 6]])
NOT_BINARY = {"bucketize", "fill", "lerp", "masked_fill", "result_type", "searchsorted"}
OVERLOADS = {*known_operators()}
PACKETS = [
    name
    for name in sorted({op_type.split(".")[1] for op_type in OVERLOADS})
    if {f"aten.{name}.Scalar", f"aten.{name}.Tensor"} <= OVERLOADS
    and not name.startswith(("_foreach", "__i"))
    and (name.endswith("__") or not name.endswith("_"))
    and name not in NOT_BINARY
] + ["float_power", "floor_divide", "pow", "xlogy"]  # whose overloads have other names
"""Operators of two tensors that take a number for the second."""


def lowered(ir, form):
    if form == "edge":
        return torch_ir.to_edge(ir).ir()
    steps = {"export": lambda ir: ir, "aten": torch_ir.functionalize}
    return steps.get(form, torch_ir.decompose)(ir)


class Model(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def rewritten(function, x, form, **options):
    """The program of a function, and what a rule makes of it that negates twice before."""
    ir = lowered(torch_ir.extract_ir(Model(function).eval(), (x,)), form)
    pattern = options.pop("pattern", function)
    turn = options.pop("turn", lambda x: x.neg().neg())
    rule = Rewrite(
        pattern,
        lambda x, **known: pattern(turn(x), **known),
        (options.pop("example", x),),
        **options,
    )
    made = run_passes(ir, [RewritePatterns((rule,))]).ir
    assert made.check() == ()
    wanted = torch_ir.IRExecutor(ir, {})(x)
    assert torch.allclose(torch_ir.IRExecutor(made, {})(x), wanted, 0, 0, equal_nan=True)
    again = [n.op_type for n in made.nodes].count("aten.neg.default")
    return made, again


@pytest.mark.parametrize("name", PACKETS)
def test_operators_of_a_number_match_where_numbers_are_tensors(name):
    packet = getattr(torch.ops.aten, name)
    is_whole = "shift" in name or name.strip("_").removeprefix("bitwise_") in ("and", "or", "xor")
    x, number = (INTS, 3) if is_whole else (FLOATS, 2.5)
    assert rewritten(lambda x: packet(x, number) + 0, x, "edge")[1] == 2


@pytest.mark.parametrize("form", ["export", "aten", "core_aten"])
def test_one_rule_serves_every_form(form):
    assert rewritten(lambda x: (2.5 - x) / 0.1, FLOATS, form)[1] == 2


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.int64])
def test_numbers_match_in_the_dtype_of_the_place(dtype):
    x = torch.ones(2, 3, dtype=dtype)
    function = lambda x: x * 3 + 2  # noqa: E731  # a pattern is any function
    assert rewritten(function, x, "edge", example=FLOATS)[1] == 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numbers_that_are_rounded_match(dtype):
    x = FLOATS.to(dtype)
    assert rewritten(lambda x: (x * 0.1).relu(), x, "edge", example=FLOATS)[1] == 2


def test_attributes_stand_for_numbers_and_replacements_compute_with_them():
    def function(x):
        return (x * 1.5 + 0.25) * 3.0

    ir = lowered(torch_ir.extract_ir(Model(function), (FLOATS,)), "edge")
    rule = Rewrite(
        lambda x, *, a, b, c: (x * a + b) * c,
        lambda x, *, a, b, c: x * (a * c) + b * c,
        (torch.tensor([1.0, 2.0]),),
        attributes={"a": 2.0, "b": 4.0, "c": 0.5},
    )
    made = run_passes(ir, [RewritePatterns((rule,))]).ir
    assert [node.op_type for node in made.nodes] == ["aten.mul.Tensor", "aten.add.Tensor"]
    assert [constant.tolist() for constant in made.constants.values()] == [4.5, 0.75]


def test_other_numbers_are_left_and_said():
    ir = lowered(torch_ir.extract_ir(Model(lambda x: (x * 2.5).relu()), (FLOATS,)), "edge")
    rule = Rewrite(lambda x: (x * 2.0).relu(), lambda x: (x + x).relu(), (FLOATS,))
    assert run_passes(ir, [RewritePatterns((rule,))]).ir is ir
    (miss,) = near_misses(ir, (rule,))
    assert miss.reason == "fill_value of %number_1 is 2.5, the pattern has 2.0"


def test_a_number_that_others_use_stays():
    def function(x):
        return (x * 2.5).relu(), x.sin() * 2.5

    ir = lowered(torch_ir.extract_ir(Model(function), (FLOATS,)), "edge")
    rule = Rewrite(lambda x: (x * 2.5).relu(), lambda x: x.relu() * 2.5, (FLOATS,))
    made = run_passes(ir, [RewritePatterns((rule,))]).ir
    assert operator.eq(*[next(k for k, v in p.constants.items()) for p in (ir, made)])
    assert [n.op_type.split(".")[1] for n in made.nodes] == ["relu", "mul", "sin", "mul"]


def test_numbers_in_branches_match():
    def function(x):
        return torch.cond(x.sum() > 0, lambda y: y * 2.5 + 1, lambda y: y - 1, (x,))

    made, _ = rewritten(function, FLOATS, "edge", pattern=lambda x: x * 2.5 + 1)
    body = next(f for f in made.functions.values() if any("neg" in n.op_type for n in f.nodes))
    assert [n.op_type.split(".")[1] for n in body.nodes].count("neg") == 2
    assert not body.constants
