"""A run as a whole is compared, or the report says why it was not."""

import torch

from torch_ir import compare, parse

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
