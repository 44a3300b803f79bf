"""What a call does beside giving its results: by its schema, its flags, and its functions."""

from __future__ import annotations

import pytest

from ops.calls import tried
from torch_ir import parse
from torch_ir.backends import SUPPORTED, Partitioner
from torch_ir.ops.effects import Effects, effects
from torch_ir.ops.schema import known_operators, lookup
from torch_ir.ops.spec import tagged_traits
from torch_ir.passes.common_subexpressions import common_subexpressions
from torch_ir.passes.dead_code import eliminate_dead_code

ASSERTIONS = (
    *("aten._assert", "aten._functional_assert", "aten.sym_constrain_range"),
    "aten._functional_sym_constrain_range",
)
CHECKS = [name for name in known_operators() if name.startswith(ASSERTIONS)]


@pytest.mark.parametrize("op_type", CHECKS)
def test_every_assertion_checks(op_type):
    found = effects(lookup(op_type), {})
    assert found.checks
    assert not found.is_pure


def test_what_gives_nothing_and_writes_nothing_is_called_for_what_it_does():
    for name in known_operators():
        schema = lookup(name)
        found = effects(schema, {})
        assert schema.returns or not found.is_pure, name


def test_what_nobody_knows_is_not_pure():
    assert effects(None, {}) == Effects(is_known=False)
    assert not effects(None, {}).is_pure


@pytest.mark.parametrize(
    ("op_type", "attrs", "draws"),
    [
        ("aten.dropout.default", {"p": 0.5, "train": True}, True),
        ("aten.dropout.default", {"p": 0.5, "train": False}, False),
        ("aten.dropout.default", {"p": 0.0, "train": True}, False),
        ("aten.native_dropout.default", {"p": 0.5, "train": None}, True),
        ("aten.native_dropout.default", {"p": 0.5, "train": False}, False),
        ("aten.rrelu.default", {}, False),
        ("aten.rrelu.default", {"training": True}, True),
        ("aten.scaled_dot_product_attention.default", {}, False),
        ("aten.scaled_dot_product_attention.default", {"dropout_p": 0.1}, True),
        ("aten.lstm.input", {"dropout": 0.0, "train": True}, False),
        ("aten.lstm.input", {"dropout": 0.5, "train": True}, True),
        ("aten.bernoulli.p", {"p": 0.0}, True),
        ("aten.relu.default", {}, False),
    ],
)
def test_flags_decide_whether_a_call_draws(op_type, attrs, draws):
    assert effects(lookup(op_type), attrs).draws is draws


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_writes_its_statistics_in_training(training):
    found = effects(lookup("aten.batch_norm.default"), {"training": training})
    assert found.writes == (("running_mean", "running_var") if training else ())


def test_what_draws_by_its_tag_draws_in_some_call():
    names = [n for n in known_operators() if "random" in tagged_traits(n) and "like" in n]
    assert names
    for name in names:
        assert tried(name, range(20), lambda attempt: None)[1] == []


DROPS = """
ir "Drops" {
  input %x: f32[2]
  %r: f32[2] = aten.relu.default(%x)
  %a: f32[2] = aten.dropout.default(%r, p=0.5, train=TRAIN)
  %b: f32[2] = aten.dropout.default(%r, p=0.5, train=TRAIN)
  %u: f32[2] = aten.dropout.default(%r, p=0.5, train=TRAIN)
  %y: f32[2] = aten.add.Tensor(%a, %b)
  return %y
}
"""


@pytest.mark.parametrize("train", [True, False])
def test_every_pass_calls_the_same_dropout_pure(train):
    ir = parse(DROPS.replace("TRAIN", str(train)))
    assert len(eliminate_dead_code(ir).nodes) == (5 if train else 4)
    assert len(common_subexpressions(ir).nodes) == (5 if train else 3)
    assert set(Partitioner(Everything())(ir).reasons) == ({"a", "b", "u"} if train else set())


class Everything:
    """A backend that takes all that it is offered."""

    name = "everything"

    def supports(self, node, ir):
        return SUPPORTED


CHECKED = """
ir "Checked" {
  input %x: f32[2]
  input %ok: bool[]
  input %token: f32[0]
  %t: f32[0] = aten._functional_assert_async.msg(%ok, "must hold", %token)
  %y: f32[2] = aten.relu.default(%x)
  return %y
}
"""


def test_an_assertion_stays_where_it_is():
    ir = parse(CHECKED)
    assert Partitioner(Everything())(ir).reasons == {"t": "it checks something"}
    assert [node.name for node in eliminate_dead_code(ir).nodes] == ["t", "y"]


@pytest.mark.parametrize("name", ["_copy_from", "_copy_from_and_resize"])
@pytest.mark.parametrize("overload", ["default", "out"])
def test_copies_into_an_argument_that_no_schema_marks(name, overload):
    assert "dst" in effects(lookup(f"aten.{name}.{overload}"), {}).writes
