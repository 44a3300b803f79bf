"""What runtimes write to stderr while they load, about processors and folders, is kept back."""

import os
import subprocess
import sys
from contextlib import suppress
from importlib.util import find_spec

from torch_ir.quiet import silent_stderr

SCRIPT = """
import sys

import torch

import torch_ir

model = torch.nn.Linear(4, 3)
x = torch.ones(2, 4)
ir = torch_ir.extract_ir(model, (x,))
for runtime in sys.argv[1:]:
    torch_ir.compile(ir, model.state_dict(), backend=runtime)(x)
print("fine", file=sys.stderr)
"""


RUNTIMES = [name for name in ("executorch", "onnxruntime", "openvino") if find_spec(name)]


def test_runtimes_write_nothing_between_our_lines(tmp_path):
    home = tmp_path / "no folder"
    home.touch()
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *RUNTIMES],
        env={**os.environ, "HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "fine\n")


def test_stderr_is_back_after_an_error(capfd):
    with suppress(ValueError), silent_stderr():
        os.write(2, b"below Python")
        raise ValueError("told")
    os.write(2, b"after")
    assert capfd.readouterr().err == "after"
