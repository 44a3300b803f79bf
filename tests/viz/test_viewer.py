"""The page in a browser: it asks for nothing, complains of nothing, and shows everything."""

import pytest

from torch_ir import parse
from torch_ir.ir import IR, OpNode, TensorMeta
from torch_ir.passes import outline
from torch_ir.viz import view, view_html
from torch_ir.viz.html import ir_html
from viz.browser import Opened, chromium
from viz.programs import branches, hostile, layers, tangled


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


@pytest.fixture
def opened(browser, tmp_path):
    pages = []

    def open_page(ir, anchor="", page=None, **options):
        file = tmp_path / f"page{len(pages)}.html"
        file.write_text(page or view_html(ir), "utf-8")
        pages.append(Opened(browser, file, anchor, **options))
        return pages[-1]

    yield open_page
    for page in pages:
        page.close()


FIND_ALL = """() => {
  const pane = page.active, missing = [];
  for (const graph of pane.program.graphs) for (let n = 0; n < graph.size; n++) {
    const found = pane.search.find('name:"' + graph.name(n) + '"');
    page.results.show(pane.program, found, 'x');
    const at = found.findIndex((each) => each.graph === graph && each.node === n);
    if (at >= 0) page.results.go(at);
    const shown = pane.boxes.get(pane.selected)?.box;
    const width = shown?.element.getBoundingClientRect().width;
    if (!width || shown.graph !== graph || shown.number !== n) missing.push(graph.name(n));
  }
  return [missing, pane.program.size];
}"""


