"""Plots of reports: one SVG with its data, as a page, in a notebook, or as JSON."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from torch_ir.errors import InvalidIRError, did_you_mean, printable, raised_as
from torch_ir.tables import bytes_text, module_paths, number_text, time_text
from torch_ir.viz.axes import HEIGHT, PALETTE, TOP, WIDTH, Axes, label, picture, tag
from torch_ir.viz.overlays import malformed
from torch_ir.viz.page import Page

MOST_MARKS = 1500
"""The largest are drawn; the data beside the picture has all."""

Rows: TypeAlias = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Plot:
    """A picture and the data that it shows.

    Attributes:
        kind: What kind it is: ``memory``, ``roofline``, ``treemap``, ``errors`` or ``histogram``.
        title: What a reader sees above it.
        data: The data, as plain values.
        svg: The picture.
    """

    kind: str
    title: str
    data: Mapping[str, Any] = field(repr=False)
    svg: str = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Convert the plot to plain data, without the picture."""
        return {"kind": self.kind, "title": self.title, "data": dict(self.data)}

    def page(self) -> Page:
        """Return a page with the picture and the data, which no script reads."""
        policy = "default-src 'none'; style-src 'unsafe-inline'"
        data = json.dumps(self.to_dict()).replace("<", "\\u003c")
        return Page(
            "<!doctype html>\n"
            '<html lang="en"><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
            f'<meta name="generator" content="torch-ir">'
            f"<title>{html.escape(printable(self.title))}</title><style>"
            ":root{color-scheme:light dark}body{max-width:1100px;margin:24px auto;"
            "padding:0 16px}svg{max-width:100%!important}</style>"
            f'\n{self.svg}\n<script type="application/json">{data}</script></html>\n'
        )

    def _repr_html_(self) -> str:
        return self.svg


def plot(report: object, kind: str | None = None) -> Plot:
    """Plot a report.

    Args:
        report: A report with ``to_dict``, or its JSON: a memory plan (``memory``: the arena over
            time), a profile or cost (``roofline``: operations per second over operations per byte;
            ``treemap`` and ``flame``: what each module takes, by size or in program order), a
            validation (``errors``: each value's part of what is allowed), or
            ``{"values": {name: [number, ...]}}`` (``histogram``).
        kind: Which plot, where a report has several.

    Raises:
        InvalidIRError: There is no such plot, or the report has not what it needs.

    Example:
        >>> plot({"values": {"relu": [0.0, 0.5, 2.0]}}).kind
        'histogram'
    """
    convert = getattr(report, "to_dict", None)
    data: Any = report if convert is None else convert()
    if kind is not None and kind not in _KINDS:
        hint = did_you_mean(kind, _KINDS) or f"One of {', '.join(_KINDS)}."
        raise InvalidIRError(f"there is no plot {kind!r}", remedy=hint)
    entries = cast(Mapping[str, Any], data if isinstance(data, Mapping) else {})
    for name, (needs, draw) in _KINDS.items():
        if kind in (None, name) and all(_has(entries, key) for key in needs):
            with raised_as(malformed, passing=(InvalidIRError,)):
                return draw(entries)
    wanted = [needs for name, (needs, _) in _KINDS.items() if kind in (None, name)]
    needed = " or ".join([" and ".join(needs) for needs in wanted])
    raise InvalidIRError(f"this has not what a plot needs: {needed}")


def _has(data: Mapping[str, Any], key: str) -> bool:
    """Whether a report has a field, or for ``nodes.flops`` a record in that list has it."""
    name, _, inner = key.partition(".")
    rows = data.get(name)
    if not inner:
        return rows is not None
    return isinstance(rows, list | tuple) and any(
        isinstance(row, dict) and inner in row for row in cast(Sequence[object], rows)
    )


# -- memory ---------------------------------------------------------------------------------------


