"""All benchmarks, one after the other, each in a process of its own: ``make bench``.

What counts are the ratios: both sides of one were measured in turn in one run. Milliseconds are
those of this machine at this moment.
"""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

BENCHMARKS = ("startup", "storage", "extraction", "executor", "lowering", "traced", "llama")


def main() -> int:
    chosen = sys.argv[1:] or BENCHMARKS
    print(f"python {platform.python_version()}, {platform.machine()}, one thread", flush=True)
    folder = Path(__file__).parent
    results = [subprocess.run([sys.executable, folder / f"{name}.py"]) for name in chosen]
    return max(result.returncode for result in results)


if __name__ == "__main__":
    sys.exit(main())
