"""Hard memory plans: pieces from CSV files (id, lower, upper, size) in the capacity of the name.

    python benchmarks/memory_plans.py FOLDER

A file is called NAME.CAPACITY.csv, as in the instances of google/minimalloc. Printed are the arena
of best fit, that of the answer at once, and whether the pieces fit in the capacity.
"""

import csv
import sys
import time
from pathlib import Path

from torch_ir.passes.memory_plan import Piece, arrange
from torch_ir.passes.memory_plan.offsets import arena_size, overlapping, place


def main() -> None:
    fitted = files = 0
    for path in sorted(Path(sys.argv[1]).glob("*.csv")):
        capacity = int(path.name.split(".")[-2])
        with path.open() as file:
            pieces = [
                Piece(row["id"], int(row["size"]), int(row["lower"]), int(row["upper"]) - 1)
                for row in csv.DictReader(file)
            ]
        sizes = {piece.name: piece.size for piece in pieces}
        ratios, times = [], []
        for way, limit in ((place, ()), (arrange, ()), (arrange, (capacity,))):
            start = time.perf_counter()
            offsets = way(pieces, 1, *limit)
            times.append(time.perf_counter() - start)
            assert offsets is None or not list(overlapping(pieces, offsets))
            ratios.append(
                "none" if offsets is None else f"{arena_size(offsets, sizes) / capacity:.3f}"
            )
        files += 1
        fitted += ratios[-1] != "none"
        cells = [
            f"{ratio} ({seconds:.1f} s)" for ratio, seconds in zip(ratios, times, strict=True)
        ]
        print(
            f"{path.stem}: best fit {cells[0]}, at once {cells[1]}, capacity {cells[2]}",
            flush=True,
        )
    print(f"{fitted} of {files} fit")


if __name__ == "__main__":
    main()
