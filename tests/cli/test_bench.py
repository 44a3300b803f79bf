"""bench: times beside torch's, with what runs where."""

import pytest
import torch
from torch import nn

from torch_ir import extract_ir, parse
from torch_ir.backends import SUPPORTED, NativeBackend, register_backend, unregister_backend
from torch_ir.errors import CompileError
from torch_ir.serde import save


class Again(NativeBackend):
    name, version = "again", "1"

    def supports(self, node, ir):
        return SUPPORTED

    def build(self, program, options):
        return program.module()


@pytest.fixture
def again():
    def refusing(ir, weights, options):
        raise CompileError("not today")

    register_backend("again")(Again())
    register_backend("refusing")(refusing)
    yield
    unregister_backend("again")
    unregister_backend("refusing")


def test_each_backend_has_a_row_and_details_on_request(run, again, tmp_path):
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh())
    save(extract_ir(model, (torch.randn(2, 3),)), "m.tir", weights=model.state_dict())
    result = run("bench", "m.tir", "--random", "--backends", "again,refusing", "--details")
    assert result.code == 0
    head, first, second, *rest = result.out.splitlines()
    assert head.split() == ["backend", "us", "of", "torch", "nodes"]
    assert first.split()[0] == "again"
    assert "2/2" in first
    assert second.split(maxsplit=1) == ["refusing", "not today"]
    assert "again runs 2 of 2 nodes in 1 delegate, torch the rest" in rest


MINE = """
from torch_ir import DelegateBackend, compile_graph
from torch_ir.backends import SUPPORTED

class Mine(DelegateBackend):
    name = "mine"

    def supports(self, node, ir):
        return SUPPORTED

    def compile(self, ir, payload):
        return lambda x: compile_graph(ir).eval((x,))

class Failing(Mine):
    name = "failing"

    def compile(self, ir, payload):
        def run(x):
            raise RuntimeError("no kernel")
        return run
"""


def test_a_backend_that_fails_has_a_row_and_one_that_nobody_judged_says_so(run, place):
    save(extract_ir(nn.ReLU(), (torch.ones(2),)), "m.tir")
    (place / "mine.py").write_text(MINE)
    result = run("bench", "m.tir", "--random", "--backends", "mine.py:Failing,mine.py:Mine")
    assert result.code == 0, result.err
    _, failing, mine = result.out.splitlines()
    assert failing.split(maxsplit=1)[1].startswith(
        "the backend 'failing' fails to run 'failing_0'"
    )
    assert mine.endswith("1/1    not verified: torch-ir compare is for that")


def test_the_inputs_have_to_be_said(run, again):
    ir = extract_ir(nn.ReLU(), (torch.ones(2),))
    save(ir, "m.tir")
    result = run("bench", "m.tir", "--backends", "again")
    assert result.code == 2
    assert "give --inputs or --random" in result.err


def test_results_of_a_class_that_is_not_known_here(run, again):
    ir = parse("""ir {
      signature ((%x,), {}) -> acme.Output(%y)
      input %x: f32[2]
      %y: f32[2] = aten.relu.default(%x)
      return %y
    }""")
    save(ir, "m.tir")
    result = run("bench", "m.tir", "--random", "--backends", "again")
    assert result.code == 0, result.err
    assert "1/1" in result.out
