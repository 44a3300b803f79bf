"""Fail if a Python file is longer than 600 lines or a function longer than 60: it wants splitting.

Usage: ``python tools/check_sizes.py``
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("src", "tests", "tools", "examples", "benchmarks")
FILE_LINES = 600
FUNCTION_LINES = 60


def oversized(name: str, source: str) -> Iterator[str]:
    """One sentence for each thing in a file that is too long."""
    lines = len(source.splitlines())
    if lines > FILE_LINES:
        yield f"{name}: {lines} lines, the limit is {FILE_LINES}"
    for node in ast.walk(ast.parse(source, name)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES:
                where = f"{name}:{node.lineno}: {node.name}"
                yield f"{where} has {lines} lines, the limit is {FUNCTION_LINES}"


def main() -> int:
    findings = [
        finding
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        for finding in oversized(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))
    ]
    print("\n".join(findings) or "sizes: ok")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
