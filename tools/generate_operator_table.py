"""Write ``docs/operators.json``: the schema and the defaults of every operator of torch.

Usage: ``python tools/generate_operator_table.py``; with ``--check``, exit 1 if it is out of date.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from torch_ir.serde.operator_table import operator_table

TARGET = Path(__file__).parents[1] / "docs/operators.json"


def text() -> str:
    """The table, one operator a line."""
    lines = [f"{json.dumps(name)}: {json.dumps(row)}" for name, row in operator_table().items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> int:
    """Write it, or compare."""
    if "--check" in sys.argv:
        if TARGET.is_file() and TARGET.read_text("utf-8") == text():
            return 0
        print(f"{TARGET.name} is not what the table gives: run `make generate`")
        return 1
    TARGET.write_text(text(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
