"""Imports that run upward through the folders are found, wherever and however they are written."""

from pathlib import Path

import pytest

from project.tool import ROOT, load_tool

layers = load_tool("check_layers")

ORDER = """
[tool.torch_ir.layers]
order = [["top", "__init__"], ["middle.inner"], ["middle", "beside"], ["bottom"]]
doors = ["bottom -> middle", "middle.inner -> top"]
"""
FILES = ("__init__", "top/__init__", "middle/__init__", "middle/inner", "beside", "bottom/leaf")


def check(folder: Path, file: str, source: str) -> list[str]:
    """What is wrong with a package of four layers in which one file imports something."""
    for name in dict.fromkeys([*FILES, file]):
        path = folder / "src" / "torch_ir" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source if name == file else "")
    (folder / "pyproject.toml").write_text(ORDER)
    return layers.check(folder)


UPWARD = {
    "when it is loaded": "from torch_ir.top import name\n",
    "in a function that is no door": "def f():\n    from torch_ir.top import name\n",
    "in a method": "class A:\n    def f(self):\n        import torch_ir.top\n",
    "for type checking": "if TYPE_CHECKING:\n    from torch_ir.top import name\n",
    "as a module": "import torch_ir.top\n",
    "as a module from its package": "from torch_ir import top\n",
    "by name": 'HOME = {"name": "torch_ir.top"}\n',
    "by the beginning of a name": 'HOME = "torch_ir.top."\n',
}


@pytest.mark.parametrize("source", UPWARD.values(), ids=UPWARD)
def test_an_import_may_not_run_upward(tmp_path, source):
    (fault,) = check(tmp_path, "beside", source)
    line = source.count("\n")
    assert fault == f"src/torch_ir/beside.py:{line}: beside → top points up"


@pytest.mark.parametrize(
    "source",
    [
        "from torch_ir.bottom.leaf import name\nfrom torch_ir.middle import name\n",
        "def f():\n    import torch_ir.bottom.leaf\n",
        "import torch\nfrom elsewhere.top import name\n",
        '"""The package torch_ir.top uses this."""\n',
    ],
)
def test_an_import_may_run_downward_or_aside(tmp_path, source):
    assert check(tmp_path, "beside", source) == []


def test_a_door_is_open_in_functions_for_type_checking_and_by_name_only(tmp_path):
    door = "from torch_ir.middle import name\n"
    for source in (
        f"def f():\n    {door}",
        f"if TYPE_CHECKING:\n    {door}",
        'HOME = "torch_ir.middle"\n',
    ):
        assert check(tmp_path, "bottom/leaf", source) == []
    for source in (door, f"try:\n    {door}except ImportError:\n    raise\n"):
        (fault,) = check(tmp_path, "bottom/leaf", source)
        assert fault.endswith(": bottom → middle points up")


def test_a_door_opens_one_arrow_from_one_folder(tmp_path):
    source = "def f():\n    from torch_ir.top import name\n"
    assert check(tmp_path, "middle/inner", source) == []
    assert len(check(tmp_path / "other", "middle/__init__", source)) == 1
    assert len(check(tmp_path / "third", "bottom/leaf", source)) == 1


def test_a_folder_within_another_has_a_layer_of_its_own(tmp_path):
    (fault,) = check(tmp_path, "middle/__init__", "from torch_ir.middle.inner import name\n")
    assert fault == "src/torch_ir/middle/__init__.py:1: middle → middle.inner points up"


def test_every_folder_is_listed(tmp_path):
    (fault,) = check(tmp_path, "planted/leaf", "")
    assert fault == "torch_ir/planted/leaf.py: no layer of pyproject.toml names this folder"


def test_the_folders_of_this_tree_are_listed_once():
    text = (ROOT / "pyproject.toml").read_text()
    order = layers.tomllib.loads(text)["tool"]["torch_ir"]["layers"]["order"]
    names = [name for line in order for name in line]
    assert len(names) == len(set(names))


def test_no_import_of_this_tree_runs_upward():
    assert layers.main() == 0
