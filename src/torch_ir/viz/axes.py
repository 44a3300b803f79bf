"""Pictures as SVG text: a frame with two axes, and marks in it. Every text is escaped."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from torch_ir.errors import printable
from torch_ir.tables import shortened

WIDTH, HEIGHT = 860, 420
LEFT, RIGHT, TOP, BOTTOM = 84, 16, 40, 46
PALETTE = (
    *("#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#76b7b2"),
    *("#edc948", "#e15759", "#9c755f", "#ff9da7", "#8a8f98"),
)

Spell: TypeAlias = Callable[[float], str]


def tag(name: str, content: str = "", title: str = "", **attributes: object) -> str:
    """Return one element of SVG; underscores in names are hyphens, ``title`` is shown on hovering.

    Args:
        name: Its name.
        content: Elements inside it.
        title: A text about it.
        **attributes: Its attributes.

    Example:
        >>> tag("rect", x=1, fill_opacity=0.5, title="<a>")
        '<rect x="1" fill-opacity="0.5"><title>&lt;a&gt;</title></rect>'
    """
    listed = "".join(
        f' {key.replace("_", "-")}="{html.escape(_number(value))}"'
        for key, value in attributes.items()
    )
    about = f"<title>{html.escape(printable(title))}</title>" if title else ""
    return f"<{name}{listed}>{about}{content}</{name}>"


def label(text: str, x: float, y: float, **attributes: Any) -> str:
    """Return a text in a picture."""
    font: dict[str, Any] = {
        "font_family": "system-ui, sans-serif",
        "font_size": 11,
        "fill": "currentColor",
    }
    return tag("text", html.escape(printable(text)), x=x, y=y, **(font | attributes))


def _number(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True, slots=True)
class Scale:
    """Where values of an axis stand.

    Attributes:
        low: The least value.
        high: The greatest.
        start: Where the least stands.
        end: Where the greatest stands.
        is_log: Whether equal ratios have equal lengths.
        base: What round numbers are made of: 10, or 2 for bytes.
    """

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False
    base: int = 10

    def __call__(self, value: float) -> float:
        """Return the place of a value."""
        low, high, at = (self._flat(v) for v in (self.low, self.high, value))
        share = (at - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)

    def _flat(self, value: float) -> float:
        return math.log10(max(value, 1e-300)) if self.is_log else value

    def ticks(self, count: int = 6) -> list[float]:
        """Return round values for marks along the axis."""
        if self.is_log:
            first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
            step = max(1, -(-(last - first) // count))
            return [10.0**power for power in range(first, last + 1, step)]
        span = self.high - self.low or 1.0
        rough = span / count
        power = float(self.base) ** math.floor(math.log(rough, self.base))
        units = (1, 2, 5, 10) if self.base == 10 else (1, 2, 4)
        step = next((power * unit for unit in units if power * unit >= rough), power * 10)
        first = math.ceil(self.low / step)
        return [k * step for k in range(first, math.floor(self.high / step + 1e-9) + 1)]


@dataclass(slots=True)
class Axes:
    """A frame with a horizontal and a vertical axis, and marks in it."""

    title: str
    x: Scale
    y: Scale
    names: tuple[str, str]
    spell: tuple[Spell, Spell]
    marked: tuple[bool, bool] = (True, True)
    marks: list[str] = field(default_factory=list[str])

    @classmethod
    def of(
        cls,
        title: str,
        across: tuple[float, float],
        up: tuple[float, float],
        *,
        names: tuple[str, str],
        spell: tuple[Spell, Spell] = (lambda v: f"{v:g}", lambda v: f"{v:g}"),
        logs: tuple[bool, bool] = (False, False),
        bases: tuple[int, int] = (10, 10),
        left: int = LEFT,
        marked: tuple[bool, bool] = (True, True),
    ) -> Axes:
        """Make a frame for values in these ranges; an axis that is not marked has no numbers."""
        x = Scale(*across, left, WIDTH - RIGHT, logs[0], bases[0])
        y = Scale(*up, HEIGHT - BOTTOM, TOP, logs[1], bases[1])
        return cls(title, x, y, names, spell, marked)

    def rect(self, x0: float, y0: float, x1: float, y1: float, title: str, fill: str) -> None:
        """Mark the area between two corners."""
        left, right, low, high = self.x(x0), self.x(x1), self.y(y0), self.y(y1)
        box: dict[str, Any] = {
            "x": left,
            "y": high,
            "width": max(right - left, 0.4),
            "height": max(low - high, 0.4),
        }
        self.marks.append(tag("rect", title=title, fill=fill, fill_opacity=0.7, **box))

    def line(self, points: Sequence[tuple[float, float]], color: str, title: str = "") -> None:
        """Draw a line through points."""
        path = " ".join(f"{self.x(x):.6g},{self.y(y):.6g}" for x, y in points)
        style: dict[str, Any] = {"fill": "none", "stroke": color, "stroke_width": 1.5}
        self.marks.append(tag("polyline", points=path, title=title, **style))

    def dot(self, x: float, y: float, size: float, title: str, color: str) -> None:
        """Mark a point."""
        place: dict[str, Any] = {"cx": self.x(x), "cy": self.y(y), "r": size}
        self.marks.append(tag("circle", title=title, fill=color, fill_opacity=0.7, **place))

    def note(self, text: str, x: float, y: float, **attributes: object) -> None:
        """Write a text at a place of the axes."""
        self.marks.append(label(text, self.x(x), self.y(y), **attributes))

    def name_row(self, name: str, y: float) -> None:
        """Write the name of a row to the left of the axes."""
        short = shortened(name, int(self.x.start / 6.2) - 2)
        self.marks.append(label(short, self.x.start - 8, self.y(y) + 4, text_anchor="end"))

    def legend(self, *entries: tuple[str, str]) -> None:
        """Say what colors mean, from the right end of the title's line."""
        end = WIDTH - RIGHT
        for color, meaning in reversed(entries):
            start = end - 6.2 * len(meaning)
            self.marks.append(label(meaning, start, 22))
            self.marks.append(tag("circle", cx=start - 9, cy=18, r=4, fill=color))
            end = start - 26

    def svg(self) -> str:
        """Return the picture."""
        left, across = self.x.start, self.x.ticks() if self.marked[0] else ()
        parts = [label(self.title, 8, 22, font_size=14, font_weight=600)]
        faint: dict[str, Any] = {"stroke": "currentColor", "stroke_opacity": 0.15}
        for tick in across:
            at = self.x(tick)
            parts.append(tag("line", x1=at, x2=at, y1=TOP, y2=HEIGHT - BOTTOM, **faint))
            below = HEIGHT - BOTTOM + 16
            parts.append(label(self.spell[0](tick), at, below, text_anchor="middle"))
        for tick in self.y.ticks() if self.marked[1] else ():
            at = self.y(tick)
            parts.append(tag("line", x1=left, x2=WIDTH - RIGHT, y1=at, y2=at, **faint))
            parts.append(label(self.spell[1](tick), left - 8, at + 4, text_anchor="end"))
        middle = (left + WIDTH - RIGHT) / 2
        parts.append(label(self.names[0], middle, HEIGHT - 8, text_anchor="middle"))
        turned: dict[str, Any] = {
            "text_anchor": "middle",
            "transform": f"rotate(-90 14 {HEIGHT / 2})",
        }
        parts.append(label(self.names[1], 14, HEIGHT / 2, **turned))
        return picture([*parts, *self.marks], self.title)


def picture(parts: Sequence[str], title: str, height: int = HEIGHT) -> str:
    """Return a picture of these elements."""
    return tag(
        "svg",
        "\n".join(parts),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH} {height}",
        width="100%",
        style=f"max-width:{WIDTH}px",
        role="img",
        aria_label=printable(title),
    )
