"""The linter's borders between packages really fail on a violation."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from project.tool import ROOT, load_tool


def ruff(tmp_path: Path, where: str, source: str) -> str:
    """What ruff says of one file under this project's own configuration."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for config in (ROOT / "src").rglob("ruff.toml"):
        copy = tmp_path / config.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(config, copy)
    path = tmp_path / where
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--output-format", "json"]
    output = subprocess.run([*command, str(path)], capture_output=True, text=True).stdout
    return "\n".join(f"{found['code']} {found['message']}" for found in json.loads(output))


@pytest.mark.parametrize("package", ["ir", "serde"])
@pytest.mark.parametrize(
    "source",
    ["import torch\n", "def f():\n    from torch import nn\n", "import torch.fx as fx\n"],
)
def test_the_packages_that_work_without_torch_cannot_import_it(tmp_path, package, source):
    report = ruff(tmp_path, f"src/torch_ir/{package}/planted.py", source)
    assert "TID251 `torch" in report
    assert "This package works where no torch is installed." in report


@pytest.mark.parametrize("package", ["ir", "serde"])
def test_they_import_numpy_in_functions_only(tmp_path, package):
    where = f"src/torch_ir/{package}/planted.py"
    assert "TID253 `numpy`" in ruff(tmp_path, where, "import numpy\n")
    inside = "def f():\n    import numpy\n\n    return numpy\n"
    assert "TID253" not in ruff(tmp_path, where, inside)


@pytest.mark.parametrize("package", ["ir", "frontend"])
def test_pickle_is_banned_everywhere(tmp_path, package):
    report = ruff(tmp_path, f"src/torch_ir/{package}/planted.py", "import pickle\n")
    assert "TID251 `pickle` is banned: Files from strangers are never unpickled." in report


def test_torch_is_free_elsewhere(tmp_path):
    report = ruff(tmp_path, "src/torch_ir/frontend/planted.py", "import torch\n")
    assert "TID251" not in report


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("from torch_ir.ir._secret import f", "torch_ir.ir._secret.f"),
        ("from torch_ir.ir import _secret", "torch_ir.ir._secret"),
        ("import torch_ir.ir._secret", "torch_ir.ir._secret"),
        ("def f():\n    from torch_ir.ir._secret.deep import g", "torch_ir.ir._secret.deep.g"),
    ],
)
def test_private_modules_cannot_be_imported_from_elsewhere(source, name):
    trespasses = load_tool("check_borders").trespasses
    for path in ("src/torch_ir/serde/planted.py", "src/torch_ir/planted.py", "tests/planted.py"):
        (finding,) = trespasses(Path(path), source)
        assert finding.startswith(f"{path}:")
        assert finding.endswith(f": {name} is private to torch_ir.ir")


def test_a_package_may_import_its_own_private_modules():
    source = "from torch_ir.ir._secret import f\nfrom __future__ import annotations\n"
    trespasses = load_tool("check_borders").trespasses
    assert list(trespasses(Path("src/torch_ir/ir/planted.py"), source)) == []
    assert list(trespasses(Path("src/torch_ir/ir/deeper/planted.py"), source)) == []


def test_this_tree_keeps_to_them():
    assert load_tool("check_borders").main() == 0


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ng = getattr(torch.ops, name)",
        "import torch\ng = getattr(getattr(torch.ops, space), name)",
        "import torch\ng = getattr(torch.ops.aten, name)",
        "import torch\ng = vars(torch.ops)[name]",
        "import torch\ng = torch.ops.__getattr__(name)",
    ],
)
def test_operators_are_not_looked_up_by_name_elsewhere(source):
    detours = load_tool("check_borders").detours
    (finding, *_) = detours(Path("src/torch_ir/passes/planted.py"), source)
    assert finding.startswith("src/torch_ir/passes/planted.py:2: operators are looked up by")
    for gate in ("torch_api.py", "infer/resolve.py"):
        assert not list(detours(Path("src/torch_ir") / gate, source))
    assert not list(detours(Path("tests/planted.py"), source))
