"""What README says works where no torch is installed does; the rest names the extra to install."""

import subprocess
import sys
from pathlib import Path

BLOCK = """
import sys
sys.modules["torch"] = None  # as if it were not installed: importing it raises ModuleNotFoundError
import torch_ir
"""
GRAPH = """
ir = torch_ir.parse('''
ir "Relu" {
  input %x: f32[2, 3]
  %relu: f32[2, 3] = aten.relu.default(%x)
  return %relu
}
''')
"""


def run(code: str, folder: Path) -> str:
    result = subprocess.run(
        [sys.executable, "-c", BLOCK + code], capture_output=True, text=True, cwd=folder
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_importing_brings_neither_torch_nor_numpy(tmp_path):
    code = "import torch_ir, sys; print({'torch', 'numpy'} & sys.modules.keys())"
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    assert result.stdout == "set()\n"


def test_reading_printing_checking_comparing_and_drawing(tmp_path):
    output = run(
        GRAPH
        + """
for name in ("relu.json", "relu.tir"):
    ir.save(name)
    assert torch_ir.IR.load(name) == ir
assert ir.check() == ()
assert torch_ir.parse(str(ir)) == ir
assert not ir.diff(ir)
print(ir.diff(ir.replace(nodes=[ir.nodes[0].replace(op_type="aten.gelu.default")])))
print(torch_ir.ir_to_mermaid(ir).splitlines()[0])
assert "relu" in ir._repr_html_()
""",
        tmp_path,
    )
    assert output == (
        "1 replaced\n"
        "- %relu: f32[2, 3] = aten.relu.default(%x)\n"
        "+ %relu: f32[2, 3] = aten.gelu.default(%x)\n"
        "flowchart TD\n"
    )


def test_what_needs_torch_names_the_extra(tmp_path):
    output = run(
        """
try:
    torch_ir.extract_ir
except torch_ir.OptionalDependencyError as error:
    print(error)
""",
        tmp_path,
    )
    assert output == (
        "torch_ir.extract_ir needs PyTorch, which is not installed\n"
        "Install it with: pip install 'torch-ir[torch]'\n"
    )
