"""The viewer as one file of HTML: the document inside, no network, no server."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from functools import cache
from importlib import resources
from typing import Any

from torch_ir.errors import printable
from torch_ir.ir import IR
from torch_ir.ir.dtypes import DTYPES
from torch_ir.viz.document import ViewDocument
from torch_ir.viz.html import escape

SCRIPTS = ("data", "layout", "scene", "draw", "overlay", "side", "search", "main")
"""The scripts of the viewer, in the order in which they build on each other."""


def view_html(ir: IR) -> str:
    """Return a page that shows the graph of a program, in one file that opens offline.

    The module tree, equal layers once; the graph, laid out where it is open; all that is known of
    a node; search, links, keys. What the program says is data in it and never markup: the page
    forbids every script but its own, and every request.

    Example:
        >>> page = view_html(IR([], [], [], [], model_name="</title><script>"))
        >>> page.count("<script"), "default-src 'none'" in page
        (2, True)
    """
    document = ViewDocument()
    document.add(ir)
    return page(document.to_dict(), printable(ir.model_name) or "torch-ir")


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
