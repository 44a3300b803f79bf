"""Plots of reports: one SVG with its data, as a page, in a notebook, or as JSON."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeAlias, cast

from torch_ir.arguments import public
from torch_ir.errors import InvalidIRError, counted, did_you_mean, printable, raised_as
from torch_ir.ir.analysis.groups import nested_spans
from torch_ir.tables import bytes_text, module_paths, number_text, shortened, time_text
from torch_ir.viz.axes import HEIGHT, PALETTE, TOP, WIDTH, Axes, label, picture, tag
from torch_ir.viz.fold import short_operator
from torch_ir.viz.overlays import malformed
from torch_ir.viz.page import Page
from torch_ir.viz.vega import vega_lite

MOST_MARKS = 1500
"""The largest are drawn; the data beside the picture has all."""
MOST_ROWS, NAMES_WIDTH = 20, 200
"""Rows of a plot that names them, and the place for the names."""
MOST_SMALL, ACROSS, SMALL = 48, 4, 104
"""Small histograms in one picture, how many stand side by side, and how high each is."""
RED, LEGEND = "#d62728", 4
"""What is too much, and how many operators have colors of their own."""

Rows: TypeAlias = Sequence[Mapping[str, Any]]
Area: TypeAlias = tuple[float, float, float, float]
"""Left, upper end, width and height."""


@dataclass(frozen=True, slots=True)
class Plot:
    """A picture and the data that it shows.

    Attributes:
        kind: What kind it is, such as ``memory``.
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

    def vega_lite(self) -> dict[str, Any]:
        """Return the plot as a Vega-Lite specification with its data; a treemap becomes bars."""
        return vega_lite(self.kind, self.title, self.data)

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


@public
def plot(report: object, kind: str | None = None) -> Plot:
    """Plot a report.

    Args:
        report: A report with ``to_dict``, or its JSON: a memory plan (``memory``: the arena over
            time), a profile or cost (``roofline``: operations per second over operations per byte;
            ``treemap`` and ``flame``: what each module takes, by size or in program order), a
            validation (``errors``: each value's part of what is allowed), an attribution
            (``quantization``: what each quantized value costs), captured values or
            ``{"values": {name: [number, ...]}}`` (``histogram``).
        kind: Which plot, where a report has several.

    Raises:
        InvalidIRError: There is no such plot, or the report lacks what it needs.

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
    raise InvalidIRError(f"this does not have what a plot needs: {needed}")


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
        frame.line(list(_thinned(live)), "currentColor", "live bytes")
        peak, most = max(live, key=lambda point: point[1])
        frame.line([(peak, 0), (peak, size)], RED, "the peak")
        name = shortened(data["nodes"][int(peak)]["node"], 30)
        frame.legend((RED, f"peak {bytes_text(int(most))} at %{name}"))
    return Plot("memory", title, data, frame.svg())


def _thinned(points: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """The points of a line; of more than can be seen, the least and the most of each run."""
    size = math.ceil(len(points) / MOST_MARKS)
    for start in range(0, len(points), size):
        run = points[start : start + size]
        ends = {min(run, key=lambda point: point[1]), max(run, key=lambda point: point[1])}
        yield from run if size <= 2 else sorted(ends)


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
    kind = "under the roof" if roof and slope else "by operations and bytes"
    title = f"{data.get('model_name') or 'program'}: {counted(len(points), 'node')} {kind}"
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
    longest, taken = max(row["seconds"] for row in rows), dict[str, float]()
    for row in rows:
        taken[row["operator"]] = taken.get(row["operator"], 0.0) + row["seconds"]
    operators = sorted(taken, key=lambda name: -taken[name])
    colors = dict(zip(operators, PALETTE[:LEGEND], strict=False))
    for x, y, row in sorted(points, key=lambda p: -p[2]["seconds"])[:MOST_MARKS]:
        about = f"%{row['node']} {row['operator']}\n{time_text(row['seconds'])}, "
        about += f"{number_text(int(y))}FLOP/s"
        color = colors.get(row["operator"], PALETTE[-1])
        frame.dot(x, y, 3 + 11 * math.sqrt(row["seconds"] / longest), about, color)
    others = [(PALETTE[-1], "others")] if len(operators) > LEGEND else []
    shown = [(color, shortened(short_operator(name), 20)) for name, color in colors.items()]
    frame.legend(*shown, *others)
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
    """What each module takes, its parts inside it: seconds where they are known, or else bytes."""
    rows, spell, unit = _measured(data)
    totals: dict[str, float] = {}
    for row, value in rows:
        operator = short_operator(str(row.get("operator") or ""))
        path = str(row.get("module") or f"(no module).{operator}".rstrip("."))
        totals[path] = totals.get(path, 0.0) + value
    ranked = sorted(((value, path) for path, value in totals.items() if value > 0), reverse=True)
    title = f"{data.get('model_name') or 'program'}: {spell(sum(totals.values()))} by module"
    modules = _Modules(totals)
    boxes: list[str] = [label(title, 8, 22, font_size=14, font_weight=600)]
    left: list[tuple[str, float, Area]] = []
    whole: Area = (8.0, float(TOP - 6), WIDTH - 16.0, float(HEIGHT - TOP))
    left += _divided(modules.parts(""), whole)
    while left and len(boxes) < 2 * MOST_MARKS:
        path, value, (x, y, w, h) = left.pop(0)
        start = path.rfind(".") + 1
        inner = modules.parts(path)
        while len(inner) == 1:
            path = inner[0][0]
            inner = modules.parts(path)
        name = path[start:]
        name = _in_room(name, w)
        is_named = bool(name) and h > 15
        size: dict[str, Any] = {"width": max(w - 1, 0.3), "height": max(h - 1, 0.3)}
        fill, opacity = modules.color(path), 0.25 if inner else 0.75
        about = f"{path}: {spell(value)}"
        boxes.append(tag("rect", title=about, fill=fill, fill_opacity=opacity, x=x, y=y, **size))
        if is_named:
            boxes.append(label(name, x + 4, y + 12, pointer_events="none"))
        head = 18.0 if is_named else 2.0
        if w > 8 and h > head + 8:
            left += _divided(inner, (x + 2, y + head, w - 5, h - head - 3))
    kept = [{"module": path, "value": value} for value, path in ranked]
    return Plot("treemap", title, {"unit": unit, "modules": kept}, picture(boxes, title))


def _in_room(name: str, width: float) -> str:
    """Return what of a name fits a box; empty where that would say nothing."""
    most = int((width - 8) / 6.2)
    return shortened(name, most) if most >= min(len(name), 5) else ""


def _divided(parts: Sequence[tuple[str, float]], area: Area) -> Iterator[tuple[str, float, Area]]:
    """The parts of a module, each with its place."""
    for (path, value), place in zip(parts, _squares([v for _, v in parts], area), strict=True):
        yield path, value, place


def _measured(
    data: Mapping[str, Any],
) -> tuple[list[tuple[Mapping[str, Any], float]], Callable[[float], str], str]:
    """What each row takes, how to spell that, and its unit: seconds if known, or else bytes."""
    rows = cast(Rows, data["nodes"])
    if any(row.get("seconds") for row in rows):
        return [(row, float(row.get("seconds") or 0)) for row in rows], _duration, "seconds"
    return [(row, float(_bytes(row))) for row in rows], lambda v: bytes_text(int(v)), "bytes"


def _duration(seconds: float) -> str:
    """A time with three digits, in the unit that fits it."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} \N{MICRO SIGN}s"


