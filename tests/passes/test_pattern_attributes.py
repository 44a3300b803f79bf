"""Attributes of patterns: any kind, any value, never another value than the program's."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional

from passes.equal import assert_same
from torch_ir import decompose, extract_ir, parse
from torch_ir.errors import PassError
from torch_ir.passes.patterns import (
    Rewrite,
    bind_pattern_to_op,
    fusion,
    near_misses,
    rewrite_patterns,
)

LIBRARY = torch.library.Library("attributetest", "FRAGMENT")
CONV = "conv_bn_relu(Tensor x, Tensor w, Tensor g, Tensor b, Tensor m, Tensor v, {}) -> Tensor"
X = torch.randn(2, 3, 4)


class Calls(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def rewritten(rule, function, *args):
    """The program of a function before and after a rewrite, which compute the same."""
    ir = extract_ir(Calls(function).eval(), args)
    done = rewrite_patterns(ir, [rule])
    assert done.check() == ()
    assert_same(ir, done, {}, args)
    return ir, done


def op_types(ir):
    return [node.op_type.split(".")[1] for node in ir.nodes]


# -- a replacement may compute with attributes ----------------------------------------------------


@pytest.mark.parametrize("n", [3, -2, 0, 70_001])
def test_a_replacement_that_computes_with_an_attribute_gets_the_one_of_the_place(n):
    rule = Rewrite(
        lambda x, *, n: x.roll(n, 0).roll(n, 0),
        lambda x, *, n: x.roll(2 * n, 0),
        (torch.arange(10.0),),
        attributes={"n": 1},
    )
    _, done = rewritten(rule, lambda x: x.roll(n, 0).roll(n, 0), torch.arange(10.0))
    assert [node.attrs["shifts"] for node in done.nodes] == [(2 * n,)]


def test_a_number_made_of_two_attributes_is_computed_from_those_of_the_place():
    rule = Rewrite(
        lambda x, *, a, b: (x * a) + b,
        lambda x, *, a, b: (x + b / a) * a,
        (torch.ones(3),),
        attributes={"a": 2.0, "b": 0.5},
        tolerance=1e-5,
    )
    ir = extract_ir(Calls(lambda x: (x * 3.0) + 1.0), (torch.ones(3),))
    done = rewrite_patterns(ir, [rule])
    assert [node.attrs["other"] for node in done.nodes] == [1.0 / 3.0, 3.0]


def test_a_size_that_varies_is_put_where_it_stands_as_it_is_and_nowhere_else():
    text = """ir "P" {
  symbol s0: 2..9
  input %x: f32[s0, 3]
  %y: f32[s0, 3] = aten.add.Scalar(%x, `s0`)
  %z: f32[s0, 3] = aten.add.Scalar(%y, `s0`)
  return %z
}"""
    ir = parse(text)

    def pattern(x, *, n):
        return torch.ops.aten.add.Scalar(torch.ops.aten.add.Scalar(x, n), n)

    ones = (torch.ones(2),)
    computes = Rewrite(
        pattern, lambda x, *, n: torch.ops.aten.add.Scalar(x, 2 * n), ones, {"n": 1}
    )
    assert rewrite_patterns(ir, [computes]) is ir
    *_, miss = near_misses(ir, [computes])
    assert miss.reason == "the replacement has no operator with the attribute 'n' as it is given"
    passes = Rewrite(pattern, lambda x, *, n: torch.add(x, n).add(n), ones, {"n": 1})
    done = rewrite_patterns(ir, [passes])
    assert [str(node.attrs["other"]) for node in done.nodes] == ["s0", "s0"]


def test_a_rule_that_is_wrong_with_the_attribute_of_a_place_leaves_it():
    rule = Rewrite(
        lambda x, *, n: x * n, lambda x, *, n: x * min(n, 9), (torch.ones(2),), {"n": 2}
    )
    ir = extract_ir(Calls(lambda x: x * 50), (torch.ones(2),))
    assert rewrite_patterns(ir, [rule]) is ir
    (miss,) = near_misses(ir, [rule])
    assert miss.reason == "the replacement does not compute what the pattern does"


def test_a_pattern_that_is_another_with_the_attribute_of_a_place_leaves_it():
    def clamped(x, *, n):
        return x.roll(min(n, 9), 0)

    rule = Rewrite(clamped, lambda x, *, n: clamped(x, n=n) * 1.0, (X,), {"n": 2})
    ir = extract_ir(Calls(lambda x: x.roll(50, 0)), (X,))
    assert rewrite_patterns(ir, [rule]) is ir


# -- every kind of attribute ----------------------------------------------------------------------


def test_pairs_of_transpositions_of_any_dimensions_are_removed():
    rule = Rewrite(
        lambda x, *, a, b: x.transpose(a, b).transpose(a, b),
        lambda x, *, a, b: x,
        (torch.randn(2, 3, 4, 5),),
        attributes={"a": 1, "b": 2},
        examples=({"a": -1, "b": 0}, {"a": 3, "b": 3}),
    )
    for a, b in itertools.product(range(-4, 4), repeat=2):

        def twice(x, a=a, b=b):
            return x.transpose(a, b).transpose(a, b) + 1

        _, done = rewritten(rule, twice, torch.randn(2, 3, 4, 5))
        assert op_types(done) == ["add"]
    ir, done = rewritten(rule, lambda x: x.transpose(0, 1).transpose(1, 2) + 1, X)
    assert done is ir


KINDS = {
    "list": (lambda x, *, a: x.permute(a), [0, 2, 1], [2, 0, 1]),
    "a list of another length": (lambda x, *, a: x.sum(a), (0, 1), (2,)),
    "an element of a list": (lambda x, *, a: x.roll([a, 1], [0, 1]), 2, 5),
    "an int for a list": (lambda x, *, a: functional.avg_pool1d(x, a), 2, 4),
    "bool": (lambda x, *, a: x.sum(0, keepdim=a), False, True),
    "str": (lambda x, *, a: functional.gelu(x, approximate=a), "none", "tanh"),
    "dtype": (lambda x, *, a: x.sum(0, dtype=a), torch.float32, torch.float64),
    "None": (lambda x, *, a: x.std(0, correction=a), None, 0),
    "a bound": (lambda x, *, a: functional.hardtanh(x, min_val=a), -1.0, -0.5),
    "the default": (lambda x, *, a: functional.leaky_relu(x, a), 0.5, 0.01),
    "a flag": (lambda x, *, a: x.cumsum(a), 0, -1),
}


@pytest.mark.parametrize("kind", KINDS)
def test_an_attribute_of_every_kind_is_matched_with_every_value(kind):
    function, first, second = KINDS[kind]
    examples = () if kind not in ("str", "None") else ({"a": second},)
    rule = Rewrite(
        lambda x, *, a: function(x, a=a).neg(),
        lambda x, *, a: function(x, a=a).neg().clone(),
        (X,),
        {"a": first},
        examples=examples,
    )
    for value in (first, second):
        _, done = rewritten(rule, lambda x, value=value: function(x, a=value).neg() + 1, X)
        assert op_types(done)[-3:] == ["neg", "clone", "add"], value


def test_one_rule_takes_convolutions_of_every_stride_padding_and_dilation():
    schema = CONV.format("int stride, int padding, int dilation, float eps")

    @bind_pattern_to_op(
        LIBRARY,
        schema,
        example_inputs=(
            torch.randn(1, 3, 8, 8),
            torch.randn(4, 3, 3, 3),
            *[torch.rand(4) for _ in range(4)],
            *(1, 1, 1, 1e-5),
        ),
    )
    def conv_bn_relu(x, w, g, b, m, v, stride, padding, dilation, eps):
        made = functional.conv2d(x, w, None, stride, padding, dilation)
        return functional.relu(functional.batch_norm(made, m, v, g, b, False, 0.1, eps))

    args = (torch.randn(1, 3, 8, 8), torch.randn(4, 3, 3, 3), *[torch.rand(4) for _ in range(4)])
    attributes = {"stride": 1, "padding": 1, "dilation": 1, "eps": 1e-5}
    rule = fusion("attributetest.conv_bn_relu.default", args, attributes=attributes)
    for stride, padding, dilation, kernel in itertools.product(
        (1, 2), (0, 1, 2), (1, 2), (1, 2, 3)
    ):
        options = (stride, padding, dilation, 1e-5)
        given = (args[0], torch.randn(4, 3, kernel, kernel), *args[2:])
        _, done = rewritten(rule, lambda *t, o=options: conv_bn_relu(*t, *o), *given)
        assert op_types(done) == ["conv_bn_relu"], (stride, padding, dilation, kernel)


def test_what_is_left_out_of_an_index_is_not_matched_with_what_is_given():
    rule = Rewrite(lambda x, i: x[:, i].neg(), lambda x, i: -x[:, i], (X, torch.tensor([1, 0])))
    ir, done = rewritten(rule, lambda x, i: x[i].neg(), X, torch.tensor([1, 0]))
    assert done is ir


# -- what is refused, and what is nearly matched --------------------------------------------------


def refused(*args, **options):
    with pytest.raises(PassError) as caught:
        Rewrite(*args, **options)
    return str(caught.value)


def test_an_attribute_that_chooses_operators_is_refused():
    def choose(x, *, n):
        return x.relu() if n > 1 else x.neg()

    text = refused(choose, choose, (X,), {"n": 1})
    assert text.startswith("the pattern calls other operators with n=2\n")


def test_a_pattern_that_a_dialect_has_no_form_of_does_not_stop_the_others():
    def shuffled(x, *, n):
        return functional.pixel_shuffle(x, n)

    shuffle = Rewrite(
        shuffled, lambda x, *, n: shuffled(x, n=n).clone(), (torch.rand(1, 36, 2, 2),), {"n": 2}
    )
    twice = Rewrite(lambda x: x * 2.0, lambda x: x + x, (X,))
    core = decompose(extract_ir(Calls(lambda x: (x * 2.0).relu()), (X,)))
    done = rewrite_patterns(core, [shuffle, twice])
    assert [node.op_type for node in done.nodes] == ["aten.add.Tensor", "aten.relu.default"]
    (miss,) = near_misses(core, [shuffle, twice])
    told = "the pattern has no operator with the attribute 'n' as it is given"
    assert (miss.node, miss.reason, miss.rewrite) == ("", told, 0)
    with pytest.raises(PassError, match=told):
        rewrite_patterns(core, [shuffle])


def test_an_attribute_without_other_values_asks_for_examples():
    def approximate(x, *, how):
        return functional.gelu(x, approximate=how)

    assert refused(approximate, approximate, (X,), {"how": "none"}) == (
        "the pattern takes no other value of the attribute 'how' that was tried\n"
        "Give one that it takes: examples=({'how': ...},)."
    )
    assert refused(approximate, approximate, (X,), {}, examples=({"how": "tanh"},)) == (
        "examples= has 'how', attributes= has not\nGive each attribute a value in attributes=."
    )
    same = refused(approximate, approximate, (X,), {"how": "none"}, examples=({"how": "none"},))
    assert same.startswith("the pattern takes no other value of the attribute 'how'")
    assert "cannot be a object" in refused(approximate, approximate, (X,), {"how": object()})


def test_attributes_that_change_together_in_the_examples_are_told_apart():
    def turned(x, *, a, b):
        return x.roll(a, 0).roll(b, 1)

    def both(x, *, a, b):
        return x.roll((a, b), (0, 1))

    rule = Rewrite(turned, both, (X,), attributes={"a": 1, "b": 1}, examples=({"a": 2, "b": 2},))
    _, done = rewritten(rule, lambda x: x.roll(2, 0).roll(3, 1), X)
    assert [node.attrs["shifts"] for node in done.nodes] == [(2, 3)]

    def named(x, *, how, also):
        return functional.gelu(functional.gelu(x, approximate=how), approximate=also)

    values = {"how": "none", "also": "none"}
    assert refused(named, named, (X,), values, examples=(dict.fromkeys(values, "tanh"),)) == (
        "the pattern takes no other value of the attribute 'how' apart from that of 'also' that "
        "was tried\nGive one that it takes: examples=({'how': ...},)."
    )


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: (x * 3.0).exp(), "other of %mul is 3.0, the pattern has 2.0"),
        (lambda x: (x + 2.0).exp(), "%add is aten.add.Tensor, not aten.mul.Tensor"),
        (lambda x: (x * x).exp(), "other of %mul is the tensor %args_0, the pattern has 2.0"),
        (lambda x: x.exp(), "%args_0 is not made by aten.mul.Tensor"),
        (lambda x: ((y := x * 2.0).exp(), y + 1), "%mul is used by 'add' too"),
        (lambda x: ((y := x * 2.0).exp(), y), "%mul is a result of the program"),
        (lambda x: (x * 2.0).neg_().exp(), "%neg_ is aten.neg_.default, not aten.mul.Tensor"),
    ],
)
def test_near_misses_say_why_a_place_is_left(function, reason):
    rule = Rewrite(lambda x: (x * 2.0).exp(), lambda x: (x + x).exp(), (X,))
    ir = extract_ir(Calls(function), (X,))
    assert rewrite_patterns(ir, [rule]) is ir
    (miss,) = near_misses(ir, [rule, rule])[:1]
    assert (miss.node, miss.reason, miss.rewrite) == ("exp", reason, 0)
    assert miss.location == ir.node("exp").location


def test_a_number_where_the_pattern_has_a_tensor_is_said():
    rule = Rewrite(lambda x, y: (x * y).exp(), lambda x, y: (y * x).exp(), (X, X))
    (miss,) = near_misses(extract_ir(Calls(lambda x: (x * 2.0).exp()), (X,)), [rule])
    assert miss.reason == "other of %mul is 2.0, the pattern has a tensor"


def test_a_place_that_matches_is_no_near_miss():
    rule = Rewrite(lambda x: (x * 2.0).exp(), lambda x: (x + x).exp(), (X,))
    assert near_misses(extract_ir(Calls(lambda x: (x * 2.0).exp()), (X,)), [rule]) == ()
