"""Programs of ranks and stages, from the command line."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

import torch_ir

PROGRAM = """ir "Pair" {
  weight @up.weight: f32[8, 4] as %a
  weight @down.weight: f32[4, 8] as %b
  input %x: f32[1, 4]
  %h: f32[1, 8] = aten.linear.default(%x, %a)
  %r: f32[1, 8] = aten.relu.default(%h)
  %y: f32[1, 4] = aten.linear.default(%r, %b)
  return %y
}"""


@pytest.fixture
def pair(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.ir").write_text(PROGRAM)
    torch.manual_seed(0)
    weights = {"up.weight": torch.randn(8, 4), "down.weight": torch.randn(4, 8)}
    save_file(weights, "w.safetensors")
    return weights


def test_ranks_get_programs_and_weights_and_agree(run, pair, tmp_path):
    (tmp_path / "plan.json").write_text(json.dumps({"up": "column", "down": "row"}))
    given = ["--plan", "plan.json", "--weights", "w.safetensors", "--random", "--validate"]
    made = run("shard", "p.ir", "--ranks", "2", *given, "--write-weights", "-o", "ranks")
    assert made.code == 0, made.err
    assert made.out.startswith("2 ranks, 1 result: agree")
    program = torch_ir.load_ir("ranks/rank1.tir")
    assert [meta.shape for meta in program.weights] == [(4, 4), (4, 4)]
    mine = load_file("ranks/rank1.safetensors")
    assert torch.equal(mine["down.weight"], pair["down.weight"][:, 4:])


def test_what_is_missing_or_wrong_is_said(run, pair):
    assert "give --split or --plan" in run("shard", "p.ir", "--ranks", "2").err
    assert (
        "give -o, --validate or both"
        in run("shard", "p.ir", "--ranks", "2", "--split", "up=0").err
    )
    bad = run("shard", "p.ir", "--ranks", "3", "--split", "up=column", "-o", "ranks")
    assert bad.code == 1
    assert "dimension 0 of 'up.weight' is 8, which 3 ranks cannot share" in bad.err
    assert run("shard", "p.ir", "--ranks", "2", "--split", "up", "-o", "ranks").code == 2


def test_stages_are_written(run, pair):
    made = run("cut", "p.ir", "--stages", "2", "-o", "stages")
    assert made.code == 0, made.err
    value = (torch.ones(1, 4),)
    for number in range(2):
        stage = torch_ir.load_ir(f"stages/stage{number}.tir")
        value = torch_ir.compile_graph(stage, pair).eval(value)
    whole = torch_ir.compile_graph(torch_ir.parse(PROGRAM), pair)
    assert torch.equal(value[0], whole.eval((torch.ones(1, 4),))[0])
