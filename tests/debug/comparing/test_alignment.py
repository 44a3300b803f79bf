"""A lowered program beside the one that it was made from."""

from dataclasses import replace

import pytest
import torch

from torch_ir import compare, decompose, parse
from torch_ir.errors import InvalidIRError, PassError
from torch_ir.ir import Mutation
from torch_ir.passes import Pass, PassResult, run_passes

X, B = torch.tensor([0.5, -1.0]), torch.tensor([2.0, 3.0])
PROGRAM = parse("""ir {
  input %x: f32[2]
  weight @b: f32[2]
  %a: f32[2] = aten.exp.default(%x)
  %n: f32[2] = aten.neg.default(%a)
  %s: f32[2] = aten.add.Tensor(%n, @b)
  return %s, %a, %x
}""")


def compared(lowered, against="aten", program=PROGRAM):
    return compare(program, {"b": B}, (X,), run=lowered, against=against)


def test_calls_that_stayed_are_covered_and_only_what_changed_is_compared():
    squared = PROGRAM.node("a").replace(op_type="aten.exp2.default")
    report = compared(PROGRAM)
    assert (report.verdict, report.compared, report.covered) == ("agree", (), ("a", "n", "s"))
    wrong = PROGRAM.replace(nodes=[squared, *PROGRAM.nodes[1:]])
    report = compared(wrong)
    assert [found.node for found in report.divergences] == ["a"]
    assert (report.compared, report.covered) == (("a",), ("n", "s"))
    assert compared(PROGRAM, "reference").compared == ("a", "n", "s")


def test_a_call_of_other_values_is_not_the_same_call():
    moved = PROGRAM.node("n").replace(inputs=[PROGRAM.graph_inputs[0]])
    first, _, last = PROGRAM.nodes
    assert [d.node for d in compared(PROGRAM.replace(nodes=[first, moved, last])).divergences] == [
        "n"
    ]


@pytest.mark.parametrize("against", ["aten", "reference"])
@pytest.mark.parametrize(
    ("order", "nodes"),
    [((1, 0, 2), ["a", "s"]), ((0, 1, 1), ["s"]), ((0, 2, 2), ["a"]), ((0, 0, 2), ["a"])],
)
def test_results_in_other_places_are_told(order, nodes, against):
    outputs = [PROGRAM.graph_outputs[i] for i in order]
    report = compared(PROGRAM.replace(graph_outputs=outputs, signature=None), against)
    assert sorted(found.node for found in report.divergences) == nodes


def test_a_result_that_is_missing_is_told():
    report = compared(PROGRAM.replace(graph_outputs=PROGRAM.graph_outputs[:2], signature=None))
    (found,) = report.divergences
    assert (found.kind, found.value) == ("missing", "x")
    assert found.reason == "nothing is in the place of %x"


def test_what_is_returned_or_written_besides_is_told():
    last = PROGRAM.graph_outputs[0]
    more = PROGRAM.replace(graph_outputs=[*PROGRAM.graph_outputs, last], signature=None)
    for lowered in (more, PROGRAM.replace(mutations=[Mutation("b", last)])):
        report = compared(lowered)
        (found,) = report.divergences
        assert (report.verdict, found.node) == ("disagree", "s")
        assert (found.kind, found.value) == ("extra", "s")
        assert found.reason == "the program returns and writes nothing in its place"


def test_a_program_without_nodes_is_compared():
    program = parse("ir {\n  input %x: f32[2]\n  return %x\n}")
    lowered = PROGRAM.replace(graph_outputs=PROGRAM.graph_outputs[1:2], signature=None)
    (found,) = compared(lowered, program=program).divergences
    assert (found.node, found.kind, found.value) == ("", "numeric", "x")
    assert str(found).startswith("no node: numeric of %x\n")


def test_other_inputs_are_refused():
    lowered = parse("ir {\n  input %x: f32[2]\n  input %y: f32[2]\n  return %x\n}")
    with pytest.raises(InvalidIRError, match=r"^the lowered program takes 2 inputs, not 1$"):
        compared(lowered)


def test_what_is_written_is_compared():
    program = parse("""ir {
      input %x: f32[2]
      weight @b: f32[2]
      %a: f32[2] = aten.add.Tensor(%x, @b)
      %n: f32[2] = aten.neg.default(%x)
      mutate @b = %a
      return %n
    }""")
    (write,) = program.mutations
    assert compared(program, program=program).verdict == "agree"
    other = program.replace(mutations=[replace(write, value=program.graph_outputs[0])])
    assert [found.node for found in compared(other, program=program).divergences] == ["a"]
    (found,) = compared(program.replace(mutations=()), program=program).divergences
    assert (found.node, found.kind) == ("a", "missing")


def test_a_pass_that_swaps_results_is_refused():
    class Swap(Pass):
        name = "swap"

        def call(self, ir):
            return PassResult(ir.replace(graph_outputs=ir.graph_outputs[::-1]), True)

    program = PROGRAM.replace(graph_outputs=PROGRAM.graph_outputs[:2], signature=None)
    with pytest.raises(PassError, match="swap made a program that computes something else"):
        run_passes(program, [Swap()], validate="each", weights={"b": B}, inputs=(X,))


def test_a_value_that_is_returned_twice_is_judged_where_it_is_made():
    """A narrow type rounds it, which what only shows it does not."""
    program = parse("""ir {
      input %x: f16[5, 2, 4]
      %u: f16[5, 2, 8] = aten.upsample_linear1d.vec(%x, output_size=[8], align_corners=True, \
scale_factors=None)
      %c: f16[5, 2, 8] = aten.conj.default(%u)
      return %u, %c
    }""")
    torch.manual_seed(0)
    x = torch.randn(5, 2, 4).half()
    report = compare(program, {}, (x,), run=decompose(program), against="aten")
    assert (report.verdict, report.compared) == ("agree", ("u", "c"))
