"""A run as a whole is compared, or the report says why it was not."""

import pytest
import torch

from torch_ir import compare, parse
from torch_ir.errors import InvalidIRError

DTYPES = {"f16": torch.float16, "f32": torch.float32, "f64": torch.float64}
PROGRAM = """ir {
  input %x: f32[4]
  %a: f32[4] = aten.exp.default(%x)
  %b: f32[4] = aten.sin.default(%a)
  return %b
}"""


def test_a_run_that_is_within_its_bounds_agrees():
    report = compare(parse(PROGRAM), {}, (torch.ones(4),), mode="accumulated")
    assert (report.verdict, report.covered, report.whole_run) == ("agree", ("a", "b"), "")


def test_a_run_that_is_not_compared_is_said(monkeypatch):
    monkeypatch.setattr("torch_ir.debug.comparing.accumulation.MAX_NODES", 1)
    reason = "a run of more than 1 nodes is not compared as a whole"
    alone = compare(parse(PROGRAM), {}, (torch.ones(4),), mode="accumulated")
    assert (alone.verdict, alone.not_compared) == ("not compared", {"a": reason, "b": reason})
    both = compare(parse(PROGRAM), {}, (torch.ones(4),))
    assert (both.verdict, both.whole_run) == ("agree", reason)
    told = f"  each node was compared alone, and the run was not: {reason}"
    assert " ".join(str(both).split()).endswith(told.strip())
    assert both.to_dict()["whole_run"] == reason
    assert compare(parse(PROGRAM), {}, (torch.ones(4),), mode="isolated").whole_run == ""


def test_a_value_that_a_lowered_program_returns_as_it_was_given_is_compared():
    before = """ir {
      symbol s0: 2..8
      input %x: f32[s0]
      input %z: f32[s0]
      %y: f32[s0] = aten.alias.default(%x)
      %e: f32[s0] = aten.exp.default(%y)
      return %y, %e
    }"""
    after = """ir {{
      symbol s0: 2..8
      input %x: f32[s0]
      input %z: f32[s0]
      %e: f32[s0] = aten.exp.default(%x)
      return {}, %e
    }}"""
    given = (torch.ones(2), torch.zeros(2))
    right = compare(parse(before), {}, given, run=parse(after.format("%x")))
    assert (right.verdict, right.compared) == ("agree", ("y", "e"))
    wrong = compare(parse(before), {}, given, run=parse(after.format("%z")))
    assert (wrong.verdict, wrong.first.node) == ("disagree", "y")
    assert len(wrong.divergences) == 1


def test_a_state_that_a_lowered_program_leaves_as_it_was_is_compared():
    program = """ir {{
      input %x: f32[2]
      input %b: f32[2]
      {}%e: f32[2] = aten.exp.default(%x)
      mutate %b = {}
      return %e
    }}"""
    before = parse(program.format("%y: f32[2] = aten.alias.default(%x)\n      ", "%y"))
    given = (torch.ones(2), torch.zeros(2))
    right = compare(before, {}, given, run=parse(program.format("", "%x")))
    assert (right.verdict, right.compared) == ("agree", ("y", "e"))
    wrong = compare(before, {}, given, run=parse(program.format("", "%e")))
    assert (wrong.verdict, [found.node for found in wrong.divergences]) == ("disagree", ["y"])


@pytest.mark.parametrize(
    "dtypes", ["f16 u8 12 uint8", "f32 i32 6 int32", "f32 f64 3 float64", "f64 i64 6 int64"]
)
def test_bits_of_an_inexact_number_are_open_in_a_whole_run(dtypes):
    given, made, size, name = dtypes.split()
    program = parse(f"""ir {{
      input %x: {given}[6]
      %a: {given}[6] = aten.exp.default(%x)
      %b: {made}[{size}] = aten.view.dtype(%a, dtype=torch.{name})
      return %b
    }}""")
    x = torch.linspace(-1, 1, 6, dtype=DTYPES[given])
    report = compare(program, {}, (x,))
    assert (report.verdict, report.whole_run, report.compared) == ("agree", "", ("a", "b"))


@pytest.mark.parametrize("made", ["aten.permute.default(%x, [1, 0])", "aten.mm.default(%x, %x)"])
def test_factors_that_depend_on_a_layout_are_open_in_a_whole_run(made):
    ir = parse(f"""ir {{
      input %x: f32[3, 3]
      %det.0: f32[], %det.1: f32[3, 3], %det.2: i32[3] = aten._linalg_det.default(%x)
      %m: f32[3, 3] = {made.replace("%x", "%det.1")}
      %again.0: f32[], %again.1: f32[3, 3], %again.2: i32[3] = aten._linalg_det.default(%m)
      return %again.0, %again.1
    }}""")
    x = torch.randn(3, 3, generator=torch.Generator().manual_seed(0))
    report = compare(ir, None, (x,), run="aten", against="reference")
    assert report.verdict == "agree", str(report)


def test_a_check_of_an_inexact_number_says_nothing_of_it():
    ir = parse("""ir {
      input %x: f32[4]
      %a: f32[4] = aten.exp.default(%x)
      check: aten._assert_tensor_metadata.default(%a, dtype=torch.float32)
      %b: f16[4] = aten.to.dtype(%a, dtype=torch.float16)
      return %b
    }""")
    report = compare(ir, None, (torch.ones(4),), mode="accumulated")
    assert (report.verdict, report.whole_run) == ("agree", ""), str(report)


def test_a_node_that_no_one_can_judge_on_a_sample_is_not_compared():
    text = """ir {{
      input %x: f32[8]
      %m: f32[1] = aten.mean.dim(%x, [-1], keepdim=True)
      %{0}: f32[8] = aten.sub.Tensor(%x, %m)
      %b: f32[] = aten.mean.dim(%{0}, [-1])
      return %b
    }}"""
    ir, lowered = parse(text.format("a")), parse(text.format("other"))
    flat, rough = (torch.zeros(8),), (torch.linspace(0, 1, 8).sqrt(),)
    report = compare(ir, {}, flat, run=lowered, samples=[rough])
    reason = "what its operators may round is more than 0.0625 of the value (sample 1)"
    assert (report.verdict, report.not_compared) == ("not compared", {"a": reason, "b": reason})
    assert compare(ir, {}, flat, run=lowered, samples=[flat]).verdict == "agree"


def test_a_tolerance_of_an_operator_that_is_not_there_is_refused():
    with pytest.raises(InvalidIRError) as caught:
        compare(parse(PROGRAM), {}, (torch.ones(4),), tolerance={"aten.gleu.default": 1.0})
    assert str(caught.value) == (
        "there is no operator 'aten.gleu.default'\n"
        "Did you mean aten.glu.default or aten.gelu.default?"
    )
    assert compare(parse(PROGRAM), {}, (torch.ones(4),), tolerance={"aten.gelu.default": 1.0})
