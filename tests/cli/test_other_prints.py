"""Models, backends and packages that print: stdout has the results alone."""

import json

import pytest

TALKATIVE = """
import torch
from torch_ir import DelegateBackend, IRExecutor
from torch_ir.backends import SUPPORTED

print("imported")


class Net(torch.nn.Module):
    def forward(self, x):
        print("called")
        return x.relu()


class Device(DelegateBackend):
    name = "talkative"

    def supports(self, node, ir):
        print("asked", end="")
        return SUPPORTED

    def compile(self, ir, payload):
        print("compiled")
        return lambda x: [x.relu()]
"""
RUN = ("run", "net.tir", "--random", "--json")


@pytest.fixture
def net(run, place):
    (place / "talkative.py").write_text(TALKATIVE)
    made = run("extract", "talkative.py:Net", "--input", "2x3", "--to", "json")
    assert json.loads(made.out)["model_name"] == "Net"
    assert "called" in made.err
    assert run("extract", "talkative.py:Net", "--input", "2x3", "-o", "net.tir").code == 0


@pytest.mark.usefixtures("net")
@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("info", "net.tir", "--json", "--import", "talkative.py"), ""),
        ((*RUN, "--backend", "talkative.py:Device"), "compiled"),
        (("verify", "net.tir", "talkative.py:Net", "--input", "2x3", "--json"), "called"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_what_others_print_goes_to_stderr(run, command, said):
    done = run(*command)
    assert done.code == 0
    assert json.loads(done.out)
    assert said in done.err


@pytest.mark.usefixtures("net")
def test_help_and_lists_go_to_stdout(run):
    assert run("run", "--help").out.startswith("Usage: torch-ir run")
    assert "eliminate-dead-code" in run("opt", "--list", "--import", "talkative.py").out


@pytest.mark.usefixtures("net")
def test_a_backend_that_prints_no_line_is_judged(run):
    options = ("--operators", "aten.relu.default", "--dtypes", "float32", "--json")
    done = run("conform", "--backend", "talkative.py:Device", *options)
    assert {row["status"] for row in json.loads(done.out)["rows"]} == {"pass"}
    assert done.code == 0
