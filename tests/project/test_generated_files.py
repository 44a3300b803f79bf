"""Files that a script writes are what the script gives today."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GENERATORS = sorted((ROOT / "tools").glob("generate_*.py"))
OF_TORCH = (
    "generate_operator_namespaces",
    "generate_operator_schemas",
    "generate_operator_traits",
)
"""Those that write down what torch says of its operators."""
GENERATED = [
    pytest.param(path, marks=pytest.mark.recorded if path.stem in OF_TORCH else (), id=path.stem)
    for path in GENERATORS
]


@pytest.mark.parametrize("generator", GENERATED)
def test_a_generated_file_is_up_to_date(generator):
    command = [sys.executable, str(generator), "--check"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("generator", GENERATORS, ids=lambda path: path.stem)
def test_a_file_that_is_not_says_what_to_run(generator, tmp_path):
    for folder in ("tools", "docs", "src/torch_ir/ops/data"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("docs/errors.md", "docs/ir.schema.json", "src/torch_ir/ops/data/operators.txt"):
        (tmp_path / name).write_text("old")
    copy = tmp_path / "tools" / generator.name
    for script in (generator, *(ROOT / "tools").glob("edge_*.py")):
        (tmp_path / "tools" / script.name).write_text(script.read_text())
    command = [sys.executable, str(copy), "--check"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert result.returncode == 1, result.stderr
    assert result.stdout.endswith(": run `make generate`\n")