def _memory(data: Mapping[str, Any]) -> Plot:
    """Every piece of the arena: when it is live, and where it lies."""
    steps, size = len(data["nodes"]), max(1, int(data["size"]))
    pieces = sorted(data["allocations"], key=lambda piece: -piece["size"])
    title = f"{data.get('model') or 'program'}: an arena of {bytes_text(size)}"
    frame = Axes.of(
        title,
        (0, max(1, steps)),
        (0, size),
        names=("node, in program order", "place in the arena"),
        spell=(lambda at: f"{at:g}", lambda at: bytes_text(int(at))),
        bases=(10, 2),
    )
    for number, piece in enumerate(pieces[:MOST_MARKS]):
        start, end = piece["offset"], piece["offset"] + piece["size"]
        about = (
            f"%{piece['name']}: {bytes_text(piece['size'])} at {start:,}\n"
            f"live from node {piece['birth']} to {piece['death']}"
        )
        color = PALETTE[number % len(PALETTE)]
        frame.rect(piece["birth"], start, min(piece["death"] + 1, steps), end, about, color)
    live = [(float(at), float(row["live"])) for at, row in enumerate(data["nodes"])]
    if live:
        frame.line(live, "currentColor", "live bytes")
        peak, most = max(live, key=lambda point: point[1])
        frame.line([(peak, 0), (peak, size)], "#d62728", "the peak")
        name = data["nodes"][int(peak)]["node"]
        side = "end" if peak > steps * 0.6 else "start"
        frame.note(f"peak {bytes_text(int(most))} at %{name}", peak, size, dy=-6, text_anchor=side)
    return Plot("memory", title, data, frame.svg())


# -- time and work --------------------------------------------------------------------------------


def _roofline(data: Mapping[str, Any]) -> Plot:
    """Operations per second over operations per byte, and the machine's roof if it is given."""
    rows = [
        row for row in data["nodes"] if row.get("flops") and row.get("seconds") and _bytes(row)
    ]
    if not rows:
        raise InvalidIRError("no node has operations, bytes and seconds")
    points = [(row["flops"] / _bytes(row), row["flops"] / row["seconds"], row) for row in rows]
    roof, slope = data.get("peak_flops"), data.get("bandwidth")
    across = (min(p[0] for p in points) / 2, max(p[0] for p in points) * 2)
    tops = [p[1] for p in points] + ([roof] if roof else [])
    title = f"{data.get('model_name') or 'program'}: {len(points)} nodes under the roofline"
    frame = Axes.of(
        title,
        across,
        (min(p[1] for p in points) / 2, max(tops) * 2),
        names=("operations per byte", "operations per second"),
        spell=(lambda v: f"{v:g}", lambda v: number_text(int(v))),
        logs=(True, True),
    )
    if roof and slope:
        ridge = min(max(roof / slope, across[0]), across[1])
        path = [
            (across[0], across[0] * slope),
            (ridge, min(ridge * slope, roof)),
            (across[1], roof),
        ]
        frame.line(path, "currentColor", "the roof")
    longest = max(row["seconds"] for row in rows)
    operators = list(dict.fromkeys(row["operator"] for row in rows))
    for x, y, row in sorted(points, key=lambda p: -p[2]["seconds"])[:MOST_MARKS]:
        color = PALETTE[min(operators.index(row["operator"]), len(PALETTE) - 1)]
        about = f"%{row['node']} {row['operator']}\n{time_text(row['seconds'])}, "
        about += f"{number_text(int(y))}FLOP/s"
        frame.dot(x, y, 3 + 11 * math.sqrt(row["seconds"] / longest), about, color)
    kept = [
        {key: row[key] for key in ("node", "operator", "seconds", "flops")}
        | {"bytes": _bytes(row)}
        for row in rows
    ]
    return Plot(
        "roofline", title, {"nodes": kept, "peak_flops": roof, "bandwidth": slope}, frame.svg()
    )


def _bytes(row: Mapping[str, Any]) -> int:
    found = row.get("bytes")
    return int(
        found if found is not None else row.get("bytes_read", 0) + row.get("bytes_written", 0)
    )


