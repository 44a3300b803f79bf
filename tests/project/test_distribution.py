"""What is shipped: metadata in one place, all files in the wheel, README's lines without torch."""

import os
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import torch_ir
from project.test_borders import ROOT, load_tool

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_version_stands_in_one_place():
    assert "version" not in PROJECT
    assert PROJECT["dynamic"] == ["version"]
    assert metadata.version("torch-ir") == torch_ir.__version__


def test_the_classifiers_name_every_python_that_the_environment_is_made_with():
    names = [name.rsplit(" ", 1)[1] for name in PROJECT["classifiers"] if "3." in name]
    script = (ROOT / "tools" / "make_venv.sh").read_text()
    assert "(3, 11) <= sys.version_info < (3, 15)" in script
    assert names == ["3.11", "3.12", "3.13", "3.14"]
    assert PROJECT["requires-python"] == ">=3.11"


def test_every_target_of_make_is_phony():
    text = (ROOT / "Makefile").read_text()
    targets = [line.split(":")[0] for line in text.splitlines() if ":" in line and "  ## " in line]
    phony = next(line for line in text.splitlines() if line.startswith(".PHONY:")).split()[1:]
    assert sorted(targets) == sorted(phony)


@pytest.fixture(scope="module")
def make_dist():
    return load_tool("make_dist")


def test_a_wheel_must_hold_the_data_files_and_no_configuration_of_the_linter(make_dist):
    expected = make_dist.expected_members()
    assert {"torch_ir/py.typed", "torch_ir/ops/data/operators.txt"} <= expected
    assert not [name for name in expected if name.endswith("ruff.toml") or "/." in name]


def test_what_a_wheel_lacks_and_has_too_much_is_named(make_dist):
    expected = make_dist.expected_members()
    own = "torch_ir-0.1.0.dist-info/METADATA"
    assert list(make_dist.wheel_faults([*expected, own], expected)) == []
    planted = {*expected, "torch_ir/ir/ruff.toml"} - {"torch_ir/py.typed"}
    assert list(make_dist.wheel_faults(planted, expected)) == [
        "the wheel lacks torch_ir/py.typed",
        "the wheel should not have torch_ir/ir/ruff.toml",
    ]


def torch_free(page: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the lines of a page with a torch that cannot be imported, as if it were not there."""
    (folder / "torch.py").write_text("raise ModuleNotFoundError('no torch', name='torch')\n")
    paths = os.pathsep.join([str(folder), str(ROOT / "src")])
    return subprocess.run(
        [sys.executable, str(ROOT / "tools" / "torch_free_lines.py"), str(page)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )


def test_the_lines_of_readme_that_need_no_torch_work_without_it(tmp_path):
    result = torch_free(ROOT / "README.md", tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "7 lines of README.md work without torch\n"


def test_a_line_that_prints_something_else_than_the_page_shows_is_found(tmp_path):
    page = tmp_path / "README.md"
    text = (ROOT / "README.md").read_text()
    page.write_text(text.replace("parameters  36  in 2 tensors", "parameters  37  in 2 tensors"))
    result = torch_free(page, tmp_path)
    assert result.returncode == 1
    assert "parameters  37  in 2 tensors" in result.stderr
