"""Pages look as they did when a person last looked: screenshots, with a tolerance for fonts.

``UPDATE_SCREENSHOTS=1`` writes them anew; look at each before you keep it.
"""

import base64
import os
from pathlib import Path

import pytest

from torch_ir.passes.memory_plan import plan_memory
from torch_ir.viz import plot, view_html
from viz.browser import Opened, chromium
from viz.programs import branches, layers

KEPT = Path(__file__).parent / "screenshots"
WIDTH, HEIGHT = 480, 300
FONTS = "() => Math.round(widthOf('layers of', 'title') + widthOf('f32[2, 8]', 'detail'))"
FONT_WIDTH = 115
"""Of the fonts that the screenshots were taken with; other fonts give other layouts."""

COMPARED = """async ([images, width, height]) => {
  const read = async (image) => {
    const picture = new Image();
    picture.src = `data:image/png;base64,${image}`;
    await picture.decode();
    const canvas = Object.assign(document.createElement('canvas'), { width, height });
    const pen = canvas.getContext('2d');
    pen.imageSmoothingQuality = 'high';
    pen.drawImage(picture, 0, 0, width, height);
    const pixels = pen.getImageData(0, 0, width, height).data;
    return [canvas.toDataURL('image/png').split(',')[1], pixels];
  };
  const [[small, a], [, b]] = await Promise.all(images.map(read));
  let differing = 0;
  for (let i = 0; i < a.length; i += 4) {
    if ([0, 1, 2].some((k) => Math.abs(a[i + k] - b[i + k]) > 48)) differing++;
  }
  return [small, differing / (width * height)];
}"""
OPEN_ALL = """() => {
  for (let round = 0; round < 4; round++) for (const [key, { box }] of [...page.active.boxes])
    if (!box.open && (box.calls || box.kind === 'group')) page.toggle(page.active, key);
  page.active.fit();
}"""


def costs():
    ir = layers(5)
    rows = [{"node": node.name, "seconds": 1e-3 * at} for at, node in enumerate(ir.nodes)]
    return view_html(ir, overlays=[{"nodes": rows}])


def changed():
    old = layers(2)
    nodes = [old.nodes[0].replace(op_type="aten.neg.default"), *old.nodes[1:]]
    return view_html(old, against=old.replace(nodes=nodes))


SHOTS = {
    "closed": (lambda: view_html(branches()), "", "light"),
    "open": (lambda: view_html(branches()), OPEN_ALL, "dark"),
    "selected": (lambda: view_html(branches()), "() => page.go('n3')", "light"),
    "colors": (costs, OPEN_ALL, "light"),
    "colors-dark": (costs, "", "dark"),
    "two": (changed, OPEN_ALL, "light"),
    "plot": (lambda: plot(plan_memory(layers(3))).page().html, "", "light"),
}


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


@pytest.fixture
def shoot(browser, tmp_path):
    def shot(name):
        make, script, scheme = SHOTS[name]
        file = tmp_path / f"{name}.html"
        file.write_text(make(), "utf-8")
        opened = Opened(browser, file, color_scheme=scheme, wait=name != "plot")
        opened.page.set_viewport_size({"width": 2 * WIDTH, "height": 2 * HEIGHT})
        if name != "plot" and opened(FONTS) != FONT_WIDTH:
            pytest.skip(f"the fonts here are {opened(FONTS)} wide, those kept {FONT_WIDTH}")
        if script:
            opened(script)
        image = opened.page.screenshot()
        opened.close()
        return image

    return shot


@pytest.fixture
def compared(browser):
    """An image at half its size, and the part of its pixels that clearly differ from another."""
    page = browser.new_page()

    def compare(*images):
        encoded = [base64.b64encode(image).decode() for image in images]
        small, differing = page.evaluate(COMPARED, [encoded, WIDTH, HEIGHT])
        return base64.b64decode(small), differing

    yield compare
    page.close()


@pytest.mark.parametrize("name", SHOTS)
def test_a_page_looks_as_it_did(name, shoot, compared):
    image, file = shoot(name), KEPT / f"{name}.png"
    if os.environ.get("UPDATE_SCREENSHOTS"):
        file.write_bytes(compared(image, image)[0])
    assert compared(image, file.read_bytes())[1] < 0.01


def test_what_looks_otherwise_is_seen(compared):
    for name, other in [("closed", "selected"), ("colors", "closed"), ("open", "colors-dark")]:
        one, two = ((KEPT / f"{each}.png").read_bytes() for each in (name, other))
        assert compared(one, two)[1] > 0.02
