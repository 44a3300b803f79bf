"""The deprecated names that the page on stability lists still work, and warn."""

import importlib
import re

import pytest

from project.test_borders import ROOT
from torch_ir.passes import pass_named

PAGE = (ROOT / "docs" / "stability.md").read_text()
ROWS = [
    [re.findall(r"`([^`]+)`", cell) for cell in line.split("|")[1:3]]
    for line in PAGE.partition("## Deprecated names")[2].splitlines()
    if line.startswith("| ") and "`" in line
]
NAMES = [
    (old, new) for olds, news in ROWS for old, new in zip(olds, news, strict=False) if "." in old
]
PASSES = [
    (old, new)
    for olds, news in ROWS
    for old, new in zip(olds, news, strict=False)
    if "-" in old and " " not in old
]


def test_the_page_lists_some():
    assert NAMES
    assert PASSES


@pytest.mark.parametrize(("old", "new"), NAMES)
def test_a_deprecated_name_is_the_new_one_and_warns(old, new):
    home, _, name = old.rpartition(".")
    module = importlib.import_module(home)
    for _ in range(2):  # each use
        with pytest.warns(DeprecationWarning, match=f"{re.escape(old)} is called {new} now"):
            assert getattr(module, name) is getattr(module, new)


@pytest.mark.parametrize(("old", "new"), PASSES)
def test_a_pass_under_its_deprecated_name_is_the_new_one_and_warns(old, new):
    with pytest.warns(DeprecationWarning, match=f"the pass '{old}' is called '{new}' now"):
        assert pass_named(old) == pass_named(new)
