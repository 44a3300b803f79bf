"""Errors are found before long work, take few lines, and say what is full or missing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NET = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 4)

    def forward(self, x):
        return self.layer(x)
"""
WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None  # whoever imports it fails
from torch_ir.cli import main
main(sys.argv[1:])
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "net.py").write_text(NET)
    lines = (
        "ir {",
        "  input %x: f32[2]",
        "  %y: f32[2] = aten.relu.default(%x)",
        "  return %y",
        "}",
    )
    (tmp_path / "m.ir").write_text("\n".join(lines) + "\n")
    return tmp_path


def call(folder, *args, code=None, **options):
    what = ("-c", code) if code else ("-m", "torch_ir")
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-W", "ignore", *what, *args]
    options = {"stdout": subprocess.PIPE, **options}
    return subprocess.run(
        command, cwd=folder, env=env, stderr=subprocess.PIPE, text=True, **options
    )


def test_a_wrong_shape_is_the_error_alone_and_all_of_it_with_traceback(folder):
    given = ("extract", "net.py:Net", "--input", "2x9")
    done = call(folder, *given)
    assert done.returncode == 1
    assert done.stderr.startswith("error: torch.export refused Net: ")
    assert done.stderr.count("\n") <= 4
    assert "Traceback" in call(folder, *given, "--traceback").stderr


EARLY = {
    "no file": (("extract", "nett.py:Net"), "there is no file nett.py\nDid you mean net.py?"),
    "no module": (("extract", "nomodule:Net"), "there is no module 'nomodule'"),
    "no model": (
        ("verify", "m.ir", "nett.py:Net"),
        "there is no file nett.py\nDid you mean net.py?",
    ),
    "no folder": (
        ("extract", "net.py:Net", "--input", "2x8:float32", "-o", "nowhere/x.tir"),
        "nowhere/x.tir: cannot be written: No such file or directory",
    ),
    "a file as folder": (
        ("run", "m.ir", "--random", "-o", "m.ir/x.npz"),
        "m.ir/x.npz: cannot be written: Not a directory",
    ),
    "no folder for a trace": (
        ("profile", "m.ir", "--random", "--chrome", "nowhere/x.json"),
        "nowhere/x.json: cannot be written: No such file or directory",
    ),
    "no backend": (
        ("verify", "m.ir", "net.py:Net", "--input", "2x8", "--backend", "absent"),
        "there is no backend 'absent'",
    ),
    "no file to validate": (("validate", "mm.ir", "--random"), "there is no file mm.ir\nDid you"),
    "no file to compare": (
        ("compare", "m.ir", "--run", "mm.ir", "--random"),
        "there is no file mm.ir\nDid you mean m.ir?",
    ),
    "a file as backend": (
        ("validate", "m.ir", "--backend", "net.py", "--random"),
        "'net.py' is a file, and no backend\nnet.py:NAME names one in it. Known backends: ",
    ),
    "a folder as backend": (
        ("validate", "m.ir", "--backend", ".", "--random"),
        "'.' is a directory, and no backend\nKnown backends: ",
    ),
    "no file of a backend": (
        ("run", "m.ir", "--backend", "mm.tir", "--random"),
        "there is no backend 'mm.tir', nor a file of that name\nKnown backends: ",
    ),
    "no dialect": (("check", "m.ir", "--dialect", "core"), "there is no dialect 'core'"),
    "no reader": (
        ("validate", "m.ir", "--random", "--against", "eagre"),
        "there is no reader 'eagre'\nDid you mean eager?",
    ),
    "no module to import": (("show", "m.ir", "--import", "absent"), "there is no module 'absent'"),
}


@pytest.mark.parametrize("name", EARLY)
def test_what_can_be_known_without_torch_is_found_before_it_is_imported(folder, name):
    args, message = EARLY[name]
    done = call(folder, *args, code=WITHOUT_TORCH)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {message}")
    assert done.stderr.count("\n") <= 4


WEIGHTS = (
    *("run", "run --reference", "run --backend aten", "validate", "profile", "bench", "compare"),
    *("opt --validate each", "bisect -p cse", "cut --outputs y --record values.safetensors"),
    "shard --ranks 2 --split w=row --validate",
)


@pytest.mark.parametrize("line", WEIGHTS)
def test_missing_weights_are_told_before_torch_is_imported(folder, line):
    lines = (
        "ir {",
        "  input %x: f32[2]",
        "  weight @w: f32[2] as %w",
        "  %y: f32[2] = aten.add.Tensor(%x, %w)",
        "  return %y",
        "}",
    )
    (folder / "m.ir").write_text("\n".join(lines) + "\n")
    name, *rest = line.split()
    done = call(folder, name, "m.ir", *rest, "--random", code=WITHOUT_TORCH)
    assert done.stderr == (
        "error: the program has 1 weight and none were given\n"
        "Give --weights PATH, or --random-weights for a quick try.\n"
    )
    assert done.returncode == 1


def test_a_dialect_that_nearly_exists_is_named(folder):
    done = call(folder, "lower", "m.ir", "--to", "core")
    assert done.returncode == 2
    assert "there is no 'core'. Did you mean core_aten?" in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize(
    "args",
    [
        *([name, "m.ir"] for name in ("show", "info", "check", "operators")),
        *([], ["--help"], ["--version"], ["show", "--help"]),
    ],
    ids=" ".join,
)
def test_a_full_output_is_said_as_what_it_is(folder, args):
    with Path("/dev/full").open("w") as full:
        done = call(folder, *args, stdout=full)
    assert done.returncode == 1
    assert done.stderr == ("error: cannot write to standard output: No space left on device\n")


CLOSED = "error: cannot write to standard output: Bad file descriptor\n"


@pytest.mark.skipif(os.name != "posix", reason="the shell of POSIX closes streams")
@pytest.mark.parametrize(
    ("command", "status", "told"),
    [
        ("show m.ir >&-", 1, CLOSED),
        ("--help >&-", 1, CLOSED),
        ("convert m.ir m.json >&-", 0, ""),
        ("show - <&-", 1, "error: stdin: at $: the document is empty\n"),
        ("show m.ir 2>&- >/dev/null", 0, ""),
        ("show absent.ir 2>&-", 1, ""),
        ("show absent.ir >&- 2>&- <&-", 1, ""),
    ],
)
def test_a_stream_that_is_closed_is_no_crash(folder, command, status, told):
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    line = f"{sys.executable} -W ignore -m torch_ir {command}"
    done = subprocess.run(line, shell=True, cwd=folder, env=env, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (status, told)


def test_passes_are_listed_with_what_they_do(folder):
    done = call(folder, "opt", "--list", code=WITHOUT_TORCH)
    assert "clean-casts            Makes one cast of a chain of casts.\n" in done.stdout
    assert all(len(line.split()) > 3 for line in done.stdout.splitlines())


def test_browse_without_a_terminal(run, monkeypatch):
    monkeypatch.setattr("torch_ir.viz.terminal.browser", lambda ir: pytest.fail("it waits"))
    result = run("browse", "m.ir")
    assert result.code == 2
    assert "browse draws on a terminal and waits for keys, and there is none" in result.err
