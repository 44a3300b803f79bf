"""The viewer as one file of HTML: the document inside, no network, no server."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from os import PathLike
from typing import Any

from torch_ir.arguments import public
from torch_ir.errors import printable
from torch_ir.ir import IR
from torch_ir.ir.diff import node_pairs
from torch_ir.ir.dtypes import DTYPES
from torch_ir.serde import write_atomically
from torch_ir.viz.document import ViewDocument
from torch_ir.viz.html import escape, ir_html
from torch_ir.viz.overlays import Overlay, marks, numbered, overlays_of

SCRIPTS = ("data", "layout", "scene", "draw", "overlay", "side", "search", "main")
"""The scripts of the viewer, in the order in which they build on each other."""

LARGEST_FRAME = 1_000_000
"""Characters of a page that a notebook holds."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page of HTML in one file; a notebook shows it in a frame that may run only its script.

    Attributes:
        html: The page.
        outline: What a notebook shows instead of a page of more than a megabyte, which it would
            keep in its file.
    """

    html: str = field(repr=False)
    outline: str = field(default="", repr=False)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the page to a file, which is there whole or not at all.

        Raises:
            SerializationError: The file cannot be written.
        """
        write_atomically(path, self.html.encode())

    def _repr_html_(self) -> str:
        if self.outline and len(self.html) > LARGEST_FRAME:
            told = f"The page has {len(self.html) / 1e6:.1f} MB, too much for a notebook."
            return f'{self.outline}<p>{told} Write it: <code>.save("net.html")</code>.</p>'
        style = "width:100%;height:640px;border:1px solid #8884;border-radius:6px"
        source = html.escape(self.html)
        return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{source}"></iframe>'


@public
def view(ir: IR, *, overlays: Sequence[object] = (), against: IR | None = None) -> Page:
    """Return the page of :func:`view_html`, which a notebook shows; an outline, if it is large.

    Example:
        >>> view(IR([], [], [], [], model_name="Net"))._repr_html_()[:31]
        '<iframe sandbox="allow-scripts"'
    """
    whole = view_html(ir, overlays=overlays, against=against)
    return Page(whole, ir_html(ir) if len(whole) > LARGEST_FRAME else "")


@public
def view_html(ir: IR, *, overlays: Sequence[object] = (), against: IR | None = None) -> str:
    """Return a page that shows the graph of a program, in one file that opens offline.

    The module tree, equal layers once; the graph, laid out where it is open; all that is known of
    a node; search, links, keys. What the program says is data in it and never markup: the page
    forbids every script but its own, and every request.

    Args:
        ir: The program.
        overlays: Values of nodes to color by: an :class:`Overlay`, or a report that
            :func:`overlays_of` reads.
        against: A program to show beside it, with the difference marked.

    Raises:
        InvalidIRError: An overlay says nothing of nodes, or names none of the program.

    Example:
        >>> page = view_html(IR([], [], [], [], model_name="</title><script>"))
        >>> page.count("<script"), "default-src 'none'" in page
        (2, True)
    """
    document = ViewDocument()
    document.add(ir)
    given = [each for report in overlays for each in _overlays(report)]
    shown = [numbered(each, ir, 0) for each in given]
    more: dict[str, Any] = {}
    if against is not None:
        document.add(against)
        first, second = marks(ir, against)
        shown = [numbered(first, ir, 0), numbered(second, against, 1), *shown]
        pairs = node_pairs(ir, against)
        more["match"] = [pairs[at][0] if at in pairs else -1 for at in range(len(ir.nodes))]
    title = printable(ir.model_name) or "torch-ir"
    return page({**document.to_dict(), "overlays": shown, **more}, title)


def _overlays(report: object) -> Sequence[Overlay]:
    return (report,) if isinstance(report, Overlay) else overlays_of(report)


def page(document: dict[str, Any], title: str) -> str:
    """Return the page that shows a document."""
    document["itemsizes"] = {info.short: info.itemsize for info in DTYPES.values()}
    document["dtypes"] = {info.short: info.name for info in DTYPES.values()}
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    data = base64.b64encode(zlib.compress(text.encode("utf-8", "backslashreplace"), 9)).decode()
    script = "".join(map(_asset, (f"{name}.js" for name in SCRIPTS)))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    fields = {
        "hash": f"'sha256-{digest}'",
        "title": escape(title),
        "style": _asset("style.css"),
        "data": data,
        "script": script,
    }
    parts = _asset("page.html").split("{")
    return parts[0] + "".join(
        [fields[name] + rest for name, _, rest in (p.partition("}") for p in parts[1:])]
    )


@cache
def _asset(name: str) -> str:
    return (resources.files("torch_ir.viz") / "viewer" / name).read_text("utf-8")
