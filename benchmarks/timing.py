"""Timing things side by side, so that the drift of a shared machine is shared too."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping


def side_by_side(
    contenders: Mapping[str, Callable[[], object]], *, rounds: int = 7
) -> dict[str, float]:
    """The median seconds of each contender; every round runs each once, after one to warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name, contender in contenders.items():
            gc.collect()
            started = time.perf_counter()
            contender()
            if number:
                seconds[name].append(time.perf_counter() - started)
    return {name: statistics.median(values) for name, values in seconds.items()}


def report(title: str, seconds: Mapping[str, float], base: str) -> None:
    """Print each contender's seconds and its ratio to the base."""
    print(f"\n{title}")
    for name, value in seconds.items():
        print(f"  {name:<38} {value * 1000:>10.1f} ms   {value / seconds[base]:>7.3f} x {base}")