class _Modules:
    """What each module takes with all that is inside it, and the colors of modules."""

    def __init__(self, totals: Mapping[str, float]):
        self.own, self.sums = totals, dict[str, float]()
        self.inside: dict[str, list[str]] = {}
        for path, value in totals.items():
            around = module_paths(path)
            for outer, inner in pairwise(around):
                if inner not in self.sums:
                    self.inside.setdefault(outer, []).append(inner)
                self.sums[inner] = self.sums.get(inner, 0.0) + value
        at, most = "", sum(totals.values()) * 0.6
        while large := [name for name in self.inside.get(at, ()) if self.sums[name] > most]:
            at = large[0]
        self._most, self._depth = at, at.count(".") + 2 if at else 1
        self._colors: dict[str, str] = {}

    def parts(self, path: str) -> list[tuple[str, float]]:
        """Return what is in a module, the largest first, and what it takes itself beside that."""
        found = [(name, self.sums[name]) for name in self.inside.get(path, ())]
        found += [(f"{path}.(itself)".lstrip("."), self.own.get(path, 0.0))] if found else []
        return sorted([part for part in found if part[1] > 0], key=lambda part: -part[1])

    def color(self, path: str) -> str:
        """Return the color of a module: those inside the last that is most of all differ."""
        key = ".".join(path.split(".")[: self._depth])
        if f"{self._most}.".startswith(f"{key}."):
            return PALETTE[-1]
        return self._colors.setdefault(key, PALETTE[len(self._colors) % (len(PALETTE) - 1)])


