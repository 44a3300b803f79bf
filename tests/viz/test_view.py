import base64
import json
import re
import zlib

from torch_ir.ir.queries import graphs
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
