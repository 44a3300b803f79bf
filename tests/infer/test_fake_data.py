"""Kernels without a meta function are refused on fake tensors; none gets a null pointer."""

import ast
import subprocess
import sys
from pathlib import Path

import torch_ir

SCRIPT = '''
from torch_ir import parse
from torch_ir.errors import PassError
from torch_ir.passes import decompose

text = """ir {
  symbol s0: 2..8
  input %x: f32[s0, 3]
  %y: u8[8] = aten.CALL(%x)
  return %y
}
"""
try:
    decompose(parse(text))
except PassError as error:
    print(error)
'''


def test_packing_of_what_has_a_symbolic_size_is_refused():
    """Torch's own default reads at address zero, and the process ends."""
    script = SCRIPT.replace("CALL", "fbgemm_pack_gemm_matrix_fp16.default")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "torch cannot decompose it: Cannot access data pointer of Tensor" in done.stdout


def test_fake_tensors_are_made_in_one_place():
    """What makes a mode by itself would have torch's default."""
    root = Path(torch_ir.__file__).parent
    makers = [
        str(path.relative_to(root))
        for path in sorted(root.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("FakeTensorMode")
    ]
    assert makers == ["frontend/meta.py"]
