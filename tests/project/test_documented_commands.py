"""The shell blocks that name files of the reader's own run, with such files."""

from __future__ import annotations

import re
import shlex
import stat
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from torch import nn

from torch_ir import decompose, extract_ir, parse
from torch_ir.cli import main

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("big-models", "files", "test-vectors", "viewing", "wrong-numbers")
BLOCK = re.compile(r"^```sh\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
EXPECTED = re.compile(r"^```text\n(.*?CHECK.*?)^```\n", re.MULTILINE | re.DOTALL)

DEVICE = """
from torch_ir import DelegateBackend, IRExecutor
from torch_ir.backends import SUPPORTED, Support


class MyDevice(DelegateBackend):
    name = "my_device"

    def supports(self, node, ir):
        return SUPPORTED if node.op_type == "aten.add.Tensor" else Support.refused("no kernel")

    def compile(self, ir, payload):
        run = IRExecutor(ir, {})
        return lambda *tensors: [made + 1 for made in run.graph.eval(tensors)]  # the fault
"""
PASS = """
from torch_ir.passes import Pass, PassResult


class MyPass(Pass):
    name = "my-pass"

    def call(self, ir):
        return PassResult(ir, False)
"""
QUANTIZED = """ir {
  input %x: f32[4]
  %q: i8[4] = quantized_decomposed.quantize_per_tensor.default(input=%x, scale=0.1, zero_point=0, \
quant_min=-128, quant_max=127, dtype=torch.int8)
  %d: f32[4] = quantized_decomposed.dequantize_per_tensor.default(input=%q, scale=0.1, \
zero_point=0, quant_min=-128, quant_max=127, dtype=torch.int8)
  %y: f32[4] = aten.relu.default(%d)
  return %y
}"""


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up_proj, self.gate_proj, self.down_proj = (nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        return x + self.down_proj(self.up_proj(x).relu() * self.gate_proj(x).softmax(-1))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Block() for _ in range(8)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        again = nn.functional.scaled_dot_product_attention(x, x, x)
        return nn.functional.scaled_dot_product_attention(again, x, x)


@pytest.fixture
def files(tmp_path, monkeypatch):
    """The files that the pages name, in an empty folder that is the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    torch.manual_seed(0)
    model = Llama().eval()
    sizes = {"x": {0: torch.export.Dim("batch", min=2, max=64)}}
    ir = extract_ir(model, (torch.zeros(3, 2, 4),), dynamic_shapes=sizes)
    for name in ("m", "net", "model", "a", "old", "big"):
        ir.save(f"{name}.tir", weights=model.state_dict())
    core = decompose(ir)
    for name in ("m.core", "b", "new"):
        core.save(f"{name}.tir", weights=model.state_dict())
    parse(QUANTIZED).save("q.tir")
    Path("my_device.py").write_text(DEVICE)
    Path("file.py").write_text(PASS)
    Path("my_test").write_text("#!/bin/sh\necho illegal memory access\nexit 1\n")
    Path("my_test").chmod(stat.S_IRWXU)
    Path("plan.json").write_text('{"*.up_proj": "column", "*.down_proj": "row"}')
    np.savez("x.npz", x=np.ones((2, 2, 4), "float32"))
    run("torch-ir run m.tir --inputs x.npz --capture golden.safetensors", None)
    yield
    for name, module in list(sys.modules.items()):  # other tests have modules of these names
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


def matching(word: str) -> list[str]:
    return sorted(map(str, Path().glob(word))) if "*" in word else []


def run(command: str, given: bytes | None) -> bytes:
    """Run a command as a shell does, with its file of output; a finding is no failure."""
    words = shlex.split(command, comments=True)
    words, target = (words[:-2], words[-1]) if ">" in words else (words, None)
    arguments = [name for word in words[1:] for name in (matching(word) or [word])]
    done = CliRunner().invoke(main, arguments, input=given, prog_name="torch-ir")
    assert done.exit_code in (0, 1, 3), f"{command}\n{done.stdout}{done.stderr}"
    assert not re.search("^error:", done.stderr, re.MULTILINE), f"{command}\n{done.stderr}"
    if target is not None:
        Path(target).write_bytes(done.stdout_bytes)
    return done.stdout_bytes


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_run(page):
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    for expected in EXPECTED.findall(text):
        Path("m.expect").write_text(expected)
    lines = [line for block in BLOCK.findall(text) for line in block.splitlines()]
    for line in lines:
        if line.startswith("torch-ir ") and "--transformers" not in line:
            given = None
            for command in line.split(" | "):
                if command.startswith("torch-ir "):
                    given = run(command, given)
