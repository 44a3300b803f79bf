"""What show prints of a large program, and what a terminal gets in place of long lines."""

import os
import pty
import re
import subprocess
import sys

import pytest

from torch_ir import parse, serde
from viz.programs import branches, layers


@pytest.fixture
def large(place):
    ir = layers(80)
    serde.save(ir, place / "large.json")
    serde.save(branches(), place / "branches.json")
    return ir


def in_a_terminal(*args):
    """What a terminal of 80 columns and 24 lines gets on its stdout, and stderr."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "torch_ir", *args],
        stdout=theirs,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "80", "LINES": "24"},
    )
    os.close(theirs)
    parts = []
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:
            break
        if not part:
            break
        parts.append(part)
    said = process.communicate()[1]
    os.close(ours)
    return b"".join(parts).decode().replace("\r\n", "\n"), said


def test_a_terminal_gets_an_outline_and_a_pipe_all(run, large):
    assert parse(run("show", "large.json").out) == large
    text, said = in_a_terminal("show", "large.json")
    assert said == "note: an outline of 400 nodes; --all prints them, --grep some\n"
    lines = text.splitlines()
    assert lines[:3] == [
        "Layers: 400 nodes, no weights",
        "input  %x: f32[2, 8]",
        "output %v399: f32[2, 8]",
    ]
    assert re.match(r"layers 0 … 79  x 80 +Block +400$", lines[5])
    assert len(text.splitlines()) <= 24
    assert "\x1b" not in text
    whole, said = in_a_terminal("show", "large.json", "--all")
    assert (parse(whole), said) == (large, "")


def test_an_outline_as_deep_as_asked(run, large):
    lines = run("show", "large.json", "--depth", "1").out.splitlines()
    assert len(lines) == 6
    assert len(run("show", "large.json", "--depth", "2").out.splitlines()) > len(lines)


def test_grep_finds_nodes_in_functions_too(run, large):
    assert run("show", "branches.json", "--grep", "tanh|neg").out == (
        "no: %neg: f32[2, 8] = aten.neg.default(%b)\n"
        "yes/inner: %deep: f32[2, 8] = aten.tanh.default(%c)\n"
    )
    assert run("show", "large.json", "--grep", r"layers\.7\.mlp").out.count("\n") == 1
    assert run("show", "large.json", "--grep", "no such").out == ""
    assert "'(' is no pattern: missing )" in run("show", "large.json", "--grep", "(").err


def test_around_a_node(run, large):
    lines = run("show", "large.json", "--around", "v7", "--steps", "1").out.splitlines()
    assert [line[:5] for line in lines] == ["  %v6", "> %v7", "  %v8"]
    lines = run("show", "branches.json", "--around", "yes/inner/deep").out.splitlines()
    assert lines == ["> %deep: f32[2, 8] = aten.tanh.default(%c)"]
    unknown = run("show", "large.json", "--around", "v7x")
    assert unknown.err == "error: there is no node 'v7x'\nDid you mean v7 or v97?\n"
    assert "there is no function 'yse'" in run("show", "branches.json", "--around", "yse/x").err


def test_the_origins_of_a_lowered_program(run, place):
    (place / "m.ir").write_text("""ir {
  weight @w: f32[2, 2]
  input %x: f32[2, 2]
  %y: f32[2, 2] = aten.linear.default(%x, @w)
  return %y
}
""")
    assert run("lower", "m.ir", "-o", "core.tir").code == 0
    text = run("show", "core.tir", "--origins").out
    assert "  # made of %y\n  %y_permute: f32[2, 2]" in text
    assert parse(text) == serde.load(place / "core.tir")
    refused = run("show", "core.tir", "--origins", "--depth", "1")
    assert refused.code == 2
    assert "--origins is for whole programs, and for --module" in refused.err


def test_one_view_at_a_time(run, large):
    result = run("show", "large.json", "--depth", "1", "--grep", "x")
    assert "give one of --module, --depth, --grep and --around" in result.err


def test_results_fit_a_terminal_without_broken_words(large):
    for args in (["plan", "large.json"], ["cost", "large.json"], ["info", "branches.json"]):
        text, _ = in_a_terminal(*args)
        assert text
        for line in text.splitlines():
            assert len(line) <= 80 or " " not in line.strip()


def test_the_start_page_is_short(run):
    page = run()
    assert (page.code, page.err) == (0, "")
    assert len(page.out.splitlines()) < 12
    assert "torch-ir view net.tir" in page.out
