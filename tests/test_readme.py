"""README and pages of the documentation are run and must show what comes out.

Each in a folder of its own.

A ``python`` block is executed; all blocks share one namespace. One whose first line is
``# name.py`` is also written to that file. Of a ``sh`` block, the lines that begin with
``torch-ir`` are run. A ``text`` block right after another is the output of it, exactly, but for
the version of torch: the pages have the one that its tables were made from.
"""

import contextlib
import io
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from torch_ir.backends import known_backends, unregister_backend
from torch_ir.torch_versions import RECORDED, torch_is

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
EXECUTED = [
    README,
    *(
        ROOT / "docs" / f"{name}.md"
        for name in (
            "backends",
            "dialects",
            "extending",
            "extraction",
            "faq",
            "passes",
            "profiling",
            "semantics",
            "tracing",
            "tutorial",
            "validation",
        )
    ),
]
PYTHON_ALONE = [
    ROOT / "docs" / f"{name}.md"
    for name in ("coming-from-pytorch-ir", "execution", "fuzzing", "text", "wrong-numbers")
]
"""Pages whose commands name files of the reader's own: their Python is run."""


@dataclass(frozen=True)
class Block:
    language: str
    code: str
    line: int
    shown: str | None = None


def blocks(text: str) -> list[Block]:
    """The fenced blocks, each with the ``text`` block that follows it as what it shows."""
    found: list[Block] = []
    end = 0
    for match in re.finditer(r"^```(\w+)\n(.*?)^```\n", text, re.MULTILINE | re.DOTALL):
        language, code = match.groups()
        adjacent = not text[end : match.start()].strip()
        if language == "text" and adjacent and found:
            found[-1] = Block(found[-1].language, found[-1].code, found[-1].line, code)
        else:
            found.append(Block(language, code, text.count("\n", 0, match.start()) + 2))
        end = match.end()
    return found


def run_python(page: Path, block: Block, namespace: dict[str, object]) -> str:
    name = re.match(r"# (\w+\.py)\n", block.code)
    if name:
        Path(name[1]).write_text(block.code)
        code = compile(block.code, str(Path(name[1]).absolute()), "exec")
    else:  # blank lines before, so that a traceback gives the page's own line numbers
        code = compile("\n" * (block.line - 1) + block.code, str(page), "exec")
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(code, namespace)
    return output.getvalue()


def run_shell(block: Block) -> str:
    outputs: list[str] = []
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "100",
    }
    for line in block.code.splitlines():
        if line.startswith("torch-ir "):
            result = subprocess.run(
                line, shell=True, capture_output=True, text=True, env=environment
            )
            assert result.returncode == 0, f"{line}\n{result.stdout}{result.stderr}"
            outputs.append(result.stdout)
    return "".join(outputs)


@pytest.fixture
def own_backends():
    """Forget the backends that a page registers."""
    before = known_backends()
    yield
    for name in {*known_backends()} - {*before}:
        unregister_backend(name)


@pytest.mark.usefixtures("own_backends")
@pytest.mark.parametrize("page", [*EXECUTED, *PYTHON_ALONE], ids=lambda page: page.stem)
def test_every_block_runs_and_prints_what_is_shown(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    namespace: dict[str, object] = {"__name__": "__main__"}
    shown = 0
    for block in blocks(page.read_text()):
        if block.language == "toml" or (not torch_is("2.13") and "torch.func.grad(" in block.code):
            continue
        if block.language != "python" and page in PYTHON_ALONE:
            continue
        run = {"python": lambda b: run_python(page, b, namespace), "sh": run_shell}[block.language]
        version = re.compile(rf'(torch "?){re.escape(torch.__version__)}')  # any build: cpu, cu130
        output = version.sub(rf"\g<1>{RECORDED}.0", run(block))
        if block.shown is not None:
            assert output == block.shown, f"{page.name}, line {block.line}"
            shown += 1
        else:
            silent = block.language != "python" or not output
            assert silent, f"{page.name}, line {block.line}: output that is not shown"
    assert shown >= 2 or page in PYTHON_ALONE


def test_the_first_screen_extracts_in_twelve_lines():
    first = next(b for b in blocks(README.read_text()) if b.language == "python")
    assert len([line for line in first.code.splitlines() if line.strip()]) <= 12
    assert first.shown is not None
    assert first.line + first.code.count("\n") + first.shown.count("\n") < 45


def links(page):
    """The files that a page links to; what looks like a link in code is none."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    return [link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link]


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"])
def test_links_lead_somewhere(page):
    broken = [link for link in links(ROOT / page) if not (ROOT / link).exists()]
    assert not broken


def test_links_between_the_pages_of_docs_lead_somewhere():
    broken = [
        f"{page.name}: {link}"
        for page in (ROOT / "docs").glob("*.md")
        for link in links(page)
        if not (page.parent / link).exists()
    ]
    assert not broken