def _flame(data: Mapping[str, Any]) -> Plot:
    """What each module takes, in program order, its parts above it: seconds, or else bytes."""
    rows, spell, unit = _measured(data)
    inside: list[tuple[Sequence[str], float]] = []
    totals: dict[str, float] = {}
    for row, value in rows:
        module = str(row.get("module") or "")
        totals[module] = totals.get(module, 0.0) + value
        inside.append(([*module_paths(module)[1:], f"{module} {row['operator']}"], value))
    spans = list(nested_spans(inside))
    at = max([end for *_, end in spans], default=0.0)
    title = f"{data.get('model_name') or 'program'}: {spell(at)} in program order"
    levels, modules = 1 + max((depth for depth, *_ in spans), default=0), _Modules(totals)
    high = min(24.0, (HEIGHT - TOP) / levels)
    height = int(TOP + levels * high + 8)
    boxes: list[str] = [label(title, 8, 22, font_size=14, font_weight=600)]
    widest = sorted(spans, key=lambda span: span[2] - span[3])[:MOST_MARKS]
    scale = (WIDTH - 16.0) / (at or 1.0)
    for depth, path, start, end in widest:
        x, y, w = 8 + start * scale, height - 8 - (depth + 1) * high, (end - start) * scale
        place: dict[str, Any] = {"x": x, "y": y, "width": max(w - 0.5, 0.2), "height": high - 1}
        about = f"{path.strip()}: {spell(end - start)}"
        fill = modules.color(path.split(" ")[0])
        boxes.append(tag("rect", title=about, fill=fill, fill_opacity=0.75, **place))
        name = path.rpartition(" ")[2] if " " in path else path.rpartition(".")[2]
        name = _in_room(short_operator(name), w)
        if name and high > 12:
            boxes.append(label(name, x + 4, y + high - 8, pointer_events="none"))
    held = [{"depth": d, "path": path, "start": a, "end": b} for d, path, a, b in widest]
    facts = {"unit": unit, "spans": held, "left": len(spans) - len(held)}
    return Plot("flame", title, facts, picture(boxes, title, height))


def _squares(values: Sequence[float], area: Area) -> Iterator[Area]:
    """Divide an area among values, largest first, into boxes that are nearly squares."""
    x, y, w, h = area
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
    """The greatest errors as parts of what is allowed, in program order; of many, the worst."""
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
    size = max(1, math.ceil(len(rows) / MOST_MARKS))
    for start in range(0, len(rows), size):
        worst = max(range(start, min(start + size, len(rows))), key=parts.__getitem__)
        row, part = rows[worst], parts[worst]
        about = f"%{row['value']} {row['operator']}\n{part:.3g} of what is allowed against "
        about += str(row["reader"])
        frame.rect(
            start, frame.y.low, start + 0.9 * size, part, about, RED if part > 1 else PALETTE[0]
        )
    frame.line([(0, 1.0), (max(1, len(rows)), 1.0)], RED, "what is allowed")
    return Plot("errors", title, {"errors": rows}, frame.svg())


def _quantization(data: Mapping[str, Any]) -> Plot:
    """Signal to noise of each quantized value, and of the outputs where only that one is."""
    rows = [row for row in data["rows"] if _finite(row.get("output_sqnr"))]
    if not rows:
        raise InvalidIRError("no pair of quantize and dequantize costs the outputs anything")
    given = data.get("output_sqnr")
    shown, whole = rows[:MOST_ROWS], float(cast(float, given)) if _finite(given) else None
    known = [row[key] for row in shown for key in ("sqnr", "output_sqnr") if _finite(row.get(key))]
    known += [] if whole is None else [whole]
    low, high = min(known), max(known)
    space = max(3.0, (high - low) * 0.06)
    name = data.get("model_name") or "program"
    worst = f", the worst {len(shown)}" if len(shown) < len(rows) else ""
    title = f"{name}: what {counted(len(rows), 'quantized value')} cost{worst}"
    frame = Axes.of(
        title,
        (low - space, high + space),
        (0, len(shown)),
        names=("signal to noise in decibels: more to the left costs more", ""),
        left=NAMES_WIDTH,
        marked=(True, False),
    )
    if whole is not None:
        frame.line([(whole, 0), (whole, len(shown))], RED, "outputs, everything quantized")
        frame.note(f"all: {whole:.1f} dB", whole, len(shown), dx=4, dy=10, fill=RED)
    for at, row in enumerate(shown):
        middle, cost = len(shown) - at - 0.5, row["output_sqnr"]
        told = "measured" if row.get("is_measured") else "estimated"
        about = f"{row['quantize']} of {row['node']}: {row['location']}\n"
        about += f"outputs at {cost:.1f} dB where only this is quantized, {told}"
        color = PALETTE[0] if row.get("is_measured") else PALETTE[4]
        if _finite(row.get("sqnr")):
            about += f"; itself at {row['sqnr']:.1f} dB"
            frame.line([(cost, middle), (row["sqnr"], middle)], PALETTE[-1], about)
            frame.dot(row["sqnr"], middle, 3, about, PALETTE[-1])
        frame.dot(cost, middle, 5, about, color)
        frame.name_row(str(row["node"]), middle)
    estimated = not all(row.get("is_measured") for row in shown)
    frame.legend(
        (PALETTE[-1], "the value itself"),
        (PALETTE[0], "the outputs, if only it is quantized"),
        *([(PALETTE[4], "the same, estimated")] if estimated else []),
    )
    return Plot("quantization", title, {"rows": rows, "output_sqnr": whole}, frame.svg())


