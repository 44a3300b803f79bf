"""A profile in the trace event format, which chrome://tracing and Perfetto show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch_ir.debug.report import NodeProfile


def chrome_trace(name: str, nodes: Sequence[NodeProfile]) -> dict[str, Any]:
    """Lay nodes end to end, inside slices for their modules, with arrows along the values.

    Times are in microseconds, to the nanosecond. Of events at one time, the slices around others
    come first and the arrows last: readers nest and bind them in the order of the file.
    """
    titles = [
        {"name": f"{kind}_name", "ph": "M", "pid": 0, "tid": 0, "args": {"name": title}}
        for kind, title in (("process", name or "model"), ("thread", "nodes"))
    ]
    events: list[dict[str, Any]] = []
    is_open: list[tuple[str, int]] = []  # modules around the present node, with their starts
    now = 0
    ends: dict[str, int] = {}
    arrows = 0
    for node in nodes:
        parts = node.module.split(".") if node.module else []
        shared = _shared(parts, [part for part, _ in is_open])
        events += _closed(is_open, shared, now)
        is_open += [(part, now) for part in parts[shared:]]
        duration = round(node.seconds * 1e9)
        events.append(_slice(node.operator, "node", now, duration, _arguments(node)))
        for source in node.sources:
            if source in ends:
                arrows += 1
                events += [_arrow("s", arrows, ends[source]), _arrow("f", arrows, now)]
        ends[node.node] = now + max(duration - 1, 0)  # an arrow starts inside its slice
        now += duration
    events += _closed(is_open, 0, now)
    events.reverse()  # modules that take equal time were closed from the inside out
    events.sort(key=lambda event: (event["ts"], -event.get("dur", -1), event["cat"]))
    return {"traceEvents": [*titles, *events], "displayTimeUnit": "ns"}


def _shared(left: Sequence[str], right: Sequence[str]) -> int:
    """Return the length of the common prefix of two lists."""
    same = [a == b for a, b in zip(left, right, strict=False)]
    return same.index(False) if False in same else len(same)


def _closed(is_open: list[tuple[str, int]], keep: int, now: int) -> list[dict[str, Any]]:
    """End all but the outermost modules."""
    events: list[dict[str, Any]] = []
    while len(is_open) > keep:
        path = ".".join([part for part, _ in is_open])
        _, start = is_open.pop()
        events.append(_slice(path, "module", start, now - start, {}))
    return events


def _slice(
    name: str, category: str, start: int, duration: int, arguments: dict[str, Any]
) -> dict[str, Any]:
    """One slice; both times come in nanoseconds."""
    times = {"ts": start / 1000, "dur": duration / 1000}
    return {
        "name": name, "cat": category, "ph": "X", **times, "pid": 0, "tid": 0, "args": arguments
    }  # fmt: skip


def _arrow(phase: str, number: int, at: int) -> dict[str, Any]:
    """One end of a flow event: the start in the node that makes a value, the end in its user."""
    flow = {"name": "value", "cat": "value", "ph": phase, "id": number, "ts": at / 1000}
    return {**flow, "pid": 0, "tid": 0, **({"bp": "e"} if phase == "f" else {})}


def _arguments(node: NodeProfile) -> dict[str, Any]:
    return {
        "node": node.node,
        "operator": node.operator,
        "inputs": list(node.inputs),
        "outputs": list(node.outputs),
        "source": node.location,
        "bytes_read": node.bytes_read,
        "bytes_written": node.bytes_written,
        "flops": node.flops,
    }
