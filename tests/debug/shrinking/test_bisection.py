"""Planted passes that break a program: the pass is found, and the node."""

import random
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import nn

from torch_ir import IR, bisect, compare, extract_ir
from torch_ir.debug.comparing import alignment
from torch_ir.debug.comparing.compared import Lineage
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


@pytest.mark.parametrize("kept", [0, alignment.KEPT], ids=["freed", "kept"])
def test_values_that_steps_share_change_no_report(net, kept, monkeypatch):
    ir, weights, inputs = net
    whole = alignment.KEPT
    lineage, verdicts = Lineage(weights, inputs), []
    steps = passes_named("functionalize,no-ops,decompose,no-ops,cse,dce")
    for step in (*steps[:3], Break("add_1"), *steps[3:]):
        after = step(ir).ir
        monkeypatch.setattr(alignment, "KEPT", whole)
        alone = compare(ir, weights, inputs, run=after, against="aten", mode="isolated")
        monkeypatch.setattr(alignment, "KEPT", kept)
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
