"""Write the calls that ``conform`` tries: core ATen operators, each with dtypes and shapes.

Usage: ``python tools/operator_cases.py``
"""

from __future__ import annotations

import gzip
import json

from torch_ir.debug.conformance.operator_cases import FILE, made_cases
from torch_ir.serde import write_atomically


def main() -> None:
    """Write the file; the same bytes for the same torch."""
    made = made_cases(["aten.*"])
    text = json.dumps(made.to_dict(), separators=(",", ":"), sort_keys=True)
    FILE.parent.mkdir(exist_ok=True)
    write_atomically(FILE, gzip.compress(text.encode(), 9, mtime=0))
    print(f"{FILE}: {len(made)} cases, {FILE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
