"""The example of programs on several machines, as its text says to run it."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "several_processes.py"


def test_stages_and_shards_of_files_agree_with_the_whole_program(tmp_path):
    quiet = [sys.executable, "-W", "ignore"]
    runpy.run_path(str(EXAMPLE))["prepare"](tmp_path, 2)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    made = subprocess.run(
        [*quiet, *torchrun, EXAMPLE, "run", tmp_path], capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr
    found = [json.loads(line) for line in made.stdout.splitlines() if line.startswith("{")]
    assert [f["stages"] for f in found if "stages" in f] == [0.0]  # bit for bit
    assert len(found) == 2
    assert all(f["shards"] < 1e-5 for f in found)
