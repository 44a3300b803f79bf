import json
import math
import re
from contextlib import suppress
from xml.etree import ElementTree as ET

import pytest
import torch
from click.testing import CliRunner

from torch_ir.cli import main
from torch_ir.debug.capture import histograms
from torch_ir.errors import InvalidIRError
from torch_ir.passes.memory_plan import plan_memory
from torch_ir.viz import plot
from torch_ir.viz.plots import MOST_MARKS
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
    "quantization": {
        "model_name": HOSTILE,
        "output_sqnr": 20.0,
        "rows": [
            {
                "quantize": HOSTILE,
                "node": HOSTILE,
                "location": HOSTILE,
                "sqnr": 30.0 + at if at != 2 else None,
                "output_sqnr": 21.0 + at if at != 3 else None,
                "is_measured": at < 2,
            }
            for at in range(30)
        ],
    },
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


@pytest.mark.parametrize("kind", DRAWN)
def test_vega_lite_has_what_it_draws_in_its_rows(kind):
    found = plot(DRAWN[kind], kind).vega_lite()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["$schema"].endswith("/vega-lite/v6.json")
    for layer in found.get("layer", [found]):
        rows = layer["data"]["values"]
        assert rows
        for channel in layer["encoding"].values():
            assert all(channel["field"] in row for row in rows), channel
        names = [text for row in rows for text in row.values() if isinstance(text, str)]
        assert all(name.isprintable() for name in names)


def test_a_plot_is_written_as_vega_lite(tmp_path):
    (tmp_path / "values.json").write_text('{"values": {"a": [0.0, 1.0], "b": [2.0, 2.0]}}')
    out = tmp_path / "values.vl.json"
    done = CliRunner().invoke(main, ["plot", str(tmp_path / "values.json"), "-o", str(out)])
    assert done.exit_code == 0, done.output
    assert json.loads(out.read_text())["encoding"]["facet"]["field"] == "tensor"


def test_every_piece_of_a_plan_is_drawn_where_it_lies():
    plan = plan_memory(layers(3))
    root = ET.fromstring(plot(plan).svg)
    titles = [element.text for element in root.iter() if element.tag.endswith("title")]
    for piece in plan.allocations:
        assert any(text.startswith(f"%{piece.name}: ") for text in titles)


def test_boxes_of_a_treemap_have_the_areas_of_their_values_inside_their_modules():
    modules = ["a.x", "a.y", "b", "a", "c.d"]
    rows = [{"node": m, "module": m, "seconds": 2.0**at} for at, m in enumerate(modules)]
    root = ET.fromstring(plot({"nodes": rows}, "treemap").svg)
    places = {}
    for box in root.iter("{http://www.w3.org/2000/svg}rect"):
        x, y, w, h = (float(box.get(name)) for name in ("x", "y", "width", "height"))
        places[box[0].text.partition(":")[0]] = (x, y, x + w, y + h, (w + 1) * (h + 1))
    assert list(places) == ["c.d", "a", "b", "a.(itself)", "a.y", "a.x"]
    assert places["c.d"][4] / places["b"][4] == pytest.approx(4, rel=0.01)
    assert places["a.y"][4] / places["a.x"][4] == pytest.approx(2, rel=0.1)
    for path, (left, top, right, bottom, _) in places.items():
        outer = places.get(path.rpartition(".")[0])
        if outer:
            assert outer[0] < left < right < outer[2]
            assert outer[1] < top < bottom < outer[3]


def test_nodes_of_no_module_are_boxes_of_operators_in_one_that_says_so():
    named = {"aten.relu.default": "", "aten.add.Tensor": "", "higher_order.cond.default": "m"}
    rows = [{"operator": name, "module": m, "seconds": 1.0} for name, m in named.items()]
    found = plot({"nodes": rows}, "treemap")
    titles = re.findall(r"<title>([^:<]+): [^<]* s</title>", found.svg)
    assert titles == ["(no module)", "m", "(no module).relu", "(no module).add.Tensor"]


