"""Files that a script writes are what the script gives today."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GENERATORS = sorted((ROOT / "tools").glob("generate_*.py"))


@pytest.mark.parametrize("generator", GENERATORS, ids=lambda path: path.stem)
def test_a_generated_file_is_up_to_date(generator):
    command = [sys.executable, str(generator), "--check"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stdout + result.stderr
