"""Where nodes are from: every pass says of which nodes it makes another."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from hypothesis import given, settings
from tests.small_models import CASES
from tests.strategies import well_formed_irs

from torch_ir import IR, OpNode, Partitioner, extract_ir, parse, to_backend, to_edge
from torch_ir.backends import SUPPORTED
from torch_ir.errors import PassError
from torch_ir.passes import Pass, PassResult, pass_named, pass_names, run_passes
from torch_ir.passes.patterns import Rewrite, RewritePatterns

PROGRAM = parse("""
ir {
  input %x: f32[2, 3]
  %n: f32[2, 3] = aten.layer_norm.default(%x, [3])
  %a: f32[2, 3] = aten.silu.default(%n)
  %b: f32[2, 3] = aten.silu.default(%n)
  %y: f32[2, 3] = aten.add.Tensor(%a, %b)
  return %y
}
""")
PASSES = [name for name in pass_names() if name != "rewrite-patterns"]


@dataclass(frozen=True)
class Replace(Pass):
    """Puts a node in place of the last one."""

    name: ClassVar[str] = "replace"
    made: OpNode | None = None

    def call(self, ir):
        return PassResult(ir.replace(nodes=(*ir.nodes[:-1], self.made, ir.nodes[-1])), True)


class All:
    """Takes everything."""

    name = "all"

    def supports(self, node, ir):
        return SUPPORTED


def graphs(ir):
    yield ir
    for body in ir.functions.values():
        yield from graphs(body)


def names(ir):
    return {name for graph in graphs(ir) for node in graph.nodes for name in node.made_of}


def require_law(ir):
    """Each pass, alone and after the others, names nodes of the program that was extracted."""
    extracted = {node.name for graph in graphs(ir) for node in graph.nodes}
    after = ir
    for name in PASSES:
        step = pass_named(name)
        try:
            step(after)
        except PassError:  # it refuses such programs
            continue
        after = run_passes(after, [step], verify="each").ir
        assert names(after) <= extracted
    return after


@settings(max_examples=25, deadline=None)
@given(well_formed_irs())
def test_every_pass_says_of_which_nodes_it_makes_another(ir):
    require_law(ir)


@pytest.mark.parametrize("name", sorted(CASES))
def test_nodes_of_lowered_models_name_nodes_of_the_model(name):
    case = CASES[name]
    arguments, keywords = case.inputs()
    require_law(extract_ir(case.model(), arguments, kwargs=keywords))


@pytest.mark.parametrize("name", ["conv", "attention", "recurrent"])
def test_nodes_of_edge_programs_and_delegates_name_nodes_of_the_model(name):
    case = CASES[name]
    arguments, keywords = case.inputs()
    ir = extract_ir(case.model(), arguments, kwargs=keywords)
    edge = to_edge(ir).ir()
    assert names(edge) <= {node.name for node in ir.nodes}
    (call,) = to_backend(PROGRAM, Partitioner(All())).nodes
    assert call.origins == ("n", "a", "b", "y")


def test_a_decomposition_names_its_operator_through_further_passes():
    core = run_passes(PROGRAM, [pass_named("decompose"), pass_named("cse")]).ir
    assert {node.name: node.made_of for node in core.nodes} == {
        "n_native_layer_norm": ("n",),
        "a_sigmoid": ("a", "b"),
        "a": ("a", "b"),
        "y": ("y",),
    }


def test_a_fused_node_is_made_of_all_that_was_matched():
    rewrite = Rewrite(
        lambda x: torch.neg(torch.exp(x)), lambda x: torch.exp(x) * -1, (torch.ones(2),)
    )
    ir = parse("""ir {
      input %x: f32[2]
      %e: f32[2] = aten.exp.default(%x)
      %n: f32[2] = aten.neg.default(%e)
      return %n
    }""")
    made = run_passes(ir, [RewritePatterns((rewrite,))]).ir
    assert [node.made_of for node in made.nodes] == [("e", "n"), ("e", "n")]


def test_origins_are_stored_and_shown_and_not_compared(tmp_path):
    core = run_passes(PROGRAM, [pass_named("decompose")]).ir
    for name in ("m.tir", "m.json"):
        core.save(tmp_path / name)
        assert [n.origins for n in IR.load(tmp_path / name).nodes] == [
            n.origins for n in core.nodes
        ]
    plain = core.replace(nodes=[node.replace(origins=()) for node in core.nodes])
    assert plain == core
    assert str(plain) == str(core)
    assert not core.diff(plain)
    shown = core.nodes[0].derived_from(*PROGRAM.nodes[:2])
    assert shown.made_of == ("n", "a")


def test_a_pass_that_does_not_say_is_named_with_the_node():
    made = OpNode("new", "aten.neg.default", PROGRAM.nodes[0].inputs, [])
    made = made.replace(outputs=[PROGRAM.graph_inputs[0].replace(name="new", producer_node="new")])
    with pytest.raises(PassError) as caught:
        run_passes(PROGRAM, [Replace(made)])
    assert str(caught.value) == (
        "replace{made=%new: f32[2, 3] = aten.neg.default(%x)} made 1 node without the nodes that "
        "they are made of\n"
        "    [no-origins] node 'new': it does not say of which nodes it is made\n"
        "Give new nodes their origins: made.derived_from(node, ...), or "
        "Builder.emit(..., like=node)."
    )
    with pytest.raises(PassError, match="its origin 'nn' is no node of the program"):
        run_passes(PROGRAM, [Replace(made.replace(origins=("nn",)))])
    run_passes(PROGRAM, [Replace(made)], verify="stage")
