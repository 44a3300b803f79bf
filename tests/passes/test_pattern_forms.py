"""Rewrites of several forms: sizes of the place, alternatives, lists of any length, weights."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional

import torch_ir
from passes.equal import assert_same
from torch_ir import IRExecutor, extract_ir
from torch_ir.errors import PassError
from torch_ir.passes import fold_weights
from torch_ir.passes.patterns import Rewrite, near_misses, rewrite_patterns


class Calls(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def program(function, *args, **options):
    return extract_ir(Calls(function).eval(), args, **options)


def op_types(ir):
    return [node.op_type.split(".")[1] for node in ir.nodes]


# -- shapes ---------------------------------------------------------------------------------------

MEAN = Rewrite(
    lambda x: x.mean(-1), lambda x: x.sum(-1) / x.shape[-1], (torch.randn(2, 8),), tolerance=1e-6
)


@pytest.mark.parametrize("size", [3, 8, 12])
def test_a_replacement_that_computes_with_a_size_gets_that_of_the_place(size):
    x = torch.randn(2, size)
    done = rewrite_patterns(program(lambda x: x.mean(-1), x), [MEAN])
    assert done.nodes[-1].attrs["other"] == size
    torch.testing.assert_close(IRExecutor(done, {})(x), x.mean(-1))


def test_a_size_that_varies_is_no_number_of_the_replacement():
    x = torch.randn(2, 8)
    varies = program(lambda x: x.mean(-1), x, dynamic_shapes=(({1: Dim("n", min=2, max=64)},),))
    assert rewrite_patterns(varies, [MEAN]) is varies
    (miss,) = near_misses(varies, [MEAN])
    assert miss.reason == "the replacement computes with sizes or dtypes, which are others here"
    rows = program(lambda x: x.mean(-1), x, dynamic_shapes=(({0: Dim("n", min=2, max=64)},),))
    done = rewrite_patterns(rows, [MEAN])
    torch.testing.assert_close(IRExecutor(done, {})(torch.ones(5, 8)), torch.ones(5))


def test_a_pattern_that_is_another_one_in_the_shapes_of_a_place_does_not_occur_there():
    rule = Rewrite(
        lambda x: x * x.shape[0], lambda x: x * x.shape[0] * 1, (torch.ones(2, 3),), tolerance=1e-6
    )
    rewritten = rewrite_patterns(program(lambda x: x * 2, torch.ones(2, 5)), [rule])
    assert op_types(rewritten) == ["mul", "mul"]
    other = program(lambda x: x * 2, torch.ones(4, 5))
    assert rewrite_patterns(other, [rule]) is other
    (miss,) = near_misses(other, [rule])
    assert miss.reason == "the pattern computes with sizes or dtypes, which are others here"


def test_a_rule_that_is_wrong_in_the_shapes_of_a_place_leaves_it():
    rule = Rewrite(lambda x: x.mean(), lambda x: x.sum() / 4, (torch.ones(4),), tolerance=1e-6)
    ir = program(lambda x: x.mean(), torch.randn(6))
    assert rewrite_patterns(ir, [rule]) is ir
    (miss,) = near_misses(ir, [rule])
    assert miss.reason == "the replacement does not compute what the pattern does"


# -- alternatives ---------------------------------------------------------------------------------

ACTIVATED = Rewrite(
    lambda x, w, b, *, has_bias, act: act(functional.linear(x, w, b if has_bias else None)),
    lambda x, w, b, *, has_bias, act: act(x @ w.t() + b if has_bias else x @ w.t()),
    (torch.randn(2, 3), torch.randn(4, 3), torch.randn(4)),
    tolerance=1e-5,
    choices={"has_bias": (True, False), "act": (torch.relu, torch.tanh)},
)


@pytest.mark.parametrize("act", ["relu", "tanh", "sigmoid"])
@pytest.mark.parametrize("bias", [True, False])
def test_each_combination_of_choices_is_looked_for(bias, act):
    layer, x = nn.Linear(3, 4, bias=bias), torch.randn(5, 3)
    ir = extract_ir(
        nn.Sequential(layer, getattr(nn, act.capitalize().replace("elu", "eLU"))()), (x,)
    )
    done = rewrite_patterns(ir, [ACTIVATED])
    if act == "sigmoid":
        assert done is ir
        return
    assert op_types(done) == ["t", "matmul", *(["add"] if bias else []), act]
    weights = {f"0.{name}": value for name, value in layer.state_dict().items()}
    assert_same(ir, done, weights, (x,))
    assert near_misses(ir, [ACTIVATED]) == ()


def test_the_reason_is_that_of_the_alternative_that_fits_most():
    ir = program(lambda x: ((x * 2.0) + 1.0).relu(), torch.ones(3))
    rule = Rewrite(
        lambda x, *, by: ((x * by) + 3.0).relu() if by else (x - 1.0).relu(),
        lambda x, *, by: torch.relu(x * by + 3.0) if by else torch.relu(x - 1.0),
        (torch.ones(3),),
        choices={"by": (0.0, 2.0)},
    )
    (miss,) = near_misses(ir, [rule])
    assert miss.reason == "other of %add is 1.0, the pattern has 3.0"


def test_a_choice_that_is_an_attribute_or_has_no_alternative_is_refused():
    for choices, why in (({"n": (1,)}, "is an attribute too"), ({"m": ()}, "has no alternative")):
        with pytest.raises(PassError, match=why):
            Rewrite(abs, abs, (torch.ones(2),), {"n": 1}, choices=choices)


# -- lists of tensors -----------------------------------------------------------------------------

EACH = Rewrite(
    lambda xs, *, d: torch.cat([x.relu() for x in xs], d),
    lambda xs, *, d: torch.cat(list(xs), d).relu(),
    ([torch.randn(2, 3), torch.randn(2, 3)],),
    attributes={"d": 0},
    examples=({"d": 1},),
)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_a_list_of_tensors_stands_for_one_of_any_length(count):
    args = [torch.randn(2, 3) for _ in range(count)]
    ir = program(lambda *xs: torch.cat([x.relu() for x in xs], 1), *args)
    done = rewrite_patterns(ir, [EACH])
    assert op_types(done) == ["cat", "relu"]
    assert_same(ir, done, {}, args)


def test_lists_of_several_lengths_are_found_in_one_program():
    args = [torch.randn(2, 2) for _ in range(3)]

    def function(a, b, c):
        return torch.cat([a.relu(), b.relu(), c.relu()]), torch.cat([a.relu(), b.relu()], 1)

    ir = program(function, *args)
    done = rewrite_patterns(ir, [EACH])
    assert op_types(done) == ["cat", "relu", "cat", "relu"]
    assert_same(ir, done, {}, args)


def test_a_length_that_occurs_in_a_function_of_a_function_alone_is_found():
    def inner(a, b):
        return torch.cat([a.relu(), b.relu(), a.relu()])

    def outer(a, b, p):
        return torch.cond(p.all(), inner, lambda a, b: (a * b).repeat(3, 1), (a, b))

    def function(a, b, p):
        return torch.cond(p.any(), outer, lambda a, b, p: (a - b).repeat(3, 1), (a, b, p))

    args = (torch.randn(2, 3), torch.randn(2, 3), torch.tensor([True]))
    ir = program(function, *args)
    done = rewrite_patterns(ir, [EACH])
    assert [n.op_type for _, _, n in done.walk()].count("aten.relu.default") == 1
    assert_same(ir, done, {}, args)


def test_a_rule_that_is_wrong_for_another_length_says_so():
    rule = Rewrite(
        lambda xs: torch.cat([x.neg() for x in xs]),
        lambda xs: torch.cat([-xs[0], -xs[1]]),
        ([torch.ones(2), torch.ones(2)],),
    )
    ir = program(lambda *xs: torch.cat([x.neg() for x in xs]), *[torch.ones(2)] * 3)
    with pytest.raises(PassError, match="the replacement does not compute what the pattern does"):
        rewrite_patterns(ir, [rule])


# -- weights that the rewrite computes ------------------------------------------------------------


def scaled(x, w, g, b, m, v, eps):
    scale = g / torch.sqrt(v + eps)
    return functional.conv2d(x, w * scale.reshape(-1, 1, 1, 1), b - m * scale)


CONV_BN = Rewrite(
    lambda x, w, g, b, m, v, *, eps: functional.batch_norm(
        functional.conv2d(x, w), m, v, g, b, False, 0.1, eps
    ),
    lambda x, w, g, b, m, v, *, eps: scaled(x, w, g, b, m, v, eps),
    (torch.randn(1, 3, 4, 4), torch.randn(2, 3, 1, 1), *[torch.rand(2) + 0.5 for _ in range(4)]),
    attributes={"eps": 1e-5},
    tolerance=1e-5,
    fixed=("w", "g", "b", "m", "v"),
)


def test_what_a_rewrite_computes_from_weights_is_computed_ahead():
    net = nn.Sequential(nn.Conv2d(3, 5, 2, bias=False), nn.BatchNorm2d(5), nn.ReLU()).eval()
    nn.init.uniform_(net[1].running_var, 0.5, 2.0)
    x = torch.randn(2, 3, 6, 6)
    ir = extract_ir(net, (x,))
    rewritten = rewrite_patterns(ir, [CONV_BN])
    done = fold_weights(rewritten, net.state_dict())
    assert op_types(done.ir) == ["conv2d", "relu"]
    assert done.ir.check() == ()
    assert {meta.name for meta in done.ir.weights} == set(done.weights)
    assert not {"0.weight", "1.weight", "1.bias", "1.running_mean"} & set(done.weights)
    assert torch.equal(
        IRExecutor(done.ir, done.weights)(x), IRExecutor(rewritten, net.state_dict())(x)
    )
    torch.testing.assert_close(IRExecutor(done.ir, done.weights)(x), net(x))
    assert fold_weights(done.ir, done.weights).ir is done.ir


def test_an_argument_that_is_no_weight_is_not_fixed():
    def function(x, w, g, b, m, v):
        return functional.batch_norm(functional.conv2d(x, w), m, v, g, b)

    args = (torch.randn(1, 3, 4, 4), torch.randn(2, 3, 1, 1), *[torch.ones(2) for _ in range(4)])
    ir = program(function, *args)
    assert rewrite_patterns(ir, [CONV_BN]) is ir
    (miss,) = near_misses(ir, [CONV_BN])
    assert miss.reason.endswith("is no weight or constant, or is written")
    with pytest.raises(PassError, match="fixed= has 'y', which is no tensor of the pattern"):
        Rewrite(torch.relu, torch.relu, (torch.ones(2),), fixed=("y",))


# -- casts ----------------------------------------------------------------------------------------


def norm_in_float(x, w):
    """The norm of most language models; torch.export checks the type of what is cast back."""
    wide = x.to(torch.float32)
    return w * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


@pytest.mark.parametrize("form", [lambda ir: ir, torch_ir.functionalize, torch_ir.decompose])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_checks_of_types_inside_go_with_the_pattern(dtype, form):
    x, w = torch.randn(2, 8).to(dtype), torch.rand(8).to(dtype)
    norm = Rewrite(
        norm_in_float,
        lambda x, w: functional.rms_norm(x, (x.shape[-1],), w, 1e-6),
        (x, w),
        tolerance=1e-6 if dtype == torch.float32 else 2e-2,
    )
    ir = form(program(lambda x, w: norm_in_float(x * 2, w), x, w))
    assert "_assert_tensor_metadata" in op_types(ir)
    done = rewrite_patterns(ir, [norm])
    assert done.check() == ()
    torch.testing.assert_close(IRExecutor(done, {})(x, w), norm_in_float(x * 2, w))
    assert done is not ir


def test_a_check_of_a_result_or_of_what_is_used_elsewhere_stays():
    wrap = Rewrite(lambda x: x.cos().sin(), lambda x: x.cos().sin() + 0, (torch.ones(2),))
    x = torch.ones(3)
    kept = program(lambda x: x.cos().sin().to(torch.float64), x)
    done = rewrite_patterns(kept, [wrap])
    assert op_types(done).count("_assert_tensor_metadata") == 1
    both = program(lambda x: ((y := x.cos()).sin(), y.to(torch.float64)), x)
    assert rewrite_patterns(both, [wrap]) is both
    assert [miss.reason for miss in near_misses(both, [wrap])] == ["%cos is used by 'to' too"]


@pytest.mark.parametrize(
    ("check", "goes"),
    [
        ("dtype=torch.float32, size=[3]", True),
        ("size=[3]", True),
        ("dtype=torch.float64", False),
        ("size=[4]", False),
        ("stride=[1]", False),
    ],
)
def test_a_check_that_says_more_than_the_recorded_type_stays_with_its_value(check, goes):
    wrap = Rewrite(lambda x: x.cos().sin(), lambda x: x.tan(), (torch.ones(2),), tolerance=9.0)
    ir = torch_ir.parse(
        f"""ir {{
          input %x: f32[3]
          %y: f32[3] = aten.cos.default(%x)
          check: aten._assert_tensor_metadata.default(%y, {check})
          %z: f32[3] = aten.sin.default(%y)
          return %z
        }}"""
    )
    assert (rewrite_patterns(ir, [wrap]) is not ir) == goes
