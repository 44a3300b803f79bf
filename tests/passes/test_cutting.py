"""Parts of programs: exactly the nodes that are asked for, and the values of the whole."""

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.small_models import CASES
from tests.strategies import well_formed_irs

from torch_ir import IRExecutor, capture, cut, extract_ir, functionalize, parse
from torch_ir.errors import ExecutionError, InvalidIRError, PassError
from torch_ir.passes.cutting import nodes_around

CHAIN = parse("""ir {
  weight @w: f32[2]
  symbol s0: 1..4
  input %x: f32[2]
  input %z: f32[s0]
  %a: f32[2] = aten.relu.default(%x)  # net.py:1: relu(x)
  %b: f32[2] = aten.mul.Tensor(%a, @w)
  %c: f32[2] = aten.neg.default(%b)
  %d: f32[2] = aten.add.Tensor(%c, %a)
  return %d
}""")


def by_values(ir, inputs, outputs):
    """What is needed, counted in another way."""
    needed = set()

    def visit(name):
        node = ir.producers.get(name)
        if name in inputs or node is None or node.name in needed:
            return
        needed.add(node.name)
        for meta in node.inputs:
            visit(meta.name)

    for name in outputs:
        visit(name)
    return [node.name for node in ir.nodes if node.name in needed]


@settings(max_examples=60, deadline=None)
@given(well_formed_irs(symbolic=False), st.integers(0, 10**6))
def test_a_cut_has_exactly_the_nodes_in_order_with_their_places_and_is_well_formed(ir, seed):
    made = [meta.name for node in ir.nodes for meta in node.outputs]
    if not made or any(ir.effects(node).writes for node in ir.nodes):
        return
    rng = random.Random(seed)
    inputs = rng.sample(made, rng.randint(0, min(3, len(made))))
    outputs = rng.sample(made, rng.randint(1, min(3, len(made))))
    part = cut(ir, inputs=inputs, outputs=outputs)
    assert [node.name for node in part.nodes] == by_values(ir, inputs, outputs)
    assert [node.location for node in part.nodes] == [ir.node(n.name).location for n in part.nodes]
    assert list(part.output_names) == outputs
    assert part.check() == ()
    names = rng.sample(list(ir.by_name), rng.randint(1, len(ir.nodes)))
    exact = cut(ir, nodes=names)
    assert {node.name for node in exact.nodes} == set(names)
    assert exact.check() == ()


@pytest.mark.parametrize("name", ["conv", "attention", "bert"])
def test_a_part_gives_the_values_of_the_whole(name):
    case = CASES[name]
    arguments, keywords = case.inputs()
    model = case.model()
    ir = functionalize(extract_ir(model, arguments, kwargs=keywords))
    tensors = torch.utils._pytree.tree_leaves((arguments, keywords))
    executor = IRExecutor(ir, model.state_dict())
    values = {
        **capture(executor.graph, tensors).values,
        **dict(zip(ir.input_names, tensors, strict=True)),
    }
    rng = random.Random(0)
    made = [meta.name for node in ir.nodes for meta in node.outputs]
    for _ in range(4):
        outputs = rng.sample(made, 2)
        part = cut(ir, inputs=rng.sample(made, 2), outputs=outputs)
        run = IRExecutor(part, {m.name: model.state_dict()[m.name] for m in part.weights})
        for result, wanted in zip(
            run(*[values[n] for n in part.input_names]), outputs, strict=True
        ):
            assert torch.allclose(result, values[wanted], atol=1e-5, equal_nan=True)


def test_weights_symbols_and_inputs_come_as_far_as_they_are_used():
    part = cut(CHAIN, inputs=["a"], outputs=["c"])
    assert str(part) == (
        "ir {\n  weight @w: f32[2]\n  input %a: f32[2]\n"
        "  %b: f32[2] = aten.mul.Tensor(%a, @w)\n"
        "  %c: f32[2] = aten.neg.default(%b)\n  return %c\n}"
    )
    assert cut(CHAIN).nodes == CHAIN.nodes
    assert cut(CHAIN, nodes=["b", "d"]).input_names == ("a", "c")
    assert cut(CHAIN, nodes=["b", "d"]).output_names == ("b", "d")
    assert nodes_around(CHAIN, ["b"], 1) == ("a", "b", "c")


def test_a_size_that_no_input_shows_is_an_argument_of_the_part():
    ir = parse("""ir {
      symbol s0: 1..9
      input %x: f32[s0]
      %a: f32[2] = aten.ones.default([2])
      %y: f32[s0, 2] = aten.expand.default(%a, [`s0`, 2])
      return %y
    }""")
    part = cut(ir, inputs=["a"])
    assert part.check() == ()
    assert part.given_symbols == {"s0"}


def test_unknown_names_and_writes_across_the_cut_are_refused():
    with pytest.raises(InvalidIRError) as caught:
        cut(CHAIN, outputs=["bb"])
    assert str(caught.value).startswith("there is no value %bb in the program\n")
    with pytest.raises(InvalidIRError, match="there is no node 'q'"):
        cut(CHAIN, nodes=["q"])
    ir = parse("""ir {
      input %x: f32[2]
      %a: f32[2] = aten.exp.default(%x)
      %b: f32[2] = aten.add_.Tensor(%a, 1)
      %y: f32[2] = aten.mul.Tensor(%a, 2)
      return %y
    }""")
    with pytest.raises(PassError) as caught:
        cut(ir, outputs=["y"])
    assert str(caught.value) == (
        "node 'b' writes memory that node 'a' on the other side of the cut uses\n"
        "Apply torch_ir.functionalize first."
    )


class SameMask(torch.nn.Module):
    def forward(self, x, y):
        mask = x > 0
        return x[mask] * 2 + y[mask]


MASKED = extract_ir(SameMask(), (torch.ones(4), torch.ones(4)))
NAMES = [node.name for node in MASKED.nodes]


@pytest.mark.parametrize("begin", range(1, len(NAMES)))
def test_a_mask_is_used_again_behind_a_cut(begin):
    values = torch.tensor([1.0, -1.0, 2.0, 3.0]), torch.randn(4)
    wanted = SameMask()(*values)
    for stage in cut(MASKED, [begin]):
        made = IRExecutor(stage, {})(*values)
        values = made if isinstance(made, tuple | list) else (made,)
    assert torch.equal(values[0], wanted)


def test_a_size_that_a_cut_leaves_unexplained_is_checked():
    part = cut(MASKED, nodes=NAMES[NAMES.index("index_1") :])
    y, twice = torch.ones(4), torch.ones(2)
    given = {"y": y, "gt": torch.tensor([True, True, False, False]), "mul": twice}
    run = IRExecutor(part, {})
    assert run(*[given[name] for name in part.input_names])[-1].tolist() == [2.0, 2.0]
    given["gt"] = torch.tensor([True, True, True, False])
    with pytest.raises(ExecutionError, match="the size of %index_1 along axis 0 is not as rec"):
        run(*[given[name] for name in part.input_names])
