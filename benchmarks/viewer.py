"""The page of the viewer in Chromium: bytes, time to the first picture, time to open a module.

Times are those of the page's own thread, so that what else the machine does counts less. Needs
Chromium on the path and ``pip install playwright``; without them it says so.

Usage: ``python benchmarks/viewer.py``
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from torch_ir.ir import IR, Location, OpNode, TensorMeta
from torch_ir.viz import view_html

PARTS = ("norm", "attn.q", "attn.k", "mlp", "")
SIZES = ((1200, 2.5, 1000), (20_000, 20.0, 4000))
"""How many layers of five nodes, and the budgets: megabytes, and milliseconds to the picture."""
OPEN_MS = 200
NEXT = """() => {
  const pane = page.active, inside = window.last && pane.boxes.get(window.last).box.children;
  const boxes = inside ?? [...pane.boxes.values()];
  window.last = boxes.map(({ box }) => box).find((box) => box.kind === "group" && !box.open)?.key;
  return window.last ?? null;
}"""
OPEN = (
    "() => { page.toggle(page.active, window.last); page.active.element.getBoundingClientRect(); }"
)


def layers(count: int) -> IR:
    """Equal layers one after the other."""
    taken = first = TensorMeta("x", (2, 8), "float32")
    nodes: list[OpNode] = []
    for at in range(count):
        for part in PARTS:
            name = f"v{len(nodes)}"
            made = TensorMeta(name, (2, 8), "float32", name)
            place = Location("net.py", 7, "x = op(x)", f"layers.{at}.{part}".rstrip("."), "Block")
            nodes.append(OpNode(name, "aten.relu.default", [taken], [made], location=place))
            taken = made
    return IR(nodes, [first], [taken], [], model_name="Layers")


def milliseconds(session: Any) -> float:
    """What the page's thread has worked so far."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return next(each["value"] for each in metrics if each["name"] == "TaskDuration") * 1e3


def measure(browser: Any, count: int, megabytes: float, ready: int) -> None:
    """Print the figures of one size."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "layers.html"
        file.write_text(view_html(layers(count)), "utf-8")
        page = browser.new_page()
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        page.goto(file.as_uri())
        page.wait_for_function("document.documentElement.dataset.ready")
        size, first = file.stat().st_size / 1e6, milliseconds(session)
        print(f"{count * len(PARTS):,} nodes: {size:.2f} MB (budget {megabytes})")
        print(f"  first picture {first:.0f} ms (budget {ready})")
        while page.evaluate(NEXT):
            before = milliseconds(session)
            page.evaluate(OPEN)
            print(f"  opened a box in {milliseconds(session) - before:.0f} ms (budget {OPEN_MS})")
        page.close()


def main() -> None:
    path = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chrome"))), None)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        sys.exit("pip install playwright")
    if path is None:
        sys.exit("no Chromium on the path")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for count, megabytes, ready in SIZES:
            measure(browser, count, megabytes, ready)
        browser.close()


if __name__ == "__main__":
    main()