def _treemap(data: Mapping[str, Any]) -> Plot:
    """What each module takes: seconds where they are known, or else bytes."""
    rows = cast(Rows, data["nodes"])
    timed = any(row.get("seconds") for row in rows)
    totals: dict[str, float] = {}
    for row in rows:
        value = row.get("seconds") if timed else _bytes(row)
        path = str(row.get("module") or row.get("operator") or "")
        totals[path] = totals.get(path, 0.0) + float(value or 0)
    spell: Callable[[float], str] = time_text if timed else (lambda v: bytes_text(int(v)))
    title = f"{data.get('model_name') or 'program'}: {spell(sum(totals.values()))} by module"
    ranked = sorted(((value, path) for path, value in totals.items() if value > 0), reverse=True)
    boxes: list[str] = [label(title, 8, 22, font_size=14, font_weight=600)]
    tops = list(dict.fromkeys(_top(path) for _, path in ranked))
    for (value, path), (x, y, w, h) in zip(
        ranked[:MOST_MARKS], _squares([v for v, _ in ranked[:MOST_MARKS]]), strict=True
    ):
        color = PALETTE[tops.index(_top(path)) % len(PALETTE)]
        place: dict[str, Any] = {
            "x": x,
            "y": y,
            "width": max(w - 1, 0.3),
            "height": max(h - 1, 0.3),
        }
        about = f"{path}: {spell(value)}"
        boxes.append(tag("rect", title=about, fill=color, fill_opacity=0.75, **place))
        tails = (".".join(path.split(".")[-count:]) for count in (4, 3, 2, 1))
        name = next((tail for tail in tails if w > 6.2 * len(tail) + 10), "")
        if name and h > 16:
            boxes.append(label(name, x + 5, y + 13, pointer_events="none"))
    kept = [{"module": path, "value": value} for value, path in ranked]
    unit = "seconds" if timed else "bytes"
    return Plot("treemap", title, {"unit": unit, "modules": kept}, picture(boxes, title))


def _flame(data: Mapping[str, Any]) -> Plot:
    """What each module takes, in program order, its parts above it: seconds, or else bytes."""
    rows = cast(Rows, data["nodes"])
    timed = any(row.get("seconds") for row in rows)
    spans: list[tuple[int, str, float, float]] = []  # depth, path, start and end
    open_spans: list[tuple[str, float]] = []
    at = 0.0
    for row in (*rows, {}):
        module = str(row.get("module") or "")
        paths = [*module_paths(module)[1:], f"{module} {row['operator']}"] if row else []
        kept = 0
        while kept < min(len(paths), len(open_spans)) and paths[kept] == open_spans[kept][0]:
            kept += 1
        for depth in range(len(open_spans) - 1, kept - 1, -1):
            spans.append((depth, open_spans[depth][0], open_spans[depth][1], at))
        open_spans = [*open_spans[:kept], *((path, at) for path in paths[kept:])]
        at += float((row.get("seconds") if timed else _bytes(row)) or 0) if row else 0.0
    spell: Callable[[float], str] = time_text if timed else (lambda v: bytes_text(int(v)))
    title = f"{data.get('model_name') or 'program'}: {spell(at)} in program order"
    boxes: list[str] = [label(title, 8, 22, font_size=14, font_weight=600)]
    levels = 1 + max((depth for depth, *_ in spans), default=0)
    high, scale = min(24.0, (HEIGHT - TOP) / levels), (WIDTH - 16.0) / (at or 1.0)
    tops = list(dict.fromkeys(_top(path.split(" ")[0]) for _, path, *_ in spans))
    widest = sorted(spans, key=lambda span: span[2] - span[3])[:MOST_MARKS]
    for depth, path, start, end in widest:
        x, y, w = 8 + start * scale, HEIGHT - 8 - (depth + 1) * high, (end - start) * scale
        place: dict[str, Any] = {"x": x, "y": y, "width": max(w - 0.5, 0.2), "height": high - 1}
        color = PALETTE[tops.index(_top(path.split(" ")[0])) % len(PALETTE)]
        about = f"{path.strip()}: {spell(end - start)}"
        boxes.append(tag("rect", title=about, fill=color, fill_opacity=0.75, **place))
        name = path.rpartition(" ")[2] if " " in path else path.rpartition(".")[2]
        if w > 6.2 * len(name) + 8 and high > 12:
            boxes.append(label(name, x + 4, y + high - 8, pointer_events="none"))
    held = [{"depth": d, "path": path, "start": a, "end": b} for d, path, a, b in widest]
    facts = {
        "unit": "seconds" if timed else "bytes",
        "spans": held,
        "left": len(spans) - len(held),
    }
    return Plot("flame", title, facts, picture(boxes, title))


def _top(path: str) -> str:
    """The part of a path that tells layers of a kind together."""
    return ".".join(part for part in path.split(".")[:4] if not part.isdecimal())


