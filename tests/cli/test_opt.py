"""``torch-ir opt``: passes over a file, and what is said of them."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from torch_ir import IR
from torch_ir.cli import main
from torch_ir.passes import fuse_quantized

PROGRAM = """ir "Twice" {
  input %x: f32[2]
  %a: f32[2] = aten.exp.default(%x)
  %b: f32[2] = aten.exp.default(%x)
  %y: f32[2] = aten.add.Tensor(%a, %b)
  return %y
}
"""
RESULT = """ir "Twice" {
  input %x: f32[2]
  %a: f32[2] = aten.exp.default(%x)
  %y: f32[2] = aten.add.Tensor(%a, %a)
  return %y
}
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "twice.ir"
    path.write_text(PROGRAM)
    return str(path)


def opt(*args):
    return CliRunner().invoke(main, ["opt", *args])


@pytest.mark.parametrize("level", ["off", "stage", "each"])
def test_passes_run_in_order_and_the_result_goes_to_stdout(file, level):
    result = opt(file, "-p", "cse,dce", "--verify", level)
    assert result.exit_code == 0
    assert result.stdout == RESULT
    assert result.stderr == (
        "note: common-subexpressions: 2 nodes left\n"
        "note: eliminate-dead-code: nothing to do\n"
        "note: 3 nodes became 2 nodes\n"
    )


def test_the_program_is_printed_after_each_pass(file, tmp_path):
    output = tmp_path / "out.ir"
    result = opt(file, "-p", "cse", "--print-after-each", "-o", str(output))
    assert result.stdout == f"# after common-subexpressions\n{RESULT}\n"
    assert output.read_text() == RESULT


def test_an_unknown_pass_is_an_error_that_names_the_closest(file):
    result = opt(file, "-p", "csee")
    assert result.exit_code == 1
    assert result.stderr == "error: there is no pass 'csee'\nDid you mean cse?\n"


def test_the_names_of_the_passes_are_listed():
    assert (
        "fold-constants         Computes ahead what depends on constants alone.\n"
        in opt("--list").stdout
    )


def test_a_quantized_model_is_fused(tmp_path):
    model = Path(__file__).parents[1] / "models/quantized/mlp-int8.tir"
    output = tmp_path / "fused.tir"
    result = opt(str(model), "-p", "fuse-quantized", "-o", str(output))
    assert result.exit_code == 0
    assert result.stderr == (
        "note: fuse-quantized: 4 nodes left\n"
        "note: 11 nodes became 4 nodes\n"
        f"note: the weights in {model} are left out; they fit the result\n"
    )
    assert IR.load(output) == fuse_quantized(IR.load(model))


def test_what_fails_to_explain_is_its_own_fault(file, tmp_path):
    (tmp_path / "silent.py").write_text(
        "from torch_ir.passes import Pass, PassResult\n\n\n"
        "class Silent(Pass):\n    name = 'silent'\n\n"
        "    def call(self, ir):\n        return PassResult(ir, False)\n\n"
        "    def explain(self, ir):\n        raise ValueError('no words')\n"
    )
    result = opt(file, "-p", f"{tmp_path / 'silent.py'}:Silent", "--explain")
    assert result.exit_code == 1
    assert result.stderr.endswith(
        "error: what the pass silent explains failed: ValueError: no words\n"
        "The fault is in its code; --traceback shows all of it.\n"
    )
