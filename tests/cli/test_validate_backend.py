"""validate and verify: a backend, imported operators, and what eager was compared without."""

import pytest

BACKEND = """
import torch
from torch_ir import IRExecutor
from torch_ir.backends import SUPPORTED, DelegateBackend


class Acme(DelegateBackend):
    name = "acme"
    wrong = False

    def supports(self, node, ir):
        return SUPPORTED

    def compile(self, ir, payload):
        run = IRExecutor(ir, {})

        def call(*given):
            rest = iter(given)
            taken = [payload[m.name] if m.name in payload else next(rest) for m in ir.graph_inputs]
            made = run(*taken, *rest)
            return [tensor + 0.25 * self.wrong for tensor in made]

        return call


class Wrong(Acme):
    wrong = True
"""

OPERATORS = """
import numpy as np
import torch
from torch_ir import register_executor
from torch_ir.semantics.registry import denotes


@denotes("elsewhere.softclip.default")
def softclip(x):
    return np.tanh(x)


register_executor("elsewhere.softclip.default")(lambda inputs, attrs: [torch.tanh(inputs[0])])
"""
PROGRAM = """ir "Clip" {
  input %x: f32[4]
  %y: f32[4] = aten.exp.default(%x)
  %z: f32[4] = elsewhere.softclip.default(x=%y)
  return %z
}"""


@pytest.fixture
def backend(tmp_path):
    file = tmp_path / "acme_backend.py"
    file.write_text(BACKEND)
    return file


@pytest.mark.parametrize("mode", ["isolated", "accumulated"])
def test_a_backend_is_judged(run, ir, backend, mode, tmp_path):
    given = ("validate", "m.json", "--random", "--random-weights", "--mode", mode, "--backend")
    right = run(*given, f"{backend}:Acme")
    assert right.code == 0, right.err
    assert right.out.startswith("all readers agree on Net: 1 node\n")
    out = tmp_path / "out"
    wrong = run(*given, f"{backend}:Wrong", "--repro", out)
    assert wrong.code == 1
    assert "in the delegate 'acme_0'" in wrong.out
    assert {"body.json", "inputs.safetensors", "repro.py"} == {p.name for p in out.iterdir()}


def test_operators_of_a_file_are_imported_and_lack_a_tolerance(run, tmp_path):
    (tmp_path / "acme_ops.py").write_text(OPERATORS)
    (tmp_path / "clip.ir").write_text(PROGRAM)
    given = ("validate", tmp_path / "clip.ir", "--random", "--import", tmp_path / "acme_ops.py")
    result = run(*given)
    assert result.code == 3, result.err
    assert "1 NOT compared (z)" in result.out
    assert (
        "no tolerance is stated for elsewhere.softclip.default; give denotes(…, tolerance=…)"
        in result.out
    )


@pytest.mark.parametrize(("command", "shown"), [("run", "relu"), ("profile", "delegate.acme_0")])
def test_programs_run_and_are_profiled_on_a_backend(run, ir, backend, command, shown):
    given = (command, "m.json", "--random", "--random-weights", "--backend", f"{backend}:Acme")
    found = run(*given)
    assert found.code == 0, found.err
    assert shown in found.out
