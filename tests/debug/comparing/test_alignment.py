"""A lowered program beside the one that it was made from."""

import torch

from torch_ir import compare, parse

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
