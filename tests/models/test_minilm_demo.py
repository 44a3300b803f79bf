"""``make demo``: a real sentence encoder, from its packaged weights, bitwise equal to eager."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import torch_ir

DEMO = Path(__file__).parents[2] / "examples/minilm.py"


@pytest.fixture(scope="module")
def demo(tmp_path_factory) -> tuple[subprocess.CompletedProcess[str], Path]:
    out = tmp_path_factory.mktemp("demo") / "out"
    environment = {**os.environ, "COLUMNS": "120", "NO_COLOR": "1", "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        [sys.executable, str(DEMO), str(out)], capture_output=True, text=True, env=environment
    )
    return result, out


def test_the_embeddings_have_the_same_bits_as_eager(demo):
    result, _ = demo
    assert result.returncode == 0, result.stdout + result.stderr
    assert "bitwise equal to eager: yes" in result.stdout


def test_sentences_of_one_meaning_are_the_most_similar(demo):
    """The weights are the real ones: each sentence is closest to the one it was paired with."""
    result, _ = demo
    table = result.stdout.partition("similarity of the sentences")[2]
    lines = [line.strip("│ ") for line in table.splitlines() if line.startswith("│")]
    rows = [[float(cell) for cell in line.split("│")[1:]] for line in lines]
    assert len(rows) == 6
    for sentence, row in enumerate(rows):
        assert row[sentence] == 1.0
        partner = max((n for n in range(6) if n != sentence), key=row.__getitem__)
        assert partner == sentence ^ 1


def test_it_shows_every_step(demo):
    result, _ = demo
    for step in ("build on the meta device", "extract", "save", "load", "check", "run", "eager"):
        assert step in result.stdout


def test_it_writes_the_ir_its_text_and_a_diagram(demo):
    _, out = demo
    ir = torch_ir.IR.load(out / "minilm.json")
    assert torch_ir.IR.load(out / "minilm.tir") == ir
    assert torch_ir.parse((out / "minilm.ir").read_text()) == ir
    assert (out / "minilm.mmd").read_text().startswith("flowchart")
    assert (out / "minilm.json").stat().st_size < 2**20, "the graph is stored without weights"


def test_it_needs_no_weights_to_extract(demo):
    """The graph names its weights; none is inside."""
    _, out = demo
    ir = torch_ir.IR.load(out / "minilm.tir")
    assert {w.name for w in ir.weights} >= {"embeddings.word_embeddings.weight"}
    assert not ir.constants
