"""Fail if an import of torch_ir runs upward through the folders.

Usage: ``python tools/check_layers.py``

``[tool.torch_ir.layers]`` of ``pyproject.toml`` lists the folders from the top to the bottom; a
folder may import those of its own line and of the lines below. A *door* is an arrow upward that is
allowed inside a function, under ``TYPE_CHECKING`` or by a module's name, never when a module is
loaded. Imports, and strings that name a module of the package, count alike.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = "torch_ir"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@dataclass(frozen=True, slots=True)
class Layers:
    """The order of the folders, and the arrows upward that are allowed."""

    ranks: Mapping[str, int]
    doors: frozenset[tuple[str, str]]

    def folder_of(self, module: str) -> str | None:
        """Return the listed folder that a dotted name below the package is in: the longest."""
        parts = module.split(".")
        names = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
        return next((name for name in names if name in self.ranks), None)

    def is_door(self, module: str, target: str) -> bool:
        """Return whether a door leads from the module, or a folder around it, to the folder."""
        parts = module.split(".")
        around = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
        return any((start, target) in self.doors for start in around)


@dataclass(frozen=True, slots=True)
class Arrow:
    """One import: where it stands, what it names, and whether loading the file runs it."""

    line: int
    target: str
    is_at_load: bool


def read_layers(text: str) -> Layers:
    """Read the layers out of the text of ``pyproject.toml``."""
    table = tomllib.loads(text)["tool"][PACKAGE]["layers"]
    order = table["order"]
    ranks = {name: len(order) - i for i, line in enumerate(order) for name in line}
    doors = [tuple(door.split(" -> ")) for door in table["doors"]]
    return Layers(ranks, frozenset((start, target) for start, target in doors))


def arrows(tree: ast.AST, modules: frozenset[str], at_load: bool = True) -> Iterator[Arrow]:
    """Yield every import of the package in a file, and every string that names a module of it."""
    for node in ast.iter_child_nodes(tree):
        inner = at_load and not isinstance(node, FUNCTIONS)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            inner = False
        for name in _named(node, modules):
            runs = at_load and not isinstance(node, ast.Constant)
            yield Arrow(getattr(node, "lineno", 1), name, runs)
        yield from arrows(node, modules, inner)


def _named(node: ast.AST, modules: frozenset[str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in modules)
    elif isinstance(node, ast.ImportFrom) and node.module in modules:
        for alias in node.names:
            full = f"{node.module}.{alias.name}"
            yield full if full in modules else str(node.module)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        name = node.value.removesuffix(".")
        if name in modules and name != PACKAGE:
            yield name


def faults(path: str, source: str, modules: frozenset[str], layers: Layers) -> Iterator[str]:
    """Yield one sentence for each arrow of a file that may not be; ``path`` is below ``src``."""
    module = _below(_module_of(path))
    start = layers.folder_of(module)
    if start is None:
        yield f"{path}: no layer of pyproject.toml names this folder"
        return
    for arrow in arrows(ast.parse(source), modules):
        target = layers.folder_of(_below(arrow.target))
        if target is None or layers.ranks[target] <= layers.ranks[start]:
            continue  # an unlisted folder is told once, by its own files
        if arrow.is_at_load or not layers.is_door(module, target):
            yield f"src/{path}:{arrow.line}: {start} → {target} points up"


def _module_of(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _below(module: str) -> str:
    return module.removeprefix(PACKAGE).removeprefix(".") or "__init__"


def check(root: Path) -> list[str]:
    """Return what is wrong with the tree below ``root/src``."""
    layers = read_layers((root / "pyproject.toml").read_text(encoding="utf-8"))
    source = root / "src"
    files = {str(path.relative_to(source)): path for path in sorted(source.rglob("*.py"))}
    modules = frozenset(map(_module_of, files))
    return [
        fault
        for name, path in files.items()
        for fault in faults(name, path.read_text(encoding="utf-8"), modules, layers)
    ]


def main() -> int:
    findings = check(ROOT)
    print("\n".join(findings) or "layers: ok")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
