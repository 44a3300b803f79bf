"""Every path and every dotted name that a page mentions is one of this project."""

import importlib
import re

import pytest

from project.test_borders import ROOT
from torch_ir.cli import COMMANDS
from torch_ir.ops import extensions

PAGES = sorted(
    page for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")] if page.is_file()
)
CODE = re.compile(r"`+([^`\n]+)`+|\]\(([^)#\s]+)")
PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)*/(?:[\w-]+\.(?:py|md|txt|json|toml|yaml)|)")
NAME = re.compile(r"\btorch_ir(?:\.\w+)+")
CALL = re.compile(r"`torch-ir [^`\n]+`|^torch-ir .+$", re.MULTILINE)
COMMAND = re.compile(r"torch-ir (\w+)([^|#]*)")
OPTION = re.compile(r"(?<!\S)(--?[a-z][a-z-]*)")
TOP = ("src/", "tests/", "tools/", "docs/", "examples/", "benchmarks/")
# Made by commands that the pages show, or words with a slash in them.
MADE = ("out/", "dist/")
BASES = (ROOT, ROOT / "src" / "torch_ir", ROOT / "docs")


def paths_of(text: str) -> set[str]:
    """The paths in code spans and links: folders end in a slash, files in a suffix."""
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    spans = {first or second for first, second in CODE.findall(prose)}
    return {
        span
        for span in spans
        if (PATH.fullmatch(span) or (re.fullmatch(r"[\w./-]+", span) and span.startswith(TOP)))
        and not span.startswith(MADE)
    }


def unknown_options(text: str) -> set[str]:
    """The options of our commands, in code, that these do not have."""
    found: set[str] = set()
    for call in CALL.finditer(text):
        for name, given in COMMAND.findall(re.sub(r"'[^']*'", "''", call[0])):
            if name in COMMANDS:
                command = importlib.import_module(f"torch_ir.cli.commands.{name}").command
                known = {option for parameter in command.params for option in parameter.opts}
                found |= {f"{name} {word}" for word in OPTION.findall(given) if word not in known}
    return found


# Groups of entry points that are no modules; the others, such as torch_ir.passes, are.
GROUPS = frozenset(extensions.GROUPS)


def names_of(text: str) -> set[str]:
    """The dotted names below the package, also those in examples."""
    return {name.rstrip(".") for name in NAME.findall(text)}


def resolves(name: str) -> bool:
    """Return whether a dotted name is a module, an attribute of one, or a group."""
    if name in GROUPS:
        return True
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_path_on_a_page_exists(page):
    missing = sorted(
        path
        for path in paths_of(page.read_text())
        if not any((base / path).exists() for base in (*BASES, page.parent))
    )
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_name_on_a_page_is_one_of_the_package(page):
    missing = sorted(name for name in names_of(page.read_text()) if not resolves(name))
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_option_on_a_page_is_one_of_its_command(page):
    assert unknown_options(page.read_text()) == set()


def test_an_option_that_is_not_there_is_found():
    text = "Say `torch-ir show m.tir --deep` or\n\ntorch-ir plan m.tir --json | torch-ir plot -x -"
    assert unknown_options(text) == {"show --deep", "plot -x"}


def test_a_wrong_path_and_a_wrong_name_are_found():
    text = "See `src/torch_ir/nowhere/`, [it](docs/none.md) and `torch_ir.pases.decompose`."
    assert paths_of(text) == {"src/torch_ir/nowhere/", "docs/none.md"}
    assert names_of(text) == {"torch_ir.pases.decompose"}
    assert not resolves("torch_ir.pases.decompose")
    assert resolves("torch_ir.passes.decompose")
    assert resolves("torch_ir.IR.load")


def test_readme_and_contributing_name_every_folder():
    folders = {
        f"{path.name}/"
        for path in (ROOT / "src" / "torch_ir").iterdir()
        if path.is_dir() and (path / "__init__.py").exists()
    }
    for page in ("README.md", "CONTRIBUTING.md"):
        text = (ROOT / page).read_text()
        table = {*re.findall(r"^\| `(\w+/)`", text, re.MULTILINE)}
        assert table == folders, page
