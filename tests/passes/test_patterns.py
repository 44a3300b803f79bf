"""Rewriting by pattern: what is matched, what is left alone, and what is refused."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.export import Dim

from passes.equal import assert_same, operators
from torch_ir import decompose, extract_ir, functionalize, parse, to_edge
from torch_ir.errors import PassError
from torch_ir.passes import run_passes
from torch_ir.passes.patterns import (
    Rewrite,
    RewritePatterns,
    bind_pattern_to_op,
    fusion,
    rewrite_patterns,
)

LIBRARY = torch.library.Library("patterntest", "FRAGMENT")


@bind_pattern_to_op(LIBRARY, "linrelu(Tensor x, Tensor w) -> Tensor")
def linrelu(x, w):
    return torch.relu(torch.mm(x, w))


@bind_pattern_to_op(LIBRARY, "scaled(Tensor x, Tensor y, *, float by) -> Tensor")
def scaled(x, y, by):
    return (x + y) * by


FUSE = fusion("patterntest.linrelu.default", (torch.randn(2, 3), torch.randn(3, 4)))
TWICE = Rewrite(lambda x: x + x, lambda x: x * 2, (torch.ones(2),))


def program(body, head="input %x: f32[2, 2]"):
    return parse(f'ir "P" {{\n  {head}\n{body}\n}}')


def op_types(ir):
    return [node.op_type for node in ir.nodes]


class Layers(nn.Module):
    def forward(self, x, w):
        for _ in range(2):
            x = torch.relu(torch.mm(x, w))
        return x


@pytest.mark.parametrize("lower", [lambda ir: ir, functionalize, decompose])
def test_b5_a_bound_operator_takes_the_place_of_its_pattern(lower):
    args = torch.randn(4, 4), torch.randn(4, 4)
    ir = lower(extract_ir(Layers(), args))
    result = run_passes(ir, [RewritePatterns((FUSE,))])
    assert result.modified
    assert op_types(result.ir) == ["patterntest.linrelu.default"] * 2
    assert [n.location for n in result.ir.nodes] == [
        n.location for n in ir.nodes if n.op_type == "aten.relu.default"
    ]
    assert_same(ir, result.ir, {}, args)
    back = decompose(result.ir)
    assert op_types(back) == ["aten.mm.default", "aten.relu.default"] * 2
    assert not run_passes(back, [RewritePatterns((TWICE,))]).modified


def test_b5_a_pass_of_edge_programs_puts_it_there():
    args = torch.randn(4, 4), torch.randn(4, 4)
    ir = extract_ir(Layers(), args)
    done = to_edge(ir).transform([RewritePatterns((FUSE,))]).ir("forward")
    assert op_types(done) == ["patterntest.linrelu.default"] * 2
    assert_same(ir, done, {}, args)


def test_sizes_may_vary():
    args = torch.randn(4, 4), torch.randn(4, 4)
    shapes = {"x": {0: Dim("rows", min=2, max=9)}, "w": None}
    ir = extract_ir(Layers(), args, dynamic_shapes=shapes)
    done = rewrite_patterns(ir, [FUSE])
    assert op_types(done) == ["patterntest.linrelu.default"] * 2
    assert_same(ir, done, {}, (torch.randn(7, 4), args[1]))


@pytest.mark.parametrize("order", ["%x, %n", "%n, %x"])
def test_the_order_of_a_sum_does_not_matter(order):
    ir = program(f"""
  %n: f32[2, 2] = aten.neg.default(%x)
  %y: f32[2, 2] = aten.add.Tensor({order})
  return %y""")
    rule = Rewrite(lambda x: x + x.neg(), lambda x: x - x, (torch.ones(2),))
    done = rewrite_patterns(ir, [rule])
    assert op_types(done) == ["aten.sub.Tensor"]


def test_the_order_of_a_difference_does():
    ir = program("""
  %n: f32[2, 2] = aten.neg.default(%x)
  %y: f32[2, 2] = aten.sub.Tensor(%n, %x)
  return %y""")
    rule = Rewrite(lambda x: x - x.neg(), lambda x: x + x, (torch.ones(2),))
    assert rewrite_patterns(ir, [rule]) is ir


def test_an_attribute_of_any_value_is_matched_and_conditions_may_refuse_it():
    example = (torch.randn(2), torch.randn(2))
    by = fusion("patterntest.scaled.default", example, attributes={"by": 2.0})
    ir = extract_ir(Scale(), example)
    done = rewrite_patterns(ir, [by])
    assert op_types(done) == ["patterntest.scaled.default"] * 2
    assert [node.attrs["by"] for node in done.nodes] == [0.5, 3.0]
    assert_same(ir, done, {}, example)

    def is_large(match):
        return match.attributes["by"] > 1

    large = fusion("patterntest.scaled.default", example, attributes={"by": 2.0}, where=is_large)
    done = rewrite_patterns(ir, [large])
    assert op_types(done) == ["aten.add.Tensor", "aten.mul.Tensor", "patterntest.scaled.default"]


class Scale(nn.Module):
    def forward(self, x, y):
        return (y + (x + y) * 0.5) * 3.0


@pytest.mark.parametrize(
    "body",
    [
        # what is inside is used elsewhere, or returned
        "%a: f32[2, 2] = aten.mm.default(%x, %x)\n%y: f32[2, 2] = aten.relu.default(%a)\n"
        "%z: f32[2, 2] = aten.add.Tensor(%a, %y)\nreturn %z",
        "%a: f32[2, 2] = aten.mm.default(%x, %x)\n%y: f32[2, 2] = aten.relu.default(%a)\n"
        "return %a, %y",
        # something writes to it
        "%a: f32[2, 2] = aten.mm.default(%x, %x)\n%n: f32[2, 2] = aten.neg_.default(%a)\n"
        "%y: f32[2, 2] = aten.relu.default(%a)\nreturn %y",
        # it is another operator
        "%a: f32[2, 2] = aten.mm.default(%x, %x)\n%y: f32[2, 2] = aten.exp.default(%a)\nreturn %y",
    ],
    ids=["used", "returned", "written", "other"],
)
def test_a_place_that_is_not_the_pattern_alone_stays(body):
    ir = program(body)
    assert rewrite_patterns(ir, [FUSE]) is ir


def test_several_results_are_replaced_together():
    rule = Rewrite(
        lambda x: (x.exp(), x.exp().neg()),
        lambda x: (torch.exp(x), torch.neg(torch.exp(x))),
        (torch.ones(2),),
    )
    ir = program("""
  %a: f32[2, 2] = aten.exp.default(%x)
  %b: f32[2, 2] = aten.exp.default(%x)
  %c: f32[2, 2] = aten.neg.default(%b)
  %y: f32[2, 2] = aten.add.Tensor(%a, %c)
  return %y""")
    done = rewrite_patterns(ir, [rule])
    assert done.check() == ()
    assert_same(ir, done, {}, (torch.randn(2, 2),))

    both = Rewrite(
        lambda x: (x.relu(), x.neg()),
        lambda x: (x.clamp(min=0), 0 - x),
        (torch.ones(2),),
        {},
        None,
        1e-6,
    )
    ir = program("""
  %a: f32[2, 2] = aten.relu.default(%x)
  %b: f32[2, 2] = aten.exp.default(%a)
  %c: f32[2, 2] = aten.neg.default(%x)
  %y: f32[2, 2] = aten.add.Tensor(%b, %c)
  return %y""")
    done = rewrite_patterns(ir, [both])
    assert done.check() == ()
    assert set(op_types(done)) == {
        "aten.clamp.default",
        "aten.rsub.Scalar",
        "aten.exp.default",
        "aten.add.Tensor",
    }
    assert_same(ir, done, {}, (torch.tensor([[1.0, -2.0], [3.0, 4.0]]),))


def test_a_replacement_may_be_an_input_where_no_caller_can_tell():
    rule = Rewrite(lambda x: x.neg().neg(), lambda x: x, (torch.ones(2),))
    inside = program("""
  %a: f32[2, 2] = aten.neg.default(%x)
  %b: f32[2, 2] = aten.neg.default(%a)
  %y: f32[2, 2] = aten.exp.default(%b)
  return %y""")
    assert op_types(rewrite_patterns(inside, [rule])) == ["aten.exp.default"]
    returned = program("""
  %a: f32[2, 2] = aten.neg.default(%x)
  %b: f32[2, 2] = aten.neg.default(%a)
  return %b""")
    assert rewrite_patterns(returned, [rule]) is returned


def test_branches_are_rewritten_too():
    class Branch(nn.Module):
        def forward(self, x):
            return torch.cond(x.sum() > 0, lambda v: v + v, lambda v: v.neg(), (x,))

    ir = extract_ir(Branch(), (torch.ones(2),))
    done = rewrite_patterns(ir, [TWICE])
    assert "aten.mul.Tensor" in operators(done)
    assert_same(ir, done, {}, (torch.ones(2),))


# -- what is refused ------------------------------------------------------------------------------


def refused(*args, **options):
    with pytest.raises(PassError) as caught:
        Rewrite(*args, **options)
    return str(caught.value)


ONE = torch.tensor([1.0])


def test_a_wrong_replacement_is_refused_when_the_rewrite_is_made():
    assert refused(lambda x: x + x, lambda x: x * 3, (ONE,)) == (
        "the replacement does not compute what the pattern does\n"
        "    arguments   [tensor([1.])]\n"
        "    pattern     [tensor([2.])]\n"
        "    replacement [tensor([3.])]\n"
        "Correct one of them, or give the tolerance that they agree within."
    )


def test_a_replacement_that_is_wrong_for_some_values_only_is_refused():
    assert "does not compute" in refused(lambda x: x * 0, lambda x: x - x + 0.0, (-ONE.repeat(8),))
    by = {"by": 1.0}
    text = refused(lambda x, by: x * by, lambda x, by: x * 1.0, (ONE,), by)
    assert "{'by': 0.75}" in text


def test_a_tolerance_is_relative_to_the_results_of_the_pattern():
    text = refused(lambda x: x * 1e-6, lambda x: x * 5e-6, (torch.ones(4),), tolerance=1e-3)
    assert text.startswith("the replacement does not compute what the pattern does")
    large = (torch.ones(4),)
    Rewrite(lambda x: x * 1e6, lambda x: x * 1e6 + 10, large, tolerance=1e-4)
    Rewrite(lambda x: x.sin() * 1e-6, lambda x: x.sin() * 1.0001e-6, large, tolerance=1e-3)


def test_an_attribute_that_the_pattern_computes_with_is_refused():
    text = refused(lambda x, by: x * (by + 1), lambda x, by: x * (1 + by), (ONE,), {"by": 2.0})
    assert text.startswith("the pattern has no operator with the attribute 'by' as it is given\n")


def test_a_pattern_with_a_tensor_of_its_own_is_refused():
    weight = torch.ones(1)
    assert "holds tensors of its own" in refused(
        lambda x: x + weight, lambda x: x + weight, (ONE,)
    )


def test_an_operator_that_stands_for_no_pattern_cannot_be_fused():
    with pytest.raises(PassError) as caught:
        fusion("patterntest.linrel.default", (ONE,))
    assert str(caught.value).startswith("no pattern is bound to 'patterntest.linrel.default'\n")


# -- on programs that are made up -----------------------------------------------------------------

MOVES = {
    "mm": lambda x, w: torch.mm(x, w),
    "relu": lambda x, w: x.relu(),
    "double": lambda x, w: x + x,
    "mixed": lambda x, w: w + x,
    "scale": lambda x, w: (x + w) * 0.5,
    "write": lambda x, w: x.clone().add_(w),
}


class Chain(nn.Module):
    def __init__(self, names):
        super().__init__()
        self.names = names

    def forward(self, x, w):
        seen = [x]
        for name in self.names:
            seen.append(MOVES[name](seen[-1], w))
        return seen[-1], seen[len(seen) // 2]


@settings(derandomize=True, max_examples=10, deadline=None)
@given(st.lists(st.sampled_from(sorted(MOVES)), min_size=3, max_size=8))
def test_every_rewrite_keeps_every_bit(names):
    args = torch.randn(3, 3), torch.randn(3, 3)
    ir = extract_ir(Chain(names), args)
    rules = (FUSE, TWICE, SCALED)
    result = run_passes(ir, [RewritePatterns(rules)])
    assert result.modified == (result.ir != ir)
    assert_same(ir, result.ir, {}, args)


SCALED = fusion("patterntest.scaled.default", (ONE, ONE), attributes={"by": 2.0})
