"""plan: the arena of a program, in words, by node and as JSON."""

import pytest

PLAN = """\
Net: an arena of 32 bytes for 1 piece, aligned to 64
no arena is smaller than 32 bytes; this one is as small

most is needed during linear (aten.linear.default) at net.py:7 in fc (Linear): y = self.fc(x)
             32  at             0  %linear, %relu
"""


def test_in_words(run, ir):
    result = run("plan", "m.tir")
    assert (result.code, result.err, result.out) == (0, "", PLAN)


def test_by_node(run, ir):
    result = run("plan", "m.json", "--nodes")
    assert result.out == PLAN + (
        "\n           live  node\n"
        "             32  linear (aten.linear.default): 0+32 %linear\n"
        "             32  relu (aten.relu.default): nothing new\n"
    )


def test_options(run, ir):
    result = run("plan", "m.json", "--inputs", "--no-in-place", "--alignment", 16, "--json")
    assert (result.json["size"], result.json["alignment"]) == (64, 16)
    assert [a["name"] for a in result.json["allocations"]] == ["linear", "x", "relu"]
    assert run("plan", "m.json", "--no-outputs", "--json").json["allocations"] == []


def test_json_has_everything(run, ir):
    assert run("plan", "m.json", "--json").json == {
        "model": "Net",
        "size": 32,
        "lower_bound": 32,
        "alignment": 64,
        "peak": {
            "node": "linear",
            "location": "net.py:7 in fc (Linear): y = self.fc(x)",
            "allocations": ["linear"],
        },
        "nodes": [
            {"node": "linear", "operator": "aten.linear.default", "live": 32},
            {"node": "relu", "operator": "aten.relu.default", "live": 32},
        ],
        "allocations": [
            {
                "name": "linear",
                "node": "linear",
                "offset": 0,
                "size": 32,
                "birth": 0,
                "death": 2,
                "values": ["linear", "relu"],
            }
        ],
    }


def test_a_size_without_a_bound(run, place):
    (place / "dynamic.ir").write_text("""ir {
  symbol s0: 2..
  input %x: f32[s0]
  %y: f32[2*s0] = aten.cat.default([%x, %x])
  return %y
}
""")
    result = run("plan", "dynamic.ir")
    assert (result.code, result.out, result.err) == (
        1,
        "",
        "error: %y: the size 2*s0 has no upper bound: s0 has none\n"
        "Extract the model with a maximum for it: torch.export.Dim(NAME, max=...).\n",
    )


@pytest.mark.parametrize("value", ["0", "-4", "x"])
def test_wrong_usage(run, ir, value):
    result = run("plan", "m.json", "--alignment", value)
    assert result.code == 2
    assert "Invalid value for '--alignment'" in result.err


def test_a_plan_as_a_picture(run, place, ir):
    report = run("plan", "m.json", "--json").out
    page = run("plot", "-", stdin=report.encode()).out
    assert page.startswith("<!doctype html>")
    for name, start in (("a.html", "<!doctype"), ("a.svg", "<svg"), ("a.json", "{")):
        assert run("plot", "-", "-o", name, stdin=report.encode()).code == 0
        assert (place / name).read_text().startswith(start)
    refused = run("plot", "-", "-o", "a.png", stdin=report.encode())
    assert "a plot is .html, .svg, .json or .vl.json, not .png" in refused.err
    assert run("plot", "m.json").err.startswith("error: this does not have what a plot needs")


def test_banks(run, ir):
    result = run("plan", "m.json", "--capacity", "near=16", "--capacity", "far=64", "--json")
    assert result.json["banks"] == {"near": 0, "far": 32}
    assert result.json["allocations"][0]["bank"] == "far"
    assert run("plan", "m.json", "--capacity", "32", "--reorder").out == PLAN
    assert "far: 32 bytes" in run("plan", "m.json", "--capacity", "far=64").out


def test_a_capacity_that_is_none(run, ir):
    result = run("plan", "m.json", "--capacity", "near=much")
    assert result.code == 2
    assert "'near=much' is not BYTES, or BANK=BYTES once for each bank" in result.err
