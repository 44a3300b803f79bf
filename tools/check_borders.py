"""Fail if anything crosses a border: private names of other packages, and torch's operators.

Usage: ``python tools/check_borders.py``

A name that starts with one underscore belongs to the package that it stands in. ruff and pyright
have no rule for private modules within one distribution. That ``ir`` and ``serde`` do not import
torch is ruff's to check: see the ``ruff.toml`` in those folders.

Which operators programs may call is decided in one place, so no other module of the package looks
operators up by names that are computed.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("src", "tests", "tools", "examples", "benchmarks")
PACKAGE = "torch_ir"
GATES = frozenset(
    Path("src/torch_ir", name) for name in ("torch_api.py", "torch_modes.py", "infer/resolve.py")
)
REGISTRY = "torch.ops"


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The line and the full dotted name of everything that a file imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def is_private(name: str) -> bool:
    """True for ``_name``, not for ``__name__``."""
    return name.startswith("_") and not name.endswith("__")


def trespasses(path: Path, source: str) -> Iterator[str]:
    """One sentence for each private import across a border; ``path`` is relative to the root."""
    home = path.parts[1:-1] if path.parts[0] == "src" else ()
    for line, name in imported(ast.parse(source)):
        parts = tuple(name.split("."))
        private = next((i for i, part in enumerate(parts) if is_private(part)), None)
        if parts[0] == PACKAGE and private is not None and parts[:private] != home[:private]:
            yield f"{path}:{line}: {name} is private to {'.'.join(parts[:private])}"


def detours(path: Path, source: str) -> Iterator[str]:
    """One sentence for each operator that a module of the package gets by a computed name."""
    if path.parts[0] != "src" or path in GATES:
        return
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(args=[given, *_]) if ast.unparse(node.func) in LOOKUPS:
                is_detour = REGISTRY in ast.unparse(given)
            case ast.Attribute(attr=name):
                is_detour = name.startswith("__") and ast.unparse(node.value) == REGISTRY
            case _:
                continue
        if is_detour:
            yield f"{path}:{node.lineno}: operators are looked up by infer.resolve alone"


LOOKUPS = ("getattr", "vars", "attrgetter", "operator.attrgetter")


def main() -> int:
    findings = [
        finding
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        for source in [path.read_text(encoding="utf-8")]
        for check in (trespasses, detours)
        for finding in check(path.relative_to(ROOT), source)
    ]
    print("\n".join(findings) or "borders: ok")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
