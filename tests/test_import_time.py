"""What an import loads, which is what it costs; told by modules, not by the clock."""

import subprocess
import sys

import pytest

HEAVY = ("torch", "numpy", "rich", "safetensors", "ml_dtypes", "click")


def heavy_modules_after(code):
    code += f"\nimport sys; print(*[name for name in {HEAVY} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


@pytest.mark.parametrize(
    ("code", "loaded"),
    [
        ("import torch_ir", []),
        (
            "import torch_ir.ir, torch_ir.ir.check, torch_ir.ir.text, torch_ir.ir.diff",
            [],
        ),
        ("import torch_ir.serde", []),
        ("import torch_ir.viz", []),
        ("import torch_ir.cli", ["click"]),
        ("from torch_ir import IR, parse, load_ir, validate_ir, ir_to_mermaid, TorchIRError", []),
        (
            "from torch_ir import IR; ir = IR([], [], [], []); str(ir); ir.check()",
            [],
        ),
    ],
)
def test_what_is_light_stays_light(code, loaded):
    assert heavy_modules_after(code) == loaded


def test_the_measure_sees_torch():
    assert "torch" in heavy_modules_after("from torch_ir import load_weights")
