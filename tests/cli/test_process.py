"""What only a real process shows: modules that are loaded, pipes, exit status."""

import os
import subprocess
import sys

import pytest

REPORT_MODULES = """
import sys
from torch_ir.cli import main
try:
    main(sys.argv[1:], prog_name="torch-ir")
finally:
    heavy = {"torch", "numpy", "rich"} & set(sys.modules)
    print("LOADED", *sorted(heavy), file=sys.stderr)
"""


def torch_ir(*args, **options):
    command = [sys.executable, "-m", "torch_ir", *args]
    return subprocess.run(command, capture_output=True, text=True, **options)


@pytest.mark.parametrize(
    "args",
    [
        ["--help"],
        ["--version"],
        ["show", "m.json"],
        ["show", "m.ir", "--module"],
        ["show", "m.json", "--depth", "2"],
        ["view", "m.json"],
        ["plan", "m.json"],
        [],
        ["info", "m.tir"],
        ["info", "m.json", "--json"],
        ["diff", "m.json", "m.tir"],
        ["check", "m.json", "--no-types"],
        ["convert", "m.json", "out.tir"],
        ["convert", "m.json", "--to", "mermaid"],
        ["extract", "--help"],
        ["run", "--help"],
        ["verify", "--help"],
        ["completion", "zsh"],
        ["show", "missing.json"],
    ],
    ids=" ".join,
)
def test_looking_at_an_ir_loads_neither_torch_nor_numpy(ir, args):
    command = [sys.executable, "-c", REPORT_MODULES, *args]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.stderr.endswith("LOADED\n"), result.stderr


def test_the_module_is_the_command(ir):
    result = torch_ir("info", "m.json")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("Net: 2 nodes")
    assert torch_ir("info", "missing.json").returncode == 1
    assert torch_ir("inof", "m.json").returncode == 2
    assert "Usage: torch-ir" in torch_ir("inof").stderr


def test_a_reader_that_goes_away_is_no_error(place):
    from torch_ir import serde
    from torch_ir.ir import IR, OpNode, TensorMeta

    x = TensorMeta("x", (2,), "float32")
    nodes = [
        OpNode(f"n{i}", "aten.relu.default", [x], [TensorMeta(f"n{i}", (2,), "float32", f"n{i}")])
        for i in range(5000)
    ]
    serde.save(IR(nodes, [x], [], []), "long.json")
    read, write = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "torch_ir", "show", "long.json"],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(write)
    os.close(read)
    assert process.communicate()[1] == ""


def test_pipes(ir):
    archive = subprocess.run(
        [sys.executable, "-m", "torch_ir", "convert", "m.json", "--to", "tir"], capture_output=True
    ).stdout
    result = subprocess.run(
        [sys.executable, "-m", "torch_ir", "convert", "-", "--to", "text"],
        input=archive,
        capture_output=True,
    )
    assert result.stdout.decode().startswith('ir "Net" {\n')


@pytest.mark.parametrize(
    ("command", "example"),
    [
        ("extract", "  torch-ir extract model.py:build -o model.tir\n"),
        ("run", "  torch-ir run m.json --random-weights --random --seed 1\n"),
        ("verify", "  torch-ir verify m.json model.py:build --every-node\n"),
    ],
)
def test_help_shows_each_example_on_a_line_of_its_own(command, example):
    shown = torch_ir(command, "--help").stdout
    assert example in shown
    assert "\\b" not in shown
    assert "\b" not in shown


def test_torch_does_not_warn_of_calls_that_nobody_wrote():
    operators = "aten.std.correction,aten.var_mean.correction"
    result = torch_ir("fuzz", "--backend", "aten", "--operators", operators, "--programs", "8")
    assert result.stdout.startswith("aten: 0 findings in 8 programs")
    assert result.stderr == ""
