import json
import re
from contextlib import suppress
from xml.etree import ElementTree as ET

import pytest

from torch_ir.errors import InvalidIRError
from torch_ir.passes.memory_plan import plan_memory
from torch_ir.viz import plot
from viz.programs import HOSTILE, layers

PROFILE = {
    "model_name": HOSTILE,
    "nodes": [
        {
            "node": f"{HOSTILE}{at}",
            "operator": HOSTILE if at % 2 else "aten.mm.default",
            "module": f"layers.{at}.{HOSTILE}",
            "seconds": 1e-3 * (at + 1),
            "bytes_read": 64,
            "bytes_written": 32,
            "flops": 1000 * (at + 1),
        }
        for at in range(12)
    ],
    "peak_flops": 1e9,
    "bandwidth": 1e7,
}
CHECKED = {
    "errors": [
        {"value": HOSTILE, "operator": HOSTILE, "reader": "eager", "part": part}
        for part in (0.0, 0.5, 2.0, "inf")
    ]
}
DRAWN = {
    "memory": plan_memory(layers(3)),
    "roofline": PROFILE,
    "treemap": PROFILE,
    "flame": PROFILE,
    "errors": CHECKED,
    "histogram": {"values": {"a": [0.0, 1.0, 1.0, float("nan")], HOSTILE: [2.5, -1.0]}},
}


@pytest.mark.parametrize("kind", DRAWN)
def test_a_plot_is_well_formed_and_holds_its_data(kind):
    found = plot(DRAWN[kind], kind)
    root = ET.fromstring(found.svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert not {"script", "img"} & {element.tag.partition("}")[2] for element in root.iter()}
    page = found.page().html
    held = re.search(r'<script type="application/json">(.*?)</script>', page)[1]
    assert json.loads(held) == json.loads(json.dumps(found.to_dict()))
    assert page.count("<script") == 1
    assert "default-src 'none'" in page
    for element in root.iter():
        for name in ("x", "y", "width", "height", "cx", "cy", "r"):
            assert float(element.get(name, "0").rstrip("%")) >= 0 or name in ("y", "x")
            assert element.get(name) not in ("nan", "inf")


def test_every_piece_of_a_plan_is_drawn_where_it_lies():
    plan = plan_memory(layers(3))
    root = ET.fromstring(plot(plan).svg)
    titles = [element.text for element in root.iter() if element.tag.endswith("title")]
    for piece in plan.allocations:
        assert any(text.startswith(f"%{piece.name}: ") for text in titles)


def test_boxes_of_a_treemap_have_the_areas_of_their_values():
    root = ET.fromstring(plot(PROFILE, "treemap").svg)
    boxes = [e for e in root.iter() if e.tag.endswith("rect")]
    areas = [(float(e.get("width")) + 1) * (float(e.get("height")) + 1) for e in boxes]
    assert areas == sorted(areas, reverse=True)
    assert areas[0] / areas[-1] == pytest.approx(12, rel=0.02)


def test_what_cannot_be_drawn_is_an_error():
    with pytest.raises(InvalidIRError, match="there is no plot 'treemp'"):
        plot(PROFILE, "treemp")
    with pytest.raises(InvalidIRError, match="this has not what a plot needs: errors"):
        plot(PROFILE, "errors")
    with pytest.raises(InvalidIRError, match="no node has operations, bytes and seconds"):
        plot({"nodes": [{"node": "x", "flops": None, "seconds": 1}]}, "roofline")


@pytest.mark.parametrize("kind", DRAWN)
@pytest.mark.parametrize("wrong", ["text", 3, [[]], {"a": {}}, [{"node": {}}], None])
def test_a_damaged_report_is_one_error_or_a_plot(kind, wrong):
    report = DRAWN[kind]
    data = report.to_dict() if hasattr(report, "to_dict") else report
    for key in data:
        with suppress(InvalidIRError):
            ET.fromstring(plot({**data, key: wrong}, kind).svg)


def test_a_flame_graph_nests_modules_and_adds_up():
    modules = ["a.b", "a.b", "a", "", "c.d.e", "a"]
    rows = [
        {"node": f"n{at}", "operator": "op", "module": module, "seconds": float(at + 1)}
        for at, module in enumerate(modules)
    ]
    spans = plot({"nodes": rows}, "flame").data["spans"]
    assert len(spans) == 11
    for span in spans:
        if span["depth"]:
            around = [
                other
                for other in spans
                if other["depth"] == span["depth"] - 1
                and other["start"] <= span["start"] < span["end"] <= other["end"]
            ]
            assert len(around) == 1
            assert span["path"].startswith(around[0]["path"])
    modules = [(s["path"], s["start"], s["end"]) for s in spans if " " not in s["path"]]
    assert set(modules) == {
        ("a", 0, 6),
        ("a.b", 0, 3),
        ("c", 10, 15),
        ("c.d", 10, 15),
        ("c.d.e", 10, 15),
        ("a", 15, 21),
    }
