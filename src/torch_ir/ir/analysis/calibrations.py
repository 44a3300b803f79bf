"""Times that a machine takes for nodes, by kind and work, which turn costs into time.

Work is operations for what computes and bytes for what moves. A kind has measured points; between
them, seconds follow a power of the work; below the first they stay, and above the last they grow
as the work does.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import exp, log
from os import PathLike
from pathlib import Path
from typing import Any

from torch_ir.errors import SerializationError, raised_as
from torch_ir.tables import Shown

KINDS: Mapping[str, tuple[str, ...]] = {
    "product": ("mm", "addmm", "bmm", "baddbmm", "linear", "matmul", "mv", "dot"),
    "attention": ("scaled_dot_product_attention",),
    "convolution": ("convolution", "conv1d", "conv2d", "conv3d"),
    "exponential": ("sigmoid", "exp", "log", "silu"),
    "function": ("gelu", "tanh", "erf", "sin", "cos", "pow"),
    "row": (
        *("softmax", "_softmax", "layer_norm", "native_layer_norm", "rms_norm", "sum", "mean"),
        *("amax", "max", "var", "argmax", "log_softmax", "_log_softmax"),
    ),
    "normalization": ("batch_norm", "_native_batch_norm_legit_no_training", "group_norm"),
    "pooling": ("max_pool2d", "max_pool2d_with_indices", "avg_pool2d"),
}
"""Operators of each kind; ``"view"`` is what moves nothing, ``"pointwise"`` all others."""

COMPUTING = frozenset({"product", "attention", "convolution"})
"""The kinds whose work is operations."""

WEIGHTS = "weights"
"""The kind of points that say how long a run takes to read all of its weights once."""

_KIND_OF = {f"aten.{name}": kind for kind, names in KINDS.items() for name in names}


@dataclass(frozen=True, slots=True)
class Calibration(Shown):
    """What one machine was seen to take.

    Attributes:
        processor: Name of the processor.
        torch: Version of torch.
        threads: How many threads torch used.
        points: Work and seconds of one node, by kind, in ascending order of work.
    """

    processor: str
    torch: str
    threads: int
    points: Mapping[str, tuple[tuple[float, float], ...]]

    def predict(
        self, op_type: str, count: int | None, moved: int, weights: int = 0, total: int = 0
    ) -> tuple[float, str]:
        """Return the seconds of a node, and ``"compute"`` or ``"memory"``, which takes longer.

        Args:
            op_type: The exact overload.
            count: Its operations; None if unknown.
            moved: The bytes that it reads and writes.
            weights: How many of them are of weights.
            total: Bytes of all weights of the program: few stay in caches between runs.

        Example:
            >>> points = {"view": ((0, 1e-6),), "pointwise": ((1e3, 1e-6), (1e6, 1e-4))}
            >>> machine = Calibration("cpu", "2.13", 1, points)
            >>> machine.predict("aten.relu.default", 10**6, 2 * 10**6)
            (0.0002, 'memory')
        """
        kind = _KIND_OF.get(op_type.rpartition(".")[0], "pointwise") if moved else "view"
        kind = kind if kind in self.points else "pointwise"
        if kind not in COMPUTING:
            return self._seconds(kind, moved), "memory"
        compute, memory = self._seconds(kind, count or 0), self._seconds("pointwise", moved)
        if WEIGHTS in self.points and total:
            memory = max(memory, self._seconds(WEIGHTS, total) * weights / total)
        return max(compute, memory), "compute" if compute > memory else "memory"

    def _seconds(self, kind: str, work: float) -> float:
        points = self.points[kind]
        place = bisect_left(points, (work, 0.0))
        if place == 0:
            return points[0][1]
        (low, first), (high, second) = points[place - 1], points[min(place, len(points) - 1)]
        if place == len(points):
            return second * work / high if high else second
        if not low:
            return first + (second - first) * work / high
        part = log(work / low) / log(high / low)
        return exp(log(first) + part * (log(second) - log(first)))

    def to_dict(self) -> dict[str, Any]:
        """Convert it to plain data."""
        return asdict(self)

    def save(self, path: str | PathLike[str]) -> None:
        """Write it as JSON."""
        from torch_ir.serde.files import write_atomically

        Path(path).parent.mkdir(parents=True, exist_ok=True)
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
                k: tuple([(float(w), float(s)) for w, s in v]) for k, v in data["points"].items()
            }
            if not all(found.get(kind) for kind in ("view", "pointwise")):
                raise ValueError("it has no points for views and pointwise nodes")
            return cls(str(data["processor"]), str(data["torch"]), int(data["threads"]), found)