@pytest.mark.parametrize("kind", ["treemap", "flame"])
def test_modules_differ_in_color_inside_the_last_that_is_most_of_all(kind):
    modules = [*(f"m.layers.{at}.{part}" for at in range(3) for part in "ab"), "m.head"]
    rows = [{"node": m, "operator": "op", "module": m, "seconds": 1.0} for m in modules]
    root = ET.fromstring(plot({"nodes": rows}, kind).svg)
    boxes = list(root.iter("{http://www.w3.org/2000/svg}rect"))
    fills = {box[0].text.partition(":")[0]: box.get("fill") for box in boxes}
    layers = [fills[f"m.layers.{at}"] for at in range(3)]
    assert len({*layers, fills["m.layers"]}) == 4
    assert fills["m.layers.0.a"] == fills["m.layers.0"]


def test_the_worst_quantized_values_are_named_and_the_others_are_in_the_data():
    found = plot(DRAWN["quantization"])
    assert found.kind == "quantization"
    assert len(found.data["rows"]) == 29, "one costs nothing"
    assert found.svg.count("<circle") == 2 * 20 - 1 + 3, "values, outputs, legend"
    with pytest.raises(InvalidIRError, match="no pair of quantize and dequantize costs"):
        plot({"rows": [{"output_sqnr": None}]})


def test_tensors_are_counted_alike_from_lists_and_from_torch():
    values = [0.0, 1.0, 1.0, 4.0, math.nan, -math.inf]
    listed = plot({"values": {"a": values}}).data["values"]
    assert listed == histograms({"a": torch.tensor(values)})
    assert listed["a"]["counts"] == [1, 0, 2, 0, 0, 0, 0, 1]
    assert listed["a"]["not_finite"] == 2
    assert sum(histograms({"c": torch.ones(3, 5)})["c"]["counts"]) == 15
    with pytest.raises(InvalidIRError, match="no value matches 'rel'") as error:
        histograms({"relu": torch.ones(2)}, ["rel"])
    assert error.value.remedy == "Did you mean relu?"
    with pytest.raises(InvalidIRError) as error:
        histograms({"relu": torch.ones(2), "add": torch.ones(2)}, ["zzz*"])
    assert str(error.value) == "no value matches 'zzz*'\nThe names are ['add', 'relu']."


def test_of_many_tensors_each_has_a_small_histogram():
    svg = plot({"values": {f"t{at}": [0.0, at + 1.0] for at in range(60)}}).svg
    assert svg.count("<polygon") == 48
    assert "values of 60 tensors, the first 48" in svg


def test_what_cannot_be_drawn_is_an_error():
    with pytest.raises(InvalidIRError, match="there is no plot 'treemp'"):
        plot(PROFILE, "treemp")
    with pytest.raises(InvalidIRError, match="this does not have what a plot needs: errors"):
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


MANY = 10_000


def many(kind):
    """The report of a program of so many nodes."""
    if kind == "memory":
        live = [{"node": f"v{at}", "live": at % 977} for at in range(MANY)]
        held = {"offset": 0, "size": 64}
        pieces = [{"name": f"v{at}", "birth": at, "death": at + 1, **held} for at in range(MANY)]
        return {"model": "m", "size": 1024, "nodes": live, "allocations": pieces}
    report = DRAWN[kind]
    if kind == "histogram":
        return {"values": {f"v{at}": [1.0, 2.0] for at in range(MANY)}}
    (rows,) = (key for key in ("nodes", "errors", "rows") if key in report)
    return {**report, rows: [{**report[rows][at % 2], "node": f"v{at}"} for at in range(MANY)]}


@pytest.mark.parametrize("kind", DRAWN)
def test_pictures_of_large_programs_are_small(kind):
    svg = plot(many(kind), kind).svg
    assert svg.count("<title>") <= 2 * MOST_MARKS
    assert max(map(len, re.findall(r'points="[^"]*"', svg)), default=0) < 60_000


def test_a_thinned_line_keeps_its_peak():
    report = many("memory")
    report["nodes"][2_345]["live"] = 1000
    top = min(y for _, y in line_of(plot(report, "memory").svg))
    flat = {**report, "nodes": report["nodes"][2_345:2_347], "allocations": []}
    assert top == min(y for _, y in line_of(plot(flat, "memory").svg))


def line_of(svg):
    (points,) = re.findall(r'<polyline points="([^"]*)"[^>]*stroke="currentColor"', svg)
    return [tuple(map(float, point.split(","))) for point in points.split()]
