"""Verdicts on delegates: what runs where, how exact it is, and why the rest does not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch_ir.errors import counted
from torch_ir.ir import Location
from torch_ir.ir.diagnostics import at
from torch_ir.tables import table


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a delegate, or on a single node that a runtime refused.

    Attributes:
        delegate: The name of the delegate; that of the node where it is not used.
        runtime: The name of the backend.
        nodes: The names of its nodes, in program order.
        used: Whether it runs on the runtime; torch runs it if not.
        part: The worst error as a part of the allowed one; inf where types, shapes or the places
            of NaN differ, nan if it was not run.
        us: Microseconds of a call; nan if it was not timed.
        other_us: Those of the same nodes on torch.
        reason: Why it is not used, or what is not known of it; empty if it is used and verified.
        location: Where its first node is written.
    """

    delegate: str
    runtime: str
    nodes: tuple[str, ...]
    used: bool
    part: float = math.nan
    us: float = math.nan
    other_us: float = math.nan
    reason: str = ""
    location: Location | None = None


def report(verdicts: Sequence[Verdict], nodes: int, runtimes: Sequence[str]) -> str:
    """Format verdicts as a table, below a line that says how much runs on each runtime.

    Args:
        verdicts: The verdicts.
        nodes: How many nodes the program has.
        runtimes: The names of the backends.
    """
    lines: list[str] = []
    for runtime in runtimes:
        used = [v for v in verdicts if v.used and v.runtime == runtime]
        count = sum(len(verdict.nodes) for verdict in used)
        of = f"{count} of {counted(nodes, 'node')}"
        if used:
            parts = counted(len(used), "delegate")
            lines.append(f"{runtime} runs {of} in {parts}, torch the rest")
        else:
            lines.append(f"nothing runs on {runtime}: torch runs {counted(nodes, 'node')}")
    if verdicts:
        head = ("delegate", "runtime", "nodes", "used", "part", "us", "torch us", "reason")
        lines += ["", table([head, *map(_row, verdicts)])]
    return "\n".join(lines)


def _row(verdict: Verdict) -> tuple[str, ...]:
    place = "" if verdict.used else at(verdict.location, " ({})")
    return (
        verdict.delegate,
        verdict.runtime,
        str(len(verdict.nodes)),
        "yes" if verdict.used else "no",
        _number(verdict.part, "{:.2g}"),
        _number(verdict.us, "{:.1f}"),
        _number(verdict.other_us, "{:.1f}"),
        f"{verdict.reason:.160}{place}",
    )


def _number(value: float, form: str) -> str:
    return "" if math.isnan(value) else form.format(value)
