"""Planted passes that break a program: the pass is found, and the node."""

import random
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import nn

from torch_ir import IR, bisect, compare, extract_ir, parse
from torch_ir.debug.comparing import keeping
from torch_ir.debug.comparing.lineage import Lineage
from torch_ir.debug.comparing.sources import TorchSource
from torch_ir.errors import PassError
from torch_ir.passes import Pass, PassResult, passes_named, run_passes

OTHERS = {"aten.add.Tensor": "aten.sub.Tensor", "aten.relu.default": "aten.sigmoid.default"}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        h = torch.relu(self.a(x)) + x
        return torch.relu(self.b(h) + h).view(2, 4) + 1


@dataclass(frozen=True)
class Break(Pass):
    """Puts another operator in the place of one node."""

    name: ClassVar[str] = "break"
    node: str = ""

    def call(self, ir: IR) -> PassResult:
        nodes = [
            node.replace(op_type=OTHERS[node.op_type]) if node.name == self.node else node
            for node in ir.nodes
        ]
        return PassResult(ir.replace(nodes=nodes), True)


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    model, inputs = Net().eval(), (torch.randn(2, 4),)
    return extract_ir(model, inputs), dict(model.state_dict()), inputs


def test_a_planted_pass_and_its_node_are_found_wherever_it_stands(net):
    ir, weights, inputs = net
    right = passes_named("no-ops,cse,decompose,clean-casts,dce")
    rng = random.Random(0)
    nodes = [node.name for node in ir.nodes if node.op_type in OTHERS]
    for _ in range(8):
        wrong, place = Break(rng.choice(nodes)), rng.randint(0, len(right))
        steps = [*right[:place], wrong, *right[place:]]
        found = bisect(ir, steps, weights, inputs)
        assert (found.index, found.step) == (place, wrong)
        assert found.report.first.node == wrong.node
        assert str(found).startswith(f"pass {place + 1} of 6, break{{node={wrong.node}}}, breaks")
    assert bisect(ir, right, weights, inputs).index is None
    told = bisect(
        ir,
        [*right, wrong],
        weights,
        inputs,
        oracle=lambda ir, *_: any(node.op_type in OTHERS.values() for node in ir.nodes),
    )
    assert (told.index, told.failure) == (5, "it fails")


def test_passes_are_validated_as_they_run(net):
    ir, weights, inputs = net
    steps = [*passes_named("no-ops,decompose"), Break("add_1"), *passes_named("dce")]
    given = {"weights": weights, "inputs": inputs}
    for level, maker in (("each", "break{node=add_1}"), ("stage", "the passes")):
        with pytest.raises(PassError) as caught:
            run_passes(ir, steps, validate=level, **given)
        message = f"{maker} made a program that computes something else\n    node 'add_1'"
        assert str(caught.value).startswith(message)
    assert run_passes(ir, steps, **given).modified
    right = passes_named("no-ops,decompose,cse,dce")
    assert run_passes(ir, right, validate="each", **given).ir == run_passes(ir, right).ir
    with pytest.raises(PassError, match="validate cannot be 'never'"):
        run_passes(ir, right, validate="never")


@pytest.mark.parametrize("kept", [0, keeping.KEPT], ids=["freed", "kept"])
def test_values_that_steps_share_change_no_report(net, kept, monkeypatch):
    ir, weights, inputs = net
    whole = keeping.KEPT
    lineage, verdicts = Lineage(weights, inputs), []
    steps = passes_named("functionalize,no-ops,decompose,no-ops,cse,dce")
    for step in (*steps[:3], Break("add_1"), *steps[3:]):
        after = step(ir).ir
        monkeypatch.setattr(keeping, "KEPT", whole)
        alone = compare(ir, weights, inputs, run=after, against="aten", mode="isolated")
        monkeypatch.setattr(keeping, "KEPT", kept)
        assert lineage.compare(ir, after) == alone
        ir = after
        verdicts.append(alone.verdict)
    assert verdicts == [*["agree"] * 3, "disagree", *["agree"] * 3]


class Attention(nn.Module):
    """Operators that decompose to many nodes of one type, of which the last alone is the value."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x):
        q, k, v = self.qkv(x.transpose(1, 2)).chunk(3, -1)
        return nn.functional.scaled_dot_product_attention(q, k, v) + q


DIVIDED = parse("""ir {
  input %x: f32[64]
  %third: f32[64] = aten.div.Scalar(%x, 3.0)
  %half: f32[64] = aten.mul.Scalar(%third, 0.5)
  %sum: f32[64] = aten.add.Tensor(%half, %third)
  return %sum
}""")
TIMES = DIVIDED.node("third").replace(op_type="aten.mul.Scalar", attrs={"other": 1 / 3})
ROUNDED = DIVIDED.replace(nodes=[TIMES, *DIVIDED.nodes[1:]])
LATER = {
    "third": {"attrs": {"other": 0.3334}},
    "half": {"attrs": {"other": 0.5001}},
    "sum": {"op_type": "aten.sub.Tensor"},
}


@pytest.mark.parametrize("name", LATER)
def test_a_fault_is_found_behind_a_pass_that_changed_the_bits(name):
    lineage, x = Lineage({}, (torch.linspace(-1, 1, 64),)), ROUNDED.node(name)
    assert lineage.compare(DIVIDED, ROUNDED).verdict == "agree"
    (_, kept) = lineage.kept[-1]
    assert kept.moved == {"third"}  # it has other bits, and what reads it is fed those before
    assert not torch.equal(kept.values["third"], kept.calls["third"].made["third"])
    nodes = [n.replace(**LATER[name]) if n is x else n for n in ROUNDED.nodes]
    found = lineage.compare(ROUNDED, ROUNDED.replace(nodes=nodes))
    assert [fault.node for fault in found.divergences] == [name]
    assert found.compared == (name,)


def test_what_no_pass_changed_is_made_once(monkeypatch):
    torch.manual_seed(0)
    model, inputs = Attention().eval(), (torch.randn(2, 8, 5),)
    ir, made = extract_ir(model, inputs), list[str]()
    results = TorchSource.results

    def counted(source, program, node, values, symbols):
        made.append(node.name)
        return results(source, program, node, values, symbols)

    monkeypatch.setattr(TorchSource, "results", counted)
    lineage = Lineage(dict(model.state_dict()), inputs)
    for number, step in enumerate(passes_named("functionalize,decompose,no-ops,cse,dce")):
        after = step(ir).ir
        made.clear()
        lineage.compare(ir, after)
        anew = [node for node in after.nodes if node not in ir.nodes]
        assert len(made) <= len(anew) + (len(ir.nodes) if number == 1 else 0)
        ir = after


@pytest.mark.parametrize("first", ["decompose", "no-ops,decompose,cse", "decompose,dce"])
@pytest.mark.parametrize("last", ["no-ops", "no-ops,cse,dce", "clean-casts,no-ops"])
def test_right_passes_agree_on_programs_that_were_lowered_before(first, last):
    torch.manual_seed(0)
    model, inputs = Attention().eval(), (torch.randn(2, 8, 5),)
    given = {"weights": dict(model.state_dict()), "inputs": inputs}
    lowered = run_passes(extract_ir(model, inputs), passes_named(first)).ir
    result = run_passes(lowered, passes_named(last), validate="each", **given)
    assert result.modified
    report = compare(lowered, *given.values(), run=result.ir)
    assert (report.verdict, report.not_compared) == ("agree", {})