def _squares(values: Sequence[float]) -> Iterable[tuple[float, float, float, float]]:
    """Divide the picture among values, largest first, into boxes that are nearly squares."""
    x, y, w, h = 8.0, float(TOP - 6), WIDTH - 16.0, float(HEIGHT - TOP)
    left = sum(values) or 1.0
    at = 0
    while at < len(values):
        side, scale = min(w, h), w * h / left
        row = [values[at]]
        while at + len(row) < len(values):
            longer = [*row, values[at + len(row)]]
            if _worst(longer, side, scale) > _worst(row, side, scale):
                break
            row = longer
        thick = sum(row) * scale / side if side else 0.0
        along = 0.0
        for value in row:
            length = value * scale / thick if thick else 0.0
            yield (x, y + along, thick, length) if w >= h else (x + along, y, length, thick)
            along += length
        if w >= h:
            x, w = x + thick, max(w - thick, 1e-9)
        else:
            y, h = y + thick, max(h - thick, 1e-9)
        left = max(left - sum(row), 1e-300)
        at += len(row)


def _worst(row: Sequence[float], side: float, scale: float) -> float:
    """How far the worst box of a row is from a square."""
    area = sum(row) * scale
    largest, smallest = max(row) * scale, min(row) * scale
    if not smallest or not area:
        return math.inf
    return max(side * side * largest / area**2, area**2 / (side * side * smallest))


# -- errors and values ----------------------------------------------------------------------------


def _errors(data: Mapping[str, Any]) -> Plot:
    """Each value's greatest error as a part of what is allowed, in program order."""
    rows = [row for row in data["errors"] if _finite(row.get("part"))]
    parts = [max(float(row["part"]), 1e-9) for row in rows]
    title = f"{data.get('model_name') or 'program'}: errors as parts of what is allowed"
    frame = Axes.of(
        title,
        (0, max(1, len(rows))),
        (min([*parts, 0.01]) / 2, max([*parts, 1.0]) * 2),
        names=("value, in program order", "part of what is allowed"),
        logs=(False, True),
    )
    for at, (row, part) in enumerate(zip(rows, parts, strict=True)):
        about = f"%{row['value']} {row['operator']}\n{part:.3g} of what is allowed against "
        about += str(row["reader"])
        frame.rect(at, frame.y.low, at + 0.9, part, about, "#d62728" if part > 1 else PALETTE[0])
    frame.line([(0, 1.0), (max(1, len(rows)), 1.0)], "#d62728", "what is allowed")
    return Plot("errors", title, {"errors": rows}, frame.svg())


def _histogram(data: Mapping[str, Any]) -> Plot:
    """How often values of each size occur, a line for each tensor."""
    series: dict[str, list[float]] = {}
    for name, values in cast(Mapping[str, Iterable[Any]], data["values"]).items():
        series[str(name)] = [float(value) for value in values if _finite(value)]
    known = [value for values in series.values() for value in values]
    if not known:
        raise InvalidIRError("there is no finite value to count")
    low, high = min(known), max(known)
    high = high if high > low else low + 1.0
    bins = max(8, min(64, round(math.sqrt(len(known)))))
    width = (high - low) / bins
    counts = {name: _counts(values, low, width, bins) for name, values in series.items()}
    title = next(iter(series)) if len(series) == 1 else f"values of {len(series)} tensors"
    most = max(max(row) for row in counts.values())
    frame = Axes.of(title, (low, high), (0, most), names=("value", "how many"))
    for number, (name, row) in enumerate(counts.items()):
        color = PALETTE[number % len(PALETTE)]
        if len(counts) == 1:
            for at, count in enumerate(row):
                start = low + at * width
                about = f"{start:.4g} to {start + width:.4g}: {count}"
                frame.rect(start, 0, start + width * 0.95, count, about, color)
        else:
            middles = [(low + (at + 0.5) * width, float(count)) for at, count in enumerate(row)]
            frame.line(middles, color, name)
            frame.marks.append(
                label(name, WIDTH - 20, TOP + 14 * (number + 1), text_anchor="end", fill=color)
            )
    return Plot("histogram", title, {"low": low, "width": width, "counts": counts}, frame.svg())


def _counts(values: Sequence[float], low: float, width: float, bins: int) -> list[int]:
    counts = [0] * bins
    for value in values:
        counts[min(bins - 1, int((value - low) / width))] += 1
    return counts


def _finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


_KINDS: dict[str, tuple[tuple[str, ...], Callable[[Mapping[str, Any]], Plot]]] = {
    "memory": (("allocations", "nodes", "size"), _memory),
    "roofline": (("nodes.flops", "nodes.seconds"), _roofline),
    "treemap": (("nodes.module",), _treemap),
    "flame": (("nodes.module",), _flame),
    "errors": (("errors",), _errors),
    "histogram": (("values",), _histogram),
}
"""What each plot needs of a report, and what draws it; the first that fits is drawn."""