def _histogram(data: Mapping[str, Any]) -> Plot:
    """How often values of each size occur: one large picture, or a small one for each tensor."""
    found = {
        str(name): row if isinstance(row, Mapping) else counted_values(row)
        for name, row in cast(Mapping[str, Any], data["values"]).items()
    }
    known = {name: row for name, row in found.items() if sum(row["counts"])}
    if not known:
        raise InvalidIRError("there is no finite value to count")
    shown = list(known.items())[:MOST_SMALL]
    title = next(iter(known)) if len(known) == 1 else f"values of {len(known)} tensors"
    title += f", the first {len(shown)}" if len(shown) < len(known) else ""
    if len(shown) == 1:
        ((_, row),) = shown
        low, width = row["low"], row["width"]
        across = (low, low + width * len(row["counts"]))
        frame = Axes.of(title, across, (0, max(row["counts"])), names=("value", "how many"))
        for at, count in enumerate(row["counts"]):
            start = low + at * width
            about = f"{start:.4g} to {start + width:.4g}: {count}"
            frame.rect(start, 0, start + width * 0.95, count, about, PALETTE[0])
        return Plot("histogram", title, {"values": found}, frame.svg())
    height = TOP + SMALL * -(-len(shown) // ACROSS)
    parts = [label(title, 8, 22, font_size=14, font_weight=600)]
    for number, (name, row) in enumerate(shown):
        down, along = divmod(number, ACROSS)
        parts += _small(name, row, 8 + along * (WIDTH - 8) / ACROSS, TOP + down * SMALL)
    return Plot("histogram", title, {"values": found}, picture(parts, title, height))


def _small(name: str, row: Mapping[str, Any], x: float, y: float) -> Iterator[str]:
    """A histogram among others, as high as its largest column, its least and greatest named."""
    counts, low, high = row["counts"], row["low"], row["low"] + row["width"] * len(row["counts"])
    wide, tall, base = (WIDTH - 8) / ACROSS - 14, SMALL - 44.0, y + SMALL - 26.0
    lost = f", {row['not_finite']} not finite" if row.get("not_finite") else ""
    about = f"{name}: {sum(counts):,} from {low:.4g} to {high:.4g}{lost}"
    step, most = wide / len(counts), max(counts)
    points = [f"{x:.6g},{base:.6g}"]
    for at, count in enumerate(counts):
        top = base - tall * count / most
        points += [f"{x + at * step:.6g},{top:.6g}", f"{x + (at + 1) * step:.6g},{top:.6g}"]
    points.append(f"{x + wide:.6g},{base:.6g}")
    yield label(shortened(name, int(wide / 6)), x, y + 10, font_weight=600)
    yield tag("polygon", title=about, points=" ".join(points), fill=PALETTE[0], fill_opacity=0.7)
    faint: dict[str, Any] = {"font_size": 10, "fill_opacity": 0.7}
    yield label(f"{low:.3g}", x, base + 12, **faint)
    yield label(f"{high:.3g}{lost}", x + wide, base + 12, text_anchor="end", **faint)


def counted_values(values: Iterable[Any]) -> dict[str, Any]:
    """Count numbers in at most 64 columns of equal width; of complex ones, their moduli.

    Example:
        >>> counted_values([0.0, 4.0, 4.0])["counts"]
        [1, 0, 0, 0, 0, 0, 0, 2]
    """
    import numpy as np

    if not isinstance(values, np.ndarray):
        values = np.array([value if _finite(value) else math.nan for value in values])
    flat = np.abs(values).ravel() if values.dtype.kind == "c" else values.astype(float).ravel()
    known = flat[np.isfinite(flat)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)
    bins = max(8, min(64, round(math.sqrt(known.size))))
    width = ((high - low) or 1.0) / bins
    counts, _ = np.histogram(known, bins, (low, low + bins * width))
    not_finite = flat.size - known.size
    return {"low": low, "width": width, "counts": counts.tolist(), "not_finite": not_finite}


def _finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


_KINDS: dict[str, tuple[tuple[str, ...], Callable[[Mapping[str, Any]], Plot]]] = {
    "memory": (("allocations", "nodes", "size"), _memory),
    "roofline": (("nodes.flops", "nodes.seconds"), _roofline),
    "treemap": (("nodes.module",), _treemap),
    "flame": (("nodes.module",), _flame),
    "errors": (("errors",), _errors),
    "quantization": (("rows.output_sqnr",), _quantization),
    "histogram": (("values",), _histogram),
}
"""What each plot needs of a report, and what draws it; the first that fits is drawn."""
