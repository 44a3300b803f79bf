"""Pages of the documentation site that are written from the code: a hook of mkdocs.

``mkdocs.yml`` names this file. Commands, the reference of public names and the table of operators
are made when the site is built; pages outside of ``docs`` become pages of the site.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from mkdocs.structure.files import File

import torch_ir
from torch_ir.cli import COMMANDS, main
from torch_ir.ops.spec import spec_of
from torch_ir.semantics import tolerance
from torch_ir.semantics.registry import denotation, denoted_operators
from torch_ir.serde.operator_table import operator_table

ROOT = Path(__file__).parents[1]
OUTSIDE = ("README", "CHANGELOG", "CONTRIBUTING", "SECURITY")
NOTE = "<!-- Written by tools/docs_site.py when the site is built. -->\n\n"


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are written from the code."""
    for path, text in pages():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **options: Any) -> str:
    """Lead links out of ``docs`` to the pages that stand for what is there."""
    del options
    up = "../" * page.file.src_uri.count("/")
    for name in OUTSIDE:
        markdown = re.sub(rf"\(\.\./{name}\.md", f"({up}{name.lower()}.md", markdown)
    if page.file.src_uri == "readme.md":
        markdown = markdown.replace("(docs/", "(")
        for name in OUTSIDE:
            markdown = markdown.replace(f"({name}.md", f"({name.lower()}.md")
    return markdown


def pages() -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each page."""
    for name in OUTSIDE:
        yield f"{name.lower()}.md", (ROOT / f"{name}.md").read_text()
    yield from commands()
    yield "api.md", reference()
    yield "operators.md", operators()


def commands() -> Iterator[tuple[str, str]]:
    """Yield a page for each command, and one that lists them."""
    os.environ["COLUMNS"] = "100"
    rows = [f"| [`{name}`]({name}.md) | {about} |" for name, about in COMMANDS.items()]
    head = f"{NOTE}# Commands\n\n| `torch-ir` | |\n| --- | --- |\n"
    yield "commands/index.md", head + "\n".join(rows) + "\n"
    context = click.Context(main, info_name="torch-ir")
    for name in COMMANDS:
        command = main.get_command(context, name)
        inner = click.Context(command, parent=context, info_name=name, max_content_width=100)
        shown = command.get_help(inner)
        yield f"commands/{name}.md", f"{NOTE}# torch-ir {name}\n\n```text\n{shown}\n```\n"


def reference() -> str:
    """The page on every public name, which mkdocstrings fills in."""
    parts = [f"{NOTE}# Public names\n\nEverything that `torch_ir` exports.\n"]
    for name in sorted(torch_ir.__all__, key=str.lower):
        value = getattr(torch_ir, name)
        home = getattr(value, "__module__", None) if callable(value) else None
        if home and hasattr(importlib.import_module(home), name):
            parts.append(f"::: {home}.{name}\n    options:\n      show_root_full_path: false\n")
        else:
            parts.append(f"## `{name}`\n\n`{value!r:.80}`\n")
    return "\n".join(parts)


def operators() -> str:
    """The table of operators: what each means, how far a kernel may be, and its dialects."""
    lines = [
        f"{NOTE}# Operators\n",
        f"{len(denoted_operators())} overloads have a meaning. The tolerance is that of "
        "[validation](validation.md); dtypes of Edge are in [dialects](dialects.md).\n",
        "| operator | schema | meaning | tolerance | core ATen |",
        "| --- | --- | --- | --- | --- |",
    ]
    known = operator_table(None)
    for name in denoted_operators():
        meaning = (inspect.getdoc(denotation(name).function) or "").partition("\n")[0]
        row = known.get(name)
        schema = row["schema"].partition("(")[2].replace("|", "\\|") if row else ""
        spec = spec_of(name) if row else None
        core = "yes" if spec is not None and spec.is_core else ""
        cells = (
            f"`{name}`",
            f"`({schema}`" if row else "",
            meaning,
            tolerance.kind_of(name),
            core,
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
