"""Fail if a file, function, class or folder is larger than the project allows: it wants splitting.

Usage: ``python tools/check_sizes.py``

A file has at most 600 lines and a function 60. In ``src``, a class has at most 200 lines, and a
folder 15 files beside its ``__init__.py``; two folders hold one file for each row of a registry,
and may hold more. Outside of these two trees, at most two modules have one name, so that a name
in a traceback or a search says which room it is.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
FOLDERS = ("src", "tests", "tools", "examples", "benchmarks")
FILE_LINES = 600
FUNCTION_LINES = 60
CLASS_LINES = 200
FOLDER_FILES = 15
MODULES_OF_A_NAME = 2
REGISTRIES = frozenset({"src/torch_ir/semantics/operators", "src/torch_ir/cli/commands"})
"""Folders with one file for each row of a registry."""
ROWS = frozenset({"semantics", "cli"})
"""Folders whose modules are named after the rows they hold, as those of other folders may be."""


def oversized(name: str, source: str) -> Iterator[str]:
    """Yield one sentence for a file that is too long, and for each function of it that is."""
    lines = len(source.splitlines())
    if lines > FILE_LINES:
        yield f"{name}: {lines} lines, the limit is {FILE_LINES}"
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    yield from _too_long(name, source, functions, FUNCTION_LINES)


def large_classes(name: str, source: str) -> Iterator[str]:
    """Yield one sentence for each class of a file that is too long."""
    yield from _too_long(name, source, ast.ClassDef, CLASS_LINES)


def _too_long(name: str, source: str, kind: type, limit: int) -> Iterator[str]:
    for node in ast.walk(ast.parse(source, name)):
        if isinstance(node, kind):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > limit:
                where = f"{name}:{node.lineno}: {node.name}"
                yield f"{where} has {lines} lines, the limit is {limit}"


def crowded(names: Iterable[str]) -> Iterator[str]:
    """Yield one sentence for each folder that holds too many of the named files itself."""
    paths = map(PurePosixPath, names)
    counts = Counter(str(path.parent) for path in paths if path.name != "__init__.py")
    for folder, count in sorted(counts.items()):
        if count > FOLDER_FILES and folder not in REGISTRIES:
            yield f"{folder}: {count} files, the limit is {FOLDER_FILES}"


def repeated_modules(names: Iterable[str]) -> Iterator[str]:
    """Yield one sentence for each name that too many of the named modules have."""
    homes: dict[str, list[str]] = {}
    for path in map(PurePosixPath, sorted(names)):
        if path.name != "__init__.py" and not any(part in ROWS for part in path.parts):
            homes.setdefault(path.name, []).append(str(path))
    for name, files in sorted(homes.items()):
        if len(files) > MODULES_OF_A_NAME:
            yield f"{name} is the name of {', '.join(files)}: the limit is {MODULES_OF_A_NAME}"


def repeated_classes(sources: Mapping[str, str]) -> Iterator[str]:
    """Yield one sentence for each public class name that several of the named files define."""
    homes: dict[str, list[str]] = {}
    for name, source in sources.items():
        for node in ast.walk(ast.parse(source, name)):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(name)
    for name, files in sorted(homes.items()):
        if len(files) > 1:
            yield f"class {name} is defined in {', '.join(files)}: names of classes are unique"


def main() -> int:
    sources = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
    }
    package = {name: text for name, text in sources.items() if name.startswith("src/")}
    findings = [line for name, text in sources.items() for line in oversized(name, text)]
    findings += [*crowded(package), *repeated_classes(package), *repeated_modules(package)]
    findings += [line for name, text in package.items() for line in large_classes(name, text)]
    print("\n".join(findings) or "sizes: ok")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
