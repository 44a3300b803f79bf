"""What a run needs of memory is said before it is taken."""

import subprocess
import sys
import zipfile

import numpy as np
import pytest

from cli.conftest import linear_relu
from torch_ir import serde
from torch_ir.cli.memory import TooLittleMemoryError, free_bytes, require_memory
from torch_ir.ir.text import parse

HUGE = """ir "Huge" {
  weight @w: f32[300000, 250000] as %w
  input %x: f32[2, 250000]
  %y: f32[2, 300000] = aten.linear.default(%x, %w)
  return %y
}"""

CHAIN = """ir "Chain" {
  symbol s0: 1..1000000
  input %x: f32[s0, 1024]
  %a: f32[s0, 1024] = aten.relu.default(%x)
  %b: f32[s0, 1024] = aten.relu.default(%a)
  %c: f32[s0, 1024] = aten.relu.default(%b)
  return %c
}"""


MAIN = r"""
import atexit, re
from pathlib import Path
status = Path("/proc/self/status")  # the maximum that getrusage gives is at least the parent's
atexit.register(lambda: print(re.search(r"VmHWM:\s+(\d+)", status.read_text())[1]))
from torch_ir.cli import main
main()
"""


@pytest.mark.parametrize("command", ["run", "profile", "validate", "run --reference"])
def test_weights_that_no_machine_holds(place, command):
    serde.save(parse(HUGE), place / "m.json")
    name, *options = command.split()
    given = [name, "m.json", "--random", "--random-weights", *options]
    done = subprocess.run(
        [sys.executable, "-c", MAIN, *given], capture_output=True, text=True, check=False
    )
    used = int(done.stdout) * 1024
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("error: the program needs 279.4 GiB, ")
    assert " GiB are free\n    weights: 279.4 GiB\n" in done.stderr
    assert used < 1.2 * 2**30


def test_what_fits_runs_and_force_goes_on(run, ir):
    assert run("run", "m.json", "--random", "--random-weights").code == 0
    assert run("run", "m.json", "--random", "--random-weights", "--force").code == 0


def test_only_what_lives_at_once_counts():
    ir = parse(CHAIN.replace("s0: 1..1000000", "s1: 1..2").replace("s0", "1024"))
    size = 4 * 2**20
    require_memory(ir, {}, weights=True, inputs=True, free=3 * size)
    with pytest.raises(TooLittleMemoryError, match=r"needs 8.00 MiB, 7.00 MiB are free"):
        require_memory(ir, {}, weights=True, inputs=True, free=7 * 2**20)
    require_memory(ir, {}, weights=True, inputs=False, free=7 * 2**20)


def test_sizes_are_those_of_the_call():
    ir = parse(CHAIN)
    require_memory(ir, {"s0": 2}, weights=True, inputs=True, free=2**20)
    with pytest.raises(TooLittleMemoryError, match=r"inputs: 1.0 GiB"):
        require_memory(ir, {"s0": 2**18}, weights=True, inputs=True, free=2**20)


def test_the_limit_of_address_space_counts():
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31))\n"
        "from torch_ir.cli.memory import free_bytes; print(free_bytes())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0 < int(done.stdout) < 2**31
    assert free_bytes() > 0
    require_memory(linear_relu(), {}, weights=True, inputs=True)


@pytest.mark.parametrize("options", [[], ["--reference"]])
def test_arrays_that_no_machine_holds(run, ir, place, options):
    np.savez(place / "x.npz", x=np.zeros(2, "float32"))
    with zipfile.ZipFile(place / "x.npz", "a") as archive:
        archive.filelist[0].file_size = 2**50  # as of a petabyte of zeros, compressed
        archive.comment = b"so that the directory is written anew"
    done = run("run", "m.json", "--random-weights", "--inputs", "x.npz", *options)
    assert done.code == 1
    assert done.err.startswith("error: the arrays of x.npz are 1048576.0 GiB, ")
    assert done.err.endswith(" are free\nGive a file with the tensors of this call alone.\n")
