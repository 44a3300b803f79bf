import base64
import json
import re
import zlib

import pytest

from torch_ir.errors import InvalidIRError
from torch_ir.ir.queries import graphs
from torch_ir.passes.memory_plan import plan_memory
from torch_ir.viz import view_html
from viz.programs import HOSTILE, branches, hostile, layers


def document(page):
    """What the page holds, as the viewer reads it."""
    data = re.search(r'<script id="data" type="text/plain">([^<]*)</script>', page)[1]
    return json.loads(zlib.decompress(base64.b64decode(data)))


def test_every_node_of_the_program_and_its_functions_is_in_it():
    ir = branches()
    read = document(view_html(ir))
    texts = read["texts"]
    shown = {
        graph["path"]: [texts[name] for name in graph["nodes"]["name"]]
        for graph in read["programs"][0]["graphs"]
    }
    assert shown == {path: [node.name for node in graph.nodes] for path, graph in graphs(ir)}
    assert list(shown) == ["", "yes/", "no/", "yes/inner/"]


def test_one_program_gives_one_page():
    assert view_html(branches()) == view_html(branches())


def test_the_page_asks_for_nothing_and_runs_only_its_own_script():
    page = view_html(branches())
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    assert "default-src 'none'; script-src 'sha256-" in policy
    assert not re.search(r"<link|<img|<iframe| src=|@import|url\(https?:|fetch\(|XMLHttp", page)
    assert set(re.findall(r"https?://[^\s\"']*", page)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", page)


def test_hostile_texts_are_data():
    page = view_html(hostile())
    assert "onerror" not in re.sub(r"<title>.*?</title>|<h1.*?</h1>", "", page, flags=re.S)
    assert page.count("<img") == 0
    assert page.count("</script>") == 2
    assert "\u202e" not in page
    assert "\x1b" not in page
    assert HOSTILE.split("\u202e")[0] in document(page)["programs"][0]["name"]


def test_equal_texts_are_stored_once():
    few, many = len(view_html(layers(1))), len(view_html(layers(1200)))
    assert many < 500_000  # 6,000 nodes; the budget is 2.5 MB
    assert many - few < 300_000


def overlays(page):
    return {each["name"]: each for each in document(page)["overlays"]}


def test_reports_become_overlays():
    ir = branches()
    plan = plan_memory(ir.replace(functions={}, nodes=ir.nodes[:3], graph_outputs=[]))
    profile = {"nodes": [{"node": "cond", "seconds": 0.5, "bytes_read": 4, "flops": None}]}
    support = {
        "backend": "npu",
        "operators": [
            {"supported": True, "nodes": ["linear"], "reason": ""},
            {"supported": False, "nodes": ["cond"], "reason": "a branch"},
        ],
    }
    checked = {
        "errors": [{"node": "sum", "part": 0.25, "reader": "eager"}],
        "divergences": [{"node": "sum"}],
        "not_compared": {"cond": "it calls functions"},
    }
    ours = {"overlay": "depth", "nodes": {"yes/inner/deep": 3, "sum": 1}, "combine": "max"}
    compared = {
        "run": "aten",
        "against": "eager",
        "divergences": [],
        "compared": ["linear", "gt"],
        "covered": ["cond"],
    }
    costly = {"output_sqnr": 20.0, "rows": [{"quantize": "sum", "output_sqnr": 20.0}]}
    reports = [plan, profile, support, checked, compared, costly, ours]
    found = overlays(view_html(ir, overlays=reports))
    assert list(found) == [
        "live memory",
        "allocated",
        "time",
        "bytes read",
        "support by npu",
        "error of allowed",
        "validation",
        "aten against eager",
        "noise of the outputs",
        "depth",
    ]
    assert found["time"]["values"] == [[0, [3], [0.5]]]
    assert found["support by npu"]["values"] == [[0, [0, 3], ["supported", "a branch"]]]
    verdicts = ["agrees", "diverges", "agrees", "not compared", "agrees"]
    assert found["validation"]["values"] == [[0, [0, 1, 2, 3, 4], verdicts]]
    assert found["aten against eager"]["values"] == [
        [0, [0, 2, 3], ["agrees", "agrees", "covered"]]
    ]
    assert found["noise of the outputs"]["values"] == [[0, [1], [0.01]]]
    assert found["depth"]["values"] == [[0, [1], [1.0]], [3, [0], [3.0]]]


def test_what_is_no_overlay_is_an_error():
    with pytest.raises(
        InvalidIRError, match="this says nothing of nodes; an overlay is a profile"
    ):
        view_html(branches(), overlays=[{"nodes": 3}])
    with pytest.raises(InvalidIRError, match="of another program: there is no node 'linea'"):
        view_html(branches(), overlays=[{"overlay": "x", "nodes": {"linea": 1}}])


def test_two_programs_stand_side_by_side_with_the_difference_marked():
    old = layers(2)
    new = old.replace(
        nodes=[old.nodes[0].replace(op_type="aten.neg.default"), *old.nodes[1:-1]],
        graph_outputs=[old.nodes[-2].outputs[0]],
    )
    read = document(view_html(old, against=new))
    kinds = [dict(zip(*each["values"][0][1:], strict=True)) for each in read["overlays"]]
    assert [kinds[0][0], kinds[0][1], kinds[0][9]] == ["changed", "same", "only here"]
    assert set(kinds[1].values()) == {"changed", "same"}
    assert read["match"] == [*range(9), -1]
