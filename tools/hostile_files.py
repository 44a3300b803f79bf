"""Measure what it takes to read the files of ``tests/hostile``, each of about a megabyte.

Usage: ``PYTHONPATH=tests python tools/hostile_files.py [--size N] [--only TEXT ...] [--record]``

Each file is read in a child process. Prints seconds of the CPU and megabytes of memory, and exits
with 1 if a file takes more than a second or 200 MB for each of its megabytes, or ends in an error
of another family. ``--record`` writes the slowest and the largest of each kind into SECURITY.md.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from fuzz import Child
from fuzz_judging import MEGABYTES, SECONDS, read
from hostile import HOSTILE
from torch_ir.errors import TorchIRError

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- hostile: begin -->", "<!-- hostile: end -->"
Row = tuple[str, float, float, str]
"""A name, seconds, megabytes, and what became of the file."""


def measured(name: str, make: Callable[[int], bytes], size: int) -> Row:
    """Read a file in a child of this process."""
    data = make(size)

    def attempt() -> tuple[float, float, str]:
        outcome = "accepted"
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        begin = time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            try:
                read(name.split(":")[0], data, Path(folder))
            except TorchIRError as error:
                outcome = type(error).__name__
        seconds = time.process_time() - begin
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        return seconds, grown / 1024, outcome

    answer, death = Child().run(attempt)
    seconds, grown, outcome = answer or (0.0, 0.0, f"ended by {death}")
    scale = max(1.0, len(data) / 1e6)
    if seconds > SECONDS * scale or grown > MEGABYTES * scale:
        outcome += ", too much"
    return name, seconds / scale, grown / scale, outcome


def table(rows: Sequence[Row]) -> str:
    """The slowest and the largest of each kind, as Markdown."""
    lines = [
        f"{len(rows)} files, torch {torch.__version__.split('+')[0]}; for each MB:\n",
        "| Format | Files | Slowest | Seconds | Largest | MB |",
        "| --- | ---: | --- | ---: | --- | ---: |",
    ]
    for kind in dict.fromkeys(row[0].split(":")[0] for row in rows):
        own = [row for row in rows if row[0].startswith(f"{kind}:")]
        slow, large = max(own, key=lambda row: row[1]), max(own, key=lambda row: row[2])
        slowest, largest = (row[0].split(": ", 1)[1] for row in (slow, large))
        lines.append(
            f"| {kind} | {len(own)} | {slowest} | {slow[1]:.1f} | {largest} | {large[2]:.0f} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Measure; exits with 1 if a file takes too much."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=1_000_000)
    parser.add_argument("--only", nargs="*", default=[""])
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rows: list[Row] = []
    for name, make in HOSTILE.items():
        if any(word in name for word in given.only):
            rows.append(measured(name, make, given.size))
            print("{:60} {:5.2f} s {:5.0f} MB  {}".format(*rows[-1]), flush=True)
    if given.record:
        path = ROOT / "SECURITY.md"
        before, _, rest = path.read_text().partition(BEGIN)
        path.write_text(f"{before}{BEGIN}\n{table(rows)}\n{END}{rest.partition(END)[2]}")
    known = ("accepted", "SerializationError", "ParseError", "WeightLoadError")
    wrong = [row for row in rows if row[3] not in known]
    print(f"{len(rows)} files, {len(wrong)} wrong", *wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
