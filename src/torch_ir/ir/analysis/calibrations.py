"""Times that a machine takes for calls, by kind of work and its sizes, which turn costs into time.

A kind has a grid of measured sizes; between them, seconds follow a power of each size; below the
first they stay, and above the last they grow as the size does.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import product
from math import exp, log, prod
from os import PathLike
from pathlib import Path
from typing import Any

from torch_ir.errors import SerializationError, counted, raised_as
from torch_ir.ir.analysis.workloads import Workload
from torch_ir.tables import Shown, report_text

WEIGHTS = "weights"
"""The kind that says how long a run takes to read all of its weights once, by their bytes."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds at every combination of some sizes.

    Attributes:
        axes: The sizes along each axis, ascending.
        seconds: Of the combinations, the last axis first.

    Example:
        >>> measured = Measured(((10.0, 1000.0),), (1e-6, 1e-4))
        >>> [f"{measured.at((size,)):.0e}" for size in (1, 100, 2000)]
        ['1e-06', '1e-05', '2e-04']
    """

    axes: tuple[tuple[float, ...], ...]
    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.seconds) != prod(map(len, self.axes)) or min(self.seconds, default=0) <= 0:
            raise ValueError("a kind needs a positive time for every combination of its sizes")

    def at(self, sizes: tuple[float, ...]) -> float:
        """Return the seconds at some sizes."""
        places = [_place(axis, size) for axis, size in zip(self.axes, sizes, strict=True)]
        total = 0.0
        for corner in product((0, 1), repeat=len(places)):
            share, index = 1.0, 0
            for end, (low, part, _), axis in zip(corner, places, self.axes, strict=True):
                share *= part if end else 1 - part
                index = index * len(axis) + min(low + end, len(axis) - 1)
            if share:
                total += share * log(self.seconds[index])
        return exp(total) * prod(beyond for _, _, beyond in places)


def _place(axis: tuple[float, ...], size: float) -> tuple[int, float, float]:
    """The measured size below, how far it is to the next, and by what it is above the last."""
    low = bisect_right(axis, size) - 1
    if low < 0:
        return 0, 0.0, 1.0
    if low == len(axis) - 1:
        return low, 0.0, size / axis[low]
    return low, log(size / axis[low]) / log(axis[low + 1] / axis[low]), 1.0


@dataclass(frozen=True, slots=True)
class Calibration(Shown):
    """What one machine was seen to take.

    Attributes:
        processor: Name of the processor.
        torch: Version of torch.
        threads: How many threads torch used.
        kinds: Seconds by kind of work.
    """

    processor: str
    torch: str
    threads: int
    kinds: Mapping[str, Measured]

    def __str__(self) -> str:
        machine = f"{self.processor}, torch {self.torch}, {counted(self.threads, 'thread')}"
        return report_text([f"{machine}: measured {', '.join(self.kinds)}"])

    def predict(
        self, work: Workload, moved: int, weights: int = 0, total: int = 0
    ) -> tuple[float, str]:
        """Return the seconds of a call, and ``"compute"`` or ``"memory"``, which takes longer.

        Args:
            work: What it does.
            moved: The bytes that it reads and writes.
            weights: How many of them are of weights.
            total: Bytes of all weights of the program: few stay in caches between runs.

        Example:
            >>> bytes_moved = Measured(((1e3, 1e6),), (1e-6, 1e-4))
            >>> machine = Calibration("cpu", "2.13", 1, {"pointwise": bytes_moved})
            >>> seconds, bound = machine.predict(Workload("pointwise", (2e6,)), 2 * 10**6)
            >>> f"{seconds:.0e}", bound
            ('2e-04', 'memory')
        """
        if work.kind not in self.kinds:
            return self.kinds["pointwise"].at((moved,)), "memory"
        seconds = self.kinds[work.kind].at(work.sizes) * work.times
        if not work.computes:
            return seconds, "memory"
        memory = self.kinds["pointwise"].at((moved,))
        if WEIGHTS in self.kinds and total:
            known = self.kinds[WEIGHTS]
            read = known.at((total,)) * weights / total
            if work.kind == "product":  # measured with weights that are in caches
                few = known.axes[0][0]
                seconds += max(0.0, read - known.at((few,)) * weights / few)
            memory = max(memory, read)
        return max(seconds, memory), "compute" if seconds > memory else "memory"

    def to_dict(self) -> dict[str, Any]:
        """Convert it to plain data."""
        return asdict(self)

    def save(self, path: str | PathLike[str]) -> None:
        """Write it as JSON."""
        from torch_ir.serde.files import make_folder, write_atomically

        make_folder(Path(path).parent)
        write_atomically(path, f"{json.dumps(self.to_dict(), indent=1)}\n".encode())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Calibration:
        """Read it from JSON.

        Raises:
            SerializationError: It cannot be read.
        """

        def refused(error: Exception) -> SerializationError:
            return SerializationError(
                f"{path} cannot be read as a calibration: {error}",
                remedy="Delete it, and measure again.",
            )

        with raised_as(refused):
            data = json.loads(Path(path).read_text())
            found = {
                kind: Measured(
                    tuple([tuple(map(float, axis)) for axis in known["axes"]]),
                    tuple(map(float, known["seconds"])),
                )
                for kind, known in data["kinds"].items()
            }
            if not found.keys() >= {"view", "pointwise"}:
                raise ValueError("it has no times of views and pointwise calls")
            return cls(str(data["processor"]), str(data["torch"]), int(data["threads"]), found)