FRAMES = "requestAnimationFrame(() => requestAnimationFrame(() => done(page.active.view)))"
"""Chromium hands over what fingers do with the next frame."""
QUANTIZED = """ir {
  input %x: f32[2, 8]
  %q: i8[2, 8] = quantized_decomposed.quantize_per_tensor.default(%x, scale=0.1, zero_point=0, \
quant_min=-128, quant_max=127, dtype=torch.int8)
  %f: f32[2, 8] = quantized_decomposed.dequantize_per_tensor.default(%q, scale=0.1, \
zero_point=0, quant_min=-128, quant_max=127, dtype=torch.int8)
  %y: f32[2, 8] = aten.relu.default(%f)
  return %y
}
"""
PROGRAMS = {
    "branches": branches,
    "layers": lambda: layers(12),
    "outlined": lambda: outline(layers(12)),
    "quantized": lambda: parse(QUANTIZED),
    **{f"tangled {seed}": lambda seed=seed: tangled(seed, 60) for seed in range(3)},
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_node_is_found_by_search_and_shown(opened, name):
    ir = PROGRAMS[name]()
    assert opened(ir)(FIND_ALL) == [[], len(list(ir.walk()))]


def test_functions_that_nothing_calls_are_found_too(opened):
    ir = branches()
    loose = ir.replace(nodes=ir.nodes[:3], graph_outputs=ir.nodes[2].outputs)
    view = opened(loose)
    assert view(FIND_ALL) == [[], 7]
    assert view("() => location.hash") == "#~1/again.0/node=deep"
    again = opened(loose, "#~2/node=neg")
    assert again.page.locator("#panel dd").first.inner_text() == "%neg"


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_node_is_reached_by_clicks(opened, name):
    ir = PROGRAMS[name]() if name != "layers" else layers(3)
    view = opened(ir)
    for _ in range(60):
        closed = view.page.locator(".box:not(.open) > .fold").all()
        if not closed:
            break
        view("() => page.active.fit()")
        closed[0].dispatch_event("click", {"bubbles": True})
    shown = view("""() => [...page.active.boxes.values()].map(({ box }) => box)
      .filter((box) => box.graph && Number.isInteger(box.number) && /n\\d+$/.test(box.key))
      .map((box) => box.graph.name(box.number))""")
    assert set(shown) == {node.name for _, _, node in ir.walk()}


def test_equal_layers_are_one_row_and_one_box(opened):
    view = opened(layers(80))
    assert view.page.locator(".tree > div > .row").all_inner_texts() == [
        "▸\nlayers 0 … 79\n\N{MULTIPLICATION SIGN} 80\nBlock\n400"
    ]
    assert view.page.locator(".box .times").all_text_contents() == ["\N{MULTIPLICATION SIGN} 80"]


def test_a_link_leads_into_a_function_in_a_function(opened):
    view = opened(branches(), "#cond.0/again.0/node=deep&colors=dtype")
    assert view.page.locator("#panel dd").first.inner_text() == "%deep"
    assert view("() => location.hash") == "#cond.0/again.0/node=deep&colors=dtype"
    assert view.page.locator(".legend").inner_text().startswith("dtype")
    view.page.keyboard.press("Backspace")
    assert view("() => page.active.selected").endswith("n1")


def test_the_panel_links_what_a_node_takes_and_who_takes_its_results(opened):
    view = opened(branches(), "#node=linear")
    panel = view.page.locator("#panel")
    assert "fc.weight" in panel.inner_text()
    panel.get_by_role("button", name="%sum").click()
    assert "aten.sum.default" in panel.inner_text()
    panel.get_by_role("button", name="%linear").click()
    assert view("() => location.hash") == "#node=linear"


def test_keys_search_open_and_walk(opened):
    view = opened(branches())
    page = view.page
    page.keyboard.press("/")
    page.keyboard.type("op:cond")
    page.keyboard.press("Enter")
    page.wait_for_function("page.active.selected === 'n3'")
    page.keyboard.press("Escape")
    page.keyboard.press("Enter")
    assert view("() => page.active.scene.isOpen('n3')")
    page.keyboard.press("ArrowDown")
    assert view("() => page.active.selected") == "n4"
    page.keyboard.press("?")
    assert page.locator("#keys").is_visible()
    page.keyboard.press("t")
    assert view("() => document.documentElement.dataset.theme") == "dark"


def test_two_fingers_zoom_about_their_middle_and_one_moves(opened):
    view = opened(layers(12), has_touch=True)
    touch = view.page.context.new_cdp_session(view.page)
    pane = view.page.locator("svg.graph").bounding_box()
    x, y = pane["x"] + pane["width"] / 2, pane["y"] + pane["height"] / 2

    def fingers(kind, *apart):
        points = [{"x": x + dx, "y": y, "id": at} for at, dx in enumerate(apart)]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        return view(f"() => new Promise((done) => {FRAMES})")

    def under_middle(shown):
        return (pane["width"] / 2 - shown["x"]) / shown["k"]

    before = fingers("touchStart", -50, 50)
    apart = fingers("touchMove", -75, 75)
    assert apart["k"] == pytest.approx(1.5 * before["k"])
    assert under_middle(apart) == pytest.approx(under_middle(before), abs=1)
    together = fingers("touchMove", -50, 50)
    assert together["k"] == pytest.approx(before["k"])
    fingers("touchEnd")
    start = fingers("touchStart", 0)
    fingers("touchMove", 20)
    moved = fingers("touchMove", 60)
    fingers("touchEnd")
    assert moved["k"] == start["k"]
    assert moved["x"] == pytest.approx(start["x"] + 60, abs=1)


@pytest.mark.parametrize("query", ["shape:[2,", "dtype:int64", "dtype:i64", "weight:fc", "%max.0"])
def test_every_field_is_searched(opened, query):
    assert opened(branches())("(query) => page.active.search.find(query).length", query) > 0


def test_hostile_texts_stay_texts(opened):
    view = opened(hostile())
    assert view(FIND_ALL.replace("'name:\"' + graph.name(n) + '\"'", "'onerror'"))[0] == []
    assert view("() => window.pwned ?? document.querySelectorAll('img, b b, iframe').length") == 0


def test_printing_shows_the_graph_alone(opened):
    view = opened(branches())
    view.page.emulate_media(media="print")
    assert not view.page.locator("#panel").is_visible()
    assert view.page.locator(".graph").is_visible()


def test_colors_say_what_the_legend_says(opened):
    ir = branches()
    report = {"nodes": [{"node": "linear", "seconds": 0.003}, {"node": "cond", "seconds": 0.001}]}
    view = opened(ir, page=view_html(ir, overlays=[report]))
    assert view.page.locator(".legend").inner_text().split() == [
        "time",
        "0",
        "3",
        "ms",
        "all:",
        "\N{GREATER-THAN OR EQUAL TO}",
        "4",
        "ms",
        "not",
        "known",
    ]
    assert view("() => page.active.boxes.get('n1').box.element.classList.contains('unknown')")
    fill = "(key) => getComputedStyle(page.active.boxes.get(key).box.element.firstChild).fill"
    assert view(fill, "n0") != view(fill, "n3") != view(fill, "n1")
    view.page.select_option("#colors", "dtype")
    view.page.locator(".chip", has_text="f32").click()
    assert view.page.locator("#results .row").count() == 8


def test_the_same_node_is_selected_on_both_sides(opened):
    old = layers(3)
    new = old.replace(nodes=[old.nodes[0].replace(op_type="aten.neg.default"), *old.nodes[1:]])
    view = opened(old, page=view_html(old, against=new))
    view("() => page.go('n7')")
    assert view("() => page.panes.map((pane) => pane.selected)") == ["n7", "n7"]
    assert "changed 1" in view.page.locator(".legend").inner_text()


def test_what_stands_for_more_values_lights_their_lines(opened):
    x = [TensorMeta(f"input_{at}", (2, 8), "float32") for at in range(12)]
    made = TensorMeta("y", (24, 8), "float32", "y")
    view = opened(IR([OpNode("y", "aten.cat.default", x, [made], {})], x, [made], []))
    view.page.locator(".box.in .title", has_text="more").dispatch_event("click", {"bubbles": True})
    shown, more = view(
        "() => [page.panel.host.innerText, page.active.boxes.get(page.active.selected).box.values]"
    )
    assert all(f"%input_{at}" in shown for at in more)
    assert view("() => document.querySelectorAll('.line.lit').length") == 1


def test_a_notebook_shows_it_in_a_frame_without_rights(browser):
    page = browser.new_page()
    faults = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda said: faults.append(said.text) if said.type == "error" else 0)
    page.set_content(view(branches())._repr_html_())
    frame = page.frames[1]
    frame.wait_for_function("document.documentElement.dataset.ready")
    frame.locator(".box .title", has_text="linear").first.dispatch_event(
        "click", {"bubbles": True}
    )
    assert "fc.weight" in frame.locator("#panel").inner_text()
    assert faults == []
    page.close()


