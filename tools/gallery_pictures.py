"""Write the pictures in docs: pages of the gallery in Chromium, without a window.

Needs Chromium (``$CHROMIUM`` or on the path) and ``pip install playwright``.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
OPEN_LAYER = """() => {
  const pane = page.active, graph = pane.program.graphs[0];
  const repeat = [...pane.boxes.values()].find(({ box }) => box.times).box;
  page.toggle(pane, repeat.key);
  page.toggle(pane, `g${graph.members(repeat.number)[1].group}`);
  pane.view.k = 0.9;
  pane.center(pane.selected);
}"""
GO_TO_LAYERS = """() => {
  page.go([...page.active.boxes.values()].find(({ box }) => box.times).box.key);
}"""
OPEN_CALLS = """() => {
  const pane = page.active;
  for (const [key, { box }] of pane.boxes) if (box.calls) page.toggle(pane, key);
  pane.fit();
}"""
PLOT = {"viewport": {"width": 920, "height": 480}}
PICTURES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("minilm", OPEN_LAYER, {}),
    ("resnet50", OPEN_LAYER, {}),
    ("llama", GO_TO_LAYERS, {}),
    ("llama-outlined", GO_TO_LAYERS, {}),
    ("flow", OPEN_CALLS, {"color_scheme": "dark"}),
    ("quantized", "", {}),
    ("memory", "", PLOT),
    ("treemap", "", PLOT),
    ("flame", "", PLOT),
    ("quantization", "", PLOT),
    ("histogram", "", PLOT),
)
"""The page, what to do in it first, and how the window is."""


def pages(folder: Path) -> None:
    """Write the pages of the gallery."""
    spec = importlib.util.spec_from_file_location("gallery", ROOT / "examples" / "gallery.py")
    if spec is None or spec.loader is None:
        raise SystemExit("examples/gallery.py cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.gallery(folder, [name for name, *_ in PICTURES])


def main() -> None:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "docs" / "pictures")
    target: Path = parser.parse_args().folder
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        raise SystemExit("no Chromium: install one, or set CHROMIUM to its path")
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name, sync_playwright() as driver:
        pages(Path(name))
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for picture, script, options in PICTURES:
            page = browser.new_page(**{"viewport": {"width": 1280, "height": 760}, **options})
            page.goto((Path(name) / f"{picture}.html").as_uri())
            if script:
                page.wait_for_function("document.documentElement.dataset.ready")
                page.evaluate(script)
            shown = page.locator("svg") if options is PLOT else page
            shown.screenshot(path=target / f"{picture}.png")
            print(target / f"{picture}.png")
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
