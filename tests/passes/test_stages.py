"""Programs as chains of stages."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import nn

from passes.test_outline import Net, layered
from torch_ir import compile_graph, cut, extract_ir, parse
from torch_ir.errors import PassError
from torch_ir.ir import IR
from torch_ir.passes import functionalize, outline
from whole_way import same


def chained(ir: IR, stages: tuple[IR, ...], args, weights=None, calls: int = 1):
    """The results of stages one after the other, and of the whole program, for some calls."""
    assert [n.name for s in stages for n in s.nodes] == [n.name for n in ir.nodes]
    assert all(stage.check() == () for stage in stages)
    assert stages[0].input_names == ir.input_names
    assert stages[-1].output_names == ir.output_names
    for before, after in pairwise(stages):
        assert before.output_names == after.input_names
    targets = sorted(m.target for s in stages for m in s.mutations)
    assert targets == sorted(m.target for m in ir.mutations)
    graphs = [compile_graph(stage, weights) for stage in stages]
    whole = compile_graph(ir, weights)
    for _ in range(calls):
        values = tuple(tensor.clone() for tensor in args)
        for graph in graphs:
            values = graph.eval(values)
        assert same(tuple(values), tuple(whole.eval(tuple(t.clone() for t in args))))


@pytest.mark.parametrize("seed", range(10))
def test_stages_do_what_the_program_does(seed):
    ir = functionalize(layered(seed))
    args = (torch.tensor([0.5, -2.0]), torch.tensor([1.5, 0.25]))
    for count in range(1, min(5, len(ir.nodes) + 1)):
        stages = cut(ir, count)
        assert len(stages) == count
        chained(ir, stages, args)
    outlined = outline(ir)
    chained(outlined, cut(outlined, min(3, len(outlined.nodes))), args)


def test_weights_and_state_belong_to_one_stage():
    torch.manual_seed(0)
    net, x = Net(*[1.0] * 4), torch.randn(2, 4)
    for ir in (extract_ir(net, (x,)), outline(extract_ir(net, (x,)))):
        stages = cut(ir, 4)
        assert [
            sorted(w.name.split(".")[1] for w in s.weights if "layers" in w.name)[0]
            for s in stages
        ] == list("0123")
        assert [len(stage.mutations) for stage in stages] == [1] * 4
        chained(ir, stages, (x,), net.state_dict(), calls=2)


def test_costs_and_positions_decide():
    ir = extract_ir(nn.Sequential(*[nn.ReLU() for _ in range(6)]), (torch.randn(2),))
    assert [len(s.nodes) for s in cut(ir, 3)] == [2, 2, 2]
    assert [len(s.nodes) for s in cut(ir, 2, cost=lambda node: node is ir.nodes[0])] == [1, 5]
    assert [len(s.nodes) for s in cut(ir, [1, 5])] == [1, 4, 1]
    with pytest.raises(PassError, match="cannot begin at"):
        cut(ir, [5, 1])
    with pytest.raises(PassError, match="7 stages: 6 stages at most"):
        cut(ir, 7)


def test_a_cut_between_a_view_and_a_write_is_refused():
    ir = parse("""ir {
      input %x: f32[4]
      %a: f32[4] = aten.neg.default(%x)
      %v: f32[2, 2] = aten.view.default(%a, size=[2, 2])
      %w: f32[4] = aten.add_.Scalar(%a, other=1)
      %y: f32[2, 2] = aten.relu.default(%v)
      return %y
    }""")
    with pytest.raises(PassError) as caught:
        cut(ir, [2])
    assert caught.value.message == (
        "nodes 'v' and 'w' use memory that the program writes, and stand on two sides of a cut "
        "at node 2"
    )
    with pytest.raises(PassError, match="1 stage at most"):
        cut(ir, 2)
