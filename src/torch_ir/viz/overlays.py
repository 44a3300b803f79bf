"""Values of nodes that color a picture: read from reports, or from the diff of two programs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast

from torch_ir.errors import InvalidIRError, did_you_mean, first_line, printable, raised_as
from torch_ir.ir import IR
from torch_ir.ir.diff import node_pairs
from torch_ir.ir.queries import graphs
from torch_ir.viz.document import level_order

Combine: TypeAlias = Literal["sum", "max", "kind"]

_UNITS = (("seconds", "s"), ("bytes", "B"), ("live", "B"), ("size", "B"), ("flops", "FLOP"))
_TITLES = {
    "seconds": "time",
    "live": "live memory",
    "size": "allocated",
    "part": "error of allowed",
}
_MOST = frozenset({"live", "part", "ulp", "absolute", "relative", "intensity", "share"})
"""Fields whose largest value says what a group is like; others add up."""
_FORMS = (
    "a profile, a plan, a validation, a comparison, a support report, a cost, an attribution, or "
    "{'overlay': name, 'nodes': {node: value}}"
)


@dataclass(frozen=True, slots=True)
class Overlay:
    """A value for some nodes of a program.

    Attributes:
        name: What the values are.
        values: A number or a kind for each node, by its path: ``conv`` or ``body/add``.
        unit: ``s``, ``B``, ``FLOP`` or another text; empty for plain numbers.
        combine: What a group of nodes has: the sum, the largest, or how many of each kind.
        colors: Colors of kinds, ``#rrggbb``, or ``none``; others are chosen.
        rest: What the other nodes of the program have, those in functions left out; None if that
            is not known.
    """

    name: str
    values: Mapping[str, float | str] = field(repr=False)
    unit: str = ""
    combine: Combine = "sum"
    colors: Mapping[str, str] = field(default_factory=dict[str, str])
    rest: float | str | None = None


def overlays_of(report: object) -> tuple[Overlay, ...]:
    """Read what a report says of single nodes.

    Args:
        report: A report with ``to_dict``, or its JSON: of ``profile``, ``plan``, ``validate``,
            ``compare``, ``support``, ``cost`` or ``attribute``; or
            ``{"overlay": name, "nodes": {node: value}}`` with ``unit`` and ``combine``.

    Raises:
        InvalidIRError: It says nothing of nodes.

    Example:
        >>> (time,) = overlays_of({"nodes": [{"node": "add", "seconds": 0.5}]})
        >>> time.name, time.unit, dict(time.values)
        ('time', 's', {'add': 0.5})
    """
    convert = getattr(report, "to_dict", None)
    data: Any = report if convert is None else convert()
    found: list[Overlay] = []
    if isinstance(data, dict):
        entries = cast(dict[str, Any], data)
        with raised_as(malformed, passing=(InvalidIRError,)):
            found += _given(entries)
            for name in ("nodes", "errors", "allocations"):
                found += _columns(entries.get(name))
            found += _support(entries)
            found += _verdicts(entries)
            found += _noise(entries)
    if not found:
        raise InvalidIRError(f"this says nothing of nodes; an overlay is {_FORMS}")
    return tuple(found)


def malformed(error: Exception) -> InvalidIRError:
    """Return the error for a report that has other fields than a command writes."""
    return InvalidIRError(
        f"the report is not as a command writes it: {type(error).__name__}: {first_line(error)}"
    )


def _given(data: Mapping[str, Any]) -> Iterator[Overlay]:
    """Values in our own form."""
    nodes = data.get("nodes")
    if "overlay" not in data or not isinstance(nodes, dict):
        return
    values = {
        name: value if isinstance(value, str) else float(value)
        for name, value in cast(dict[str, Any], nodes).items()
        if isinstance(value, str) or _is_number(value)
    }
    combine = data.get("combine", "sum")
    if combine not in ("sum", "max", "kind"):
        raise InvalidIRError(f"combine is 'sum', 'max' or 'kind', got {combine!r:.40}")
    kinds = combine == "kind" or any(isinstance(value, str) for value in values.values())
    mixed = {name: str(value) for name, value in values.items()} if kinds else values
    yield Overlay(
        str(data["overlay"]), mixed, str(data.get("unit", "")), "kind" if kinds else combine
    )


def _columns(rows: object) -> Iterator[Overlay]:
    """Every number in a list of records of nodes."""
    if not isinstance(rows, list | tuple):
        return
    columns: dict[str, dict[str, float]] = {}
    for row in cast(Sequence[object], rows):
        record = cast(dict[str, Any], row) if isinstance(row, dict) else {}
        if not isinstance(record.get("node"), str):
            continue
        for name, value in record.items():
            if _is_number(value) and name not in ("offset", "birth", "death", "unknown"):
                column, known = columns.setdefault(name, {}), record["node"]
                before = column.get(known, 0.0)
                column[known] = max(before, value) if name in _MOST else before + value
    for name, values in columns.items():
        unit = next((unit for part, unit in _UNITS if part in name), "")
        yield Overlay(
            _TITLES.get(name, name.replace("_", " ")),
            values,
            unit,
            "max" if name in _MOST else "sum",
            rest=0 if name == "size" else None,  # of a plan, which lists all that it allocates
        )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _support(data: Mapping[str, Any]) -> Iterator[Overlay]:
    """What a backend runs, and why not the rest."""
    rows = data.get("operators")
    if "backend" not in data or not isinstance(rows, list):
        return
    values: dict[str, str] = {}
    for row in cast(list[dict[str, Any]], rows):
        kind = "supported" if row.get("supported") else str(row.get("reason") or "not supported")
        values |= dict.fromkeys(map(str, row.get("nodes", ())), kind)
    colors = {"supported": "#59a14f"}
    yield Overlay(f"support by {data['backend']}", values, combine="kind", colors=colors)


def _verdicts(data: Mapping[str, Any]) -> Iterator[Overlay]:
    """Where readers or backends disagree, and what nobody read."""
    if "divergences" not in data:
        return
    left = cast(Mapping[str, Any], data.get("not_compared") or {})
    is_comparison = isinstance(data.get("compared"), list | tuple)
    values: dict[str, str] = {}
    for kind in ("compared", "covered") if is_comparison else ():
        values |= dict.fromkeys(map(str, data.get(kind, ())), _KINDS[kind])
    values |= dict.fromkeys(left, "not compared")
    for row in cast(Sequence[Mapping[str, Any]], data["divergences"]):
        values[str(row.get("node"))] = "diverges"
    if is_comparison:
        name = f"{data.get('run')} against {data.get('against')}"
        yield Overlay(name, values, combine="kind", colors=_VERDICTS)
    else:
        yield Overlay("validation", values, combine="kind", colors=_VERDICTS, rest="agrees")


_KINDS = {"compared": "agrees", "covered": "covered"}
_VERDICTS = {
    "agrees": "#59a14f",
    "covered": "#a0c997",
    "diverges": "#d62728",
    "not compared": "#8a8f98",
}


def _noise(data: Mapping[str, Any]) -> Iterator[Overlay]:
    """What each quantized value adds to the noise of the outputs, in parts of their signal."""
    rows = data.get("rows")
    if "output_sqnr" not in data or not isinstance(rows, list | tuple):
        return
    ratios = {
        str(row["quantize"]): row["output_sqnr"] for row in cast(Sequence[Mapping[str, Any]], rows)
    }
    values = {name: 10 ** (-ratio / 10) for name, ratio in ratios.items() if _is_number(ratio)}
    yield Overlay("noise of the outputs", values)


def numbered(overlay: Overlay, ir: IR, program: int) -> dict[str, Any]:
    """Return an overlay as the viewer reads it: nodes by the numbers of graph and position.

    Raises:
        InvalidIRError: It names nodes, but none of this program.
    """
    rows: list[list[Any]] = []
    names: list[str] = []
    found, is_of_it = values_by_path(overlay, ir), bool(_matched(overlay, ir))
    for number, (path, graph) in enumerate(level_order(ir)):
        known = [
            (at, found[path + node.name])
            for at, node in enumerate(graph.nodes)
            if path + node.name in found
        ]
        names += [path + node.name for node in graph.nodes]
        if known:
            kinds = [printable(v)[:200] if isinstance(v, str) else v for _, v in known]
            rows.append([number, [at for at, _ in known], kinds])
    if overlay.values and not is_of_it:
        first = next(iter(overlay.values))
        raise InvalidIRError(
            f"the overlay {overlay.name!r} is of another program: there is no node {first!r}",
            remedy=did_you_mean(first, names) or None,
        )
    return {
        "name": printable(overlay.name),
        "unit": printable(overlay.unit),
        "combine": overlay.combine,
        "colors": dict(overlay.colors),
        "program": program,
        "values": rows,
    }


def values_by_path(overlay: Overlay, ir: IR) -> Mapping[str, float | str]:
    """Return the values by the paths of the program's nodes, with those of the rest.

    What a report says of a node at one call, ``layers_1.relu``, counts for the call and for the
    node of the function.
    """
    matched = _matched(overlay, ir)
    if overlay.rest is None:
        return matched
    return {**{node.name: overlay.rest for node in ir.nodes}, **matched}


def _matched(overlay: Overlay, ir: IR) -> Mapping[str, float | str]:
    known = {path + node.name for path, graph in graphs(ir) for node in graph.nodes}
    if known.issuperset(overlay.values):
        return overlay.values
    found: dict[str, float | str] = {}
    for name, value in overlay.values.items():
        for path in [name] if name in known else dict.fromkeys(_paths(ir, name)):
            before = found.setdefault(path, value)
            if before is not value and not isinstance(before, str) and not isinstance(value, str):
                found[path] = max(before, value) if overlay.combine == "max" else before + value
    return found


def _paths(ir: IR, name: str, path: str = "") -> Iterator[str]:
    """The call and the node of its function that a name like ``layers_1.relu`` means."""
    if name in ir.by_name:
        yield path + name
        return
    parts = name.split(".")
    for end in range(1, len(parts)):
        call = ir.by_name.get(".".join(parts[:end]))
        for function in () if call is None else call.functions:
            inner = [*_paths(ir.functions[function], ".".join(parts[end:]), f"{path}{function}/")]
            if inner and call is not None:
                yield path + call.name
                yield from inner


_MARKS = {"same": "none", "changed": "#f0a202", "only here": "#2f9e6e"}


def marks(a: IR, b: IR) -> tuple[Overlay, Overlay]:
    """Mark what two programs have in common and what not, for each of them."""
    before, after = dict(graphs(a)), dict(graphs(b))
    here: list[dict[str, float | str]] = [{}, {}]
    for path in before.keys() | after.keys():
        pairs = node_pairs(before[path], after[path]) if path in before and path in after else {}
        there = dict(pairs.values())
        sides = ((before, {old: same for old, (_, same) in pairs.items()}), (after, there))
        for values, (programs, matched) in zip(here, sides, strict=True):
            for at, node in enumerate(programs[path].nodes if path in programs else ()):
                same = matched.get(at)
                kind = "only here" if same is None else "same" if same else "changed"
                values[path + node.name] = kind
    return Overlay("difference", here[0], "", "kind", _MARKS), Overlay(
        "difference", here[1], "", "kind", _MARKS
    )
