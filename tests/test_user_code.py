"""Files of the user's code as modules."""

import json
import sys

import pytest

from torch_ir.user_code import import_module_of

TEXT = """
import dataclasses

@dataclasses.dataclass
class Config:
    size: "int" = 1

VALUE = Config()
"""


@pytest.fixture(autouse=True)
def restored(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize("name", ["json", "colorsys", "torch_ir"])
def test_a_file_never_stands_in_the_place_of_another_module(tmp_path, name):
    file = tmp_path / f"{name}.py"
    file.write_text(TEXT)
    before = sys.modules.get(name)
    module = import_module_of(str(file))
    assert module.__name__.startswith(f"{name}_")
    assert module.VALUE.size == 1
    assert sys.modules.get(name) is before
    assert import_module_of(str(file)) is module
    assert json.loads("1") == 1


def test_a_file_whose_name_is_free_has_it(tmp_path):
    file = tmp_path / "acme_passes.py"
    file.write_text(TEXT)
    module = import_module_of(str(file))
    assert sys.modules["acme_passes"] is module
    file.write_text(TEXT + "MORE = 2\n")
    assert import_module_of(str(file)).MORE == 2


def test_two_files_of_one_name_are_two_modules(tmp_path):
    files = [tmp_path / folder / "acme_rules.py" for folder in "ab"]
    for file in files:
        file.parent.mkdir()
        file.write_text(TEXT)
    first, second = [import_module_of(str(file)) for file in files]
    assert sys.modules["acme_rules"] is first
    assert second.__name__ != "acme_rules"
    assert second.Config is not first.Config


def test_a_file_that_was_imported_by_name_is_not_run_again(tmp_path):
    file = tmp_path / "acme_once.py"
    file.write_text(TEXT)
    sys.path.insert(0, str(tmp_path))
    import acme_once

    assert import_module_of(str(file)) is acme_once
