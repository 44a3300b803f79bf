"""What an import loads, which is what it costs; told by modules, not by the clock."""

import subprocess
import sys
from pathlib import Path

import pytest

import torch_ir

HEAVY = ("torch", "numpy", "rich", "safetensors", "ml_dtypes", "click")
OF_CLASSES = ("dataclasses", "inspect", "ast", "difflib")
"""What nearly every module here loads, which takes longer than all that the package itself has."""


def heavy_modules_after(code, heavy=HEAVY, *flags):
    code += f"\nimport sys; print(*[name for name in {heavy} if name in sys.modules])"
    result = subprocess.run([sys.executable, *flags, "-c", code], capture_output=True, text=True)
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


def test_the_package_alone_loads_what_its_names_need_with_them():
    place = str(Path(torch_ir.__file__).parents[1])
    # -S: what other packages run when Python starts may load them too
    code = f"import sys; sys.path.insert(0, {place!r}); import torch_ir"
    assert heavy_modules_after(code, OF_CLASSES, "-S") == []
    assert heavy_modules_after(f"{code}; torch_ir.IR", OF_CLASSES, "-S") != []


def test_the_measure_sees_torch():
    assert "torch" in heavy_modules_after("from torch_ir import load_weights")
