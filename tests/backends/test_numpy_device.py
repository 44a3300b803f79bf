"""The example of a backend runs as it is shown, and is as short as the page says."""

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "numpy_device.py"


def test_it_runs_and_agrees_with_torch():
    done = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    first, *_, last = done.stdout.splitlines()
    assert first == "Model on numpy_device: 5 of 10 nodes in 3 subgraphs, 83% of 1,476 FLOPs"
    assert last.startswith("the largest difference from torch: ")
    assert "the kernel takes no other" in done.stdout


def test_it_has_less_than_a_hundred_lines():
    assert len(EXAMPLE.read_text().splitlines()) < 100
