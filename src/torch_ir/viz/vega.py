"""Plots as Vega-Lite, for tools that draw and change it: notebooks, dashboards, editors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from torch_ir.errors import printable
from torch_ir.viz.axes import HEIGHT, WIDTH

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
"""The name of the form; nothing is fetched to draw a plot."""
LOG, CUT = {"type": "log"}, {"zero": False}
"""The scale of an axis of powers, and of one that need not begin at zero."""

Layer: TypeAlias = dict[str, Any]
Rows: TypeAlias = Sequence[Mapping[str, Any]]


def vega_lite(kind: str, title: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a plot as one Vega-Lite specification, with its data inside.

    Args:
        kind: The kind of the plot.
        title: What a reader sees above it.
        data: The data of the plot.
    """
    layers = _FORMS[kind](data)
    shown = layers[0] if len(layers) == 1 else {"layer": layers}
    size = {} if "facet" in shown.get("encoding", {}) else {"width": WIDTH, "height": HEIGHT}
    return {"$schema": SCHEMA, "title": printable(title), **size, **shown}


def _of(field: str, title: str = "", kind: str = "quantitative", **more: Any) -> dict[str, Any]:
    return {"field": field, "type": kind, "title": title or field, **more}


def _layer(mark: str, rows: Rows, **encoding: Any) -> Layer:
    """A mark for each row, which tells the row to who points at it; names are made printable."""
    values = [
        {key: printable(held) if isinstance(held, str) else held for key, held in row.items()}
        for row in rows
    ]
    shown = {"type": mark, "tooltip": {"content": "data"}}
    return {"data": {"values": values}, "mark": shown, "encoding": encoding}


def _rule(**at: float) -> Layer:
    encoding = {channel: {"field": channel, "type": "quantitative"} for channel in at}
    mark = {"type": "rule", "color": "#d62728"}
    return {"data": {"values": [at]}, "mark": mark, "encoding": encoding}


def _memory(data: Mapping[str, Any]) -> list[Layer]:
    pieces = [
        {**piece, "end": piece["death"] + 1, "top": piece["offset"] + piece["size"]}
        for piece in data["allocations"]
    ]
    live = [{"at": at, **row} for at, row in enumerate(data["nodes"])]
    x, y = _of("birth", "node, in program order"), _of("offset", "bytes of the arena")
    color = _of("name", kind="nominal", legend=None)
    area = _layer("rect", pieces, x=x, x2={"field": "end"}, y=y, y2={"field": "top"}, color=color)
    peak = max(live, key=lambda row: row["live"], default={"at": 0})["at"]
    line = _layer("line", live, x={**x, "field": "at"}, y={**y, "field": "live"})
    return [area, line, _rule(x=peak)]


def _roofline(data: Mapping[str, Any]) -> list[Layer]:
    rows = [
        {**row, "intensity": row["flops"] / row["bytes"], "rate": row["flops"] / row["seconds"]}
        for row in data["nodes"]
    ]
    x = _of("intensity", "operations per byte", scale=LOG)
    y = _of("rate", "operations per second", scale=LOG)
    color, size = _of("operator", kind="nominal"), _of("seconds")
    dots = _layer("point", rows, x=x, y=y, color=color, size=size)
    roof, slope = data.get("peak_flops"), data.get("bandwidth")
    if not (roof and slope):
        return [dots]
    across = [row["intensity"] for row in rows]
    ends = sorted({min(across) / 2, max(across) * 2, roof / slope})
    edge = [{"intensity": at, "rate": min(at * slope, roof)} for at in ends]
    return [dots, _layer("line", edge, x=x, y=y)]


def _treemap(data: Mapping[str, Any]) -> list[Layer]:
    """Bars: Vega-Lite has no boxes inside of boxes."""
    name = _of("module", kind="nominal", sort="-x")
    return [_layer("bar", data["modules"], x=_of("value", data["unit"]), y=name)]


def _flame(data: Mapping[str, Any]) -> list[Layer]:
    rows = [{**span, "above": span["depth"] + 1} for span in data["spans"]]
    x, color = _of("start", data["unit"]), _of("path", kind="nominal", legend=None)
    ends = {"x2": {"field": "end"}, "y2": {"field": "above"}}
    return [_layer("rect", rows, x=x, y=_of("depth"), color=color, **ends)]


def _errors(data: Mapping[str, Any]) -> list[Layer]:
    rows = [
        {**row, "at": at, "drawn": max(float(row["part"]), 1e-9)}
        for at, row in enumerate(data["errors"])
    ]
    y = _of("drawn", "part of what is allowed", scale=LOG)
    return [_layer("point", rows, x=_of("at", "value, in program order"), y=y), _rule(y=1.0)]


def _quantization(data: Mapping[str, Any]) -> list[Layer]:
    name = _of("node", "", "nominal", sort=None)
    x = _of("output_sqnr", "signal to noise in decibels", scale=CUT)
    color = _of("is_measured", "measured", "nominal")
    dots = _layer("point", data["rows"], x=x, y=name, color=color)
    whole = data.get("output_sqnr")
    return [dots] if whole is None else [dots, _rule(x=whole)]


def _histogram(data: Mapping[str, Any]) -> list[Layer]:
    rows = [
        {"tensor": name, "low": low, "high": low + found["width"], "count": count}
        for name, found in data["values"].items()
        for at, count in enumerate(found["counts"])
        for low in [found["low"] + at * found["width"]]
    ]
    x, y = _of("low", "value", scale=CUT), _of("count", "how many")
    bars = _layer("bar", rows, x=x, x2={"field": "high"}, y=y)
    if len(data["values"]) > 1:
        bars["encoding"]["facet"] = {**_of("tensor", kind="nominal", sort=None), "columns": 4}
        bars["resolve"] = {"scale": {"x": "independent", "y": "independent"}}
    return [bars]


_FORMS: dict[str, Callable[[Mapping[str, Any]], list[Layer]]] = {
    "memory": _memory,
    "roofline": _roofline,
    "treemap": _treemap,
    "flame": _flame,
    "errors": _errors,
    "quantization": _quantization,
    "histogram": _histogram,
}