def test_a_notebook_holds_no_page_that_is_too_large_for_it(monkeypatch):
    ir = branches()
    whole = len(view_html(ir))
    for largest, is_frame in ((whole, True), (whole - 1, False)):
        monkeypatch.setattr("torch_ir.viz.page.LARGEST_FRAME", largest)
        page = view(ir)
        shown = page._repr_html_()
        assert len(page.html) == whole
        assert shown.startswith("<iframe") is is_frame
        assert (ir_html(ir) in shown, '.save("net.html")' in shown) == (not is_frame, not is_frame)


LABELS = """() => {
  const channels = (color) => {
    const numbers = color.match(/[\\d.]+/g).map(Number);
    const scale = color.startsWith('color(') ? 1 : 255;
    return numbers.slice(0, 3).map((c) => c / scale);
  };
  const linear = (c) => (c <= 0.04 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const light = (color) => channels(color).map(linear)
    .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
  const wrong = [], fill = (element) => getComputedStyle(element).fill;
  page.active.view.k = 1; page.active.apply();
  for (const { box } of page.active.boxes.values()) {
    const face = box.element.querySelector(':scope > .face');
    if (!face || box.bare) continue;
    const own = [...box.element.querySelectorAll(':scope > text')];
    const texts = own.filter((each) => each.textContent);
    const place = (each) => each.getBoundingClientRect();
    const outer = place(face), rects = texts.map(place);
    const meets = (a, b) => a.left < b.right - 1 && b.left < a.right - 1
      && a.top < b.bottom - 5 && b.top < a.bottom - 5;
    const back = box.element.querySelector(':scope > .head') ?? face;
    texts.forEach((each, at) => {
      const rect = rects[at], say = (what) => wrong.push(`${what}: ${each.textContent}`);
      if (rect.left < outer.left - 1 || rect.right > outer.right + 1) say('outside');
      if (rects.some((other, k) => k < at && meets(other, rect))) say('overlap');
      const [a, b] = [light(fill(each)), light(fill(back))].sort();
      if ((b + 0.05) / (a + 0.05) < 3.5) say('contrast');
    });
  }
  return wrong;
}"""
OPEN_ALL = """() => {
  for (let round = 0; round < 4; round++) for (const [key, { box }] of [...page.active.boxes])
    if (!box.open && (box.calls || box.kind === 'group')) page.toggle(page.active, key);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 800])
@pytest.mark.parametrize("program", [branches, hostile, lambda: layers(5)])
def test_labels_stand_apart_inside_their_boxes_and_can_be_read(opened, program, scheme, width):
    ir = program()
    report = {"overlay": "x", "nodes": {node.name: float(i) for i, node in enumerate(ir.nodes)}}
    view = opened(ir, page=view_html(ir, overlays=[report]), color_scheme=scheme)
    view.page.set_viewport_size({"width": width, "height": 760})
    for script in ("() => 0", OPEN_ALL):
        view(script)
        assert view(LABELS) == []


@pytest.mark.parametrize("width", [1280, 800, 375])
def test_tree_results_and_panel_have_a_place_at_every_width(opened, width):
    view = opened(layers(3), "#node=v7")
    view.page.set_viewport_size({"width": width, "height": 760})
    controls = view.page.locator("header > *:not(.space)").all()
    assert all(
        0 < each.bounding_box()["x"] + each.bounding_box()["width"] <= width for each in controls
    )
    for place in ("#trees", "#panel", "main"):
        box = view.page.locator(place).bounding_box()
        assert box["width"] >= 180, place
        assert box["x"] + box["width"] <= width
    view.page.keyboard.press("/")
    view.page.keyboard.type("name:v7")
    view.page.locator("#results .row").first.wait_for(state="visible")


def test_a_legend_of_many_rows_covers_nothing_of_a_picture_that_fits(opened):
    names = [
        "relu",
        "sigmoid",
        "tanh",
        "sin",
        "cos",
        "exp",
        "neg",
        "abs",
        "sqrt",
        "rsqrt",
        "floor",
        "ceil",
    ]
    lines = [
        f"%v{at}: f32[2] = aten.{name}.default(%{'x' if at == 0 else f'v{at - 1}'})"
        for at, name in enumerate(names)
    ]
    program = "\n".join(["ir {", "input %x: f32[2]", *lines, "return %v11", "}"])
    view = opened(parse(program))
    view.page.set_viewport_size({"width": 800, "height": 900})
    view.page.select_option("#colors", "operator")
    view.page.evaluate(f"() => new Promise((done) => {FRAMES})")
    covered = "() => document.querySelector('.legend').getBoundingClientRect().top"
    lowest = """() => Math.max(...[...page.active.boxes.values()].map(
        ({ box }) => box.element.getBoundingClientRect().bottom))"""
    assert view(lowest) < view(covered)
