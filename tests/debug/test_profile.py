"""Where the time goes: every node once, grouped in three ways, as a table, data and a trace."""

import json
import time

import pytest
import torch
from torch import nn

from torch_ir import compile_graph, extract_ir, parse, register_executor
from torch_ir.debug import NodeProfile, Profile, profile
from torch_ir.errors import InvalidIRError
from torch_ir.executor import unregister_executor


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(4, 8)
        self.down = nn.Linear(8, 4)

    def forward(self, x):
        return self.down(self.up(x).relu())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(100, 4)
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, ids):
        x = self.table(ids)
        for block in self.blocks:
            x = block(x)
        return x.t()


@pytest.fixture(scope="module")
def report():
    model = Net().eval()
    ids = torch.zeros(3, dtype=torch.int64)
    graph = compile_graph(extract_ir(model, (ids,)), model.state_dict())
    return profile(graph, (ids,), repeat=3)


def node(name, operator="aten.add.Tensor", module="", seconds=1e-3, flops=10, **fields):
    facts = {"location": "net.py:7", "inputs": ("f32[2]",), "outputs": ("f32[2]",)}
    facts |= {"bytes_read": 1024, "bytes_written": 512, **fields}
    return NodeProfile(
        node=name, operator=operator, module=module, seconds=seconds, flops=flops, **facts
    )


SMALL = Profile(
    model_name="Net",
    nodes=(
        node("a", module="blocks.0.up", seconds=0.001),
        node("b", "mylib.fused.default", "blocks.0", 0.004, flops=None),
        node("c", module="blocks.1", seconds=0.002),
        node("d", "mylib.other.default", "head", 0.003, flops=None),
    ),
    repeat=5,
    threads=2,
    device="cpu",
    plain_seconds=0.009,
    watched_seconds=0.011,
)


def test_every_node_with_its_types_bytes_and_operations(report):
    first, linear, relu = report.nodes[:3]
    assert [n.node for n in report.nodes] == [
        *("embedding", "linear", "relu", "linear_1", "linear_2", "relu_1", "linear_3", "t"),
    ]
    assert (first.inputs, first.outputs) == (("f32[100, 4]", "i64[3]"), ("f32[3, 4]",))
    assert (first.bytes_read, first.bytes_written, first.flops) == (48 + 24, 48, 0)
    assert (linear.bytes_read, linear.bytes_written) == (48 + 128 + 32, 96)
    assert linear.flops == 2 * 3 * 8 * 4
    assert (relu.bytes_read, relu.bytes_written, relu.flops) == (96, 96, 24)
    view = report.nodes[-1]
    assert (view.bytes_read, view.bytes_written, view.flops) == (0, 0, 0)
    assert linear.module == "blocks.0.up"
    assert linear.location.rpartition(":")[0].endswith("test_profile.py")


def test_the_medians_are_of_wall_time():
    @register_executor("aten.neg.default")
    def slow(inputs, attrs):
        time.sleep(0.03)
        return [-inputs[0]]

    try:
        ir = parse(
            'ir "N" {\n  input %x: f32[2]\n  %r: f32[2] = aten.relu.default(%x)\n'
            "  %y: f32[2] = aten.neg.default(%r)\n  return %y\n}"
        )
        measured = profile(compile_graph(ir), (torch.ones(2),), repeat=3)
    finally:
        unregister_executor("aten.neg.default")
    relu, neg = measured.nodes
    assert 0.03 <= neg.seconds < 0.3
    assert relu.seconds < neg.seconds
    assert measured.plain_seconds >= 0.03
    assert measured.watched_seconds >= measured.seconds >= 0.03
    assert measured.by_node()[0].name == "y"


def test_groups_add_up(report):
    assert sum(group.seconds for group in report.by_node()) == pytest.approx(report.seconds)
    assert sum(group.share for group in report.by_operator()) == pytest.approx(1)
    operators = {group.name: group for group in report.by_operator()}
    assert operators["aten.linear.default"].nodes == 4
    assert operators["aten.linear.default"].flops == 4 * 192
    seconds = [group.seconds for group in report.by_operator()]
    assert seconds == sorted(seconds, reverse=True)


def test_a_module_has_all_that_is_inside_it(report):
    modules = {group.name: group for group in report.by_module()}
    assert list(modules) == [
        "",
        "table",
        "blocks",
        *("blocks.0", "blocks.0.up", "blocks.0.down"),
        *("blocks.1", "blocks.1.up", "blocks.1.down"),
    ]
    assert modules[""].nodes == 8
    assert modules[""].share == pytest.approx(1)
    assert modules["blocks"].nodes == 6
    assert modules["blocks.1"].nodes == 3
    assert modules["blocks.1"].flops == 192 + 24 + 192


def test_state_and_inputs_are_as_before():
    class Writes(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(1))

        def forward(self, x):
            self.calls.add_(1)
            x.mul_(2)
            return x + self.calls

    x = torch.ones(2)
    graph = compile_graph(extract_ir(Writes(), (torch.ones(2),)), Writes().state_dict())
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    profile(graph, (x,), repeat=2)
    assert x.tolist() == [1.0, 1.0]
    assert graph.buffers["calls"].tolist() == [0.0]
    assert torch.equal(torch.rand(1), expected)


def test_the_table_by_operator():
    assert str(SMALL).splitlines() == [
        "Net: 4 nodes in 10.000 ms, on cpu with 2 threads; medians of 5 runs",
        "a whole run takes 9.000 ms, 11.000 ms when watched",
        "",
        "    time  share  nodes     read  written    FLOPs  operator",
        "4.000 ms  40.0%      1  1.0 KiB    512 B  unknown  mylib.fused.default",
        "3.000 ms  30.0%      2  2.0 KiB  1.0 KiB       20  aten.add.Tensor",
        "3.000 ms  30.0%      1  1.0 KiB    512 B  unknown  mylib.other.default",
    ]


def test_the_table_by_module_is_a_tree_and_shows_the_heaviest():
    assert SMALL.table("module", top=4).splitlines()[3:] == [
        "     time   share  nodes     read  written    FLOPs  module",
        "10.000 ms  100.0%      4  4.0 KiB  2.0 KiB     >=20  (root)",
        " 7.000 ms   70.0%      3  3.0 KiB  1.5 KiB     >=20    blocks",
        " 5.000 ms   50.0%      2  2.0 KiB  1.0 KiB     >=10      0",
        " 3.000 ms   30.0%      1  1.0 KiB    512 B  unknown    head",
        "and 2 more",
    ]


def test_the_table_by_node_names_its_operator():
    assert SMALL.table("node", top=1).splitlines()[3:] == [
        "    time  share  nodes     read  written    FLOPs  node",
        "4.000 ms  40.0%      1  1.0 KiB    512 B  unknown  b  mylib.fused.default",
        "and 3 more",
    ]


def test_unknown_groups_and_no_runs_are_errors():
    with pytest.raises(InvalidIRError) as caught:
        SMALL.table("modul")
    assert str(caught.value) == "a profile has no groups by 'modul'\nDid you mean module?"
    graph = compile_graph(parse("ir {\n  input %x: f32[2]\n  return %x\n}"))
    with pytest.raises(InvalidIRError) as caught:
        profile(graph, (torch.ones(2),), repeat=0)
    assert str(caught.value) == "a profile takes one run or more, got repeat=0"


def test_a_program_without_nodes():
    graph = compile_graph(parse("ir {\n  input %x: f32[2]\n  return %x\n}"))
    empty = profile(graph, (torch.ones(2),), repeat=1)
    assert empty.nodes == ()
    assert empty.seconds == 0
    assert str(empty).startswith("(no name): 0 nodes in 0.000 ms")
    assert [group.name for group in empty.by_module()] == [""]


def test_plain_data_has_the_groups_and_is_json(report):
    data = json.loads(json.dumps(SMALL.to_dict()))
    assert data["seconds"] == pytest.approx(0.010)
    assert data["nodes"][1] == {
        "node": "b",
        "operator": "mylib.fused.default",
        "module": "blocks.0",
        "location": "net.py:7",
        "inputs": ["f32[2]"],
        "outputs": ["f32[2]"],
        "seconds": 0.004,
        "bytes_read": 1024,
        "bytes_written": 512,
        "flops": None,
    }
    assert [group["name"] for group in data["modules"]][:3] == ["", "blocks", "blocks.0"]
    assert data["operators"][1]["flops"] == 20


def test_the_trace_nests_nodes_in_modules():
    trace = json.loads(json.dumps(SMALL.to_chrome_trace()))
    slices = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    spans = {event["name"]: (event["ts"], event["dur"]) for event in slices}
    assert spans["mylib.fused.default"] == (1000.0, 4000.0)
    assert spans["blocks.0.up"] == (0.0, 1000.0)
    assert spans["blocks.0"] == (0.0, 5000.0)
    assert spans["blocks.1"] == (5000.0, 2000.0)
    assert spans["blocks"] == (0.0, 7000.0)
    assert spans["head"] == (7000.0, 3000.0)
    node = next(event for event in slices if event["name"] == "mylib.fused.default")
    assert node["cat"] == "node"
    assert node["args"] == {
        "node": "b",
        "operator": "mylib.fused.default",
        "inputs": ["f32[2]"],
        "outputs": ["f32[2]"],
        "source": "net.py:7",
        "bytes_read": 1024,
        "bytes_written": 512,
        "flops": None,
    }


def test_the_trace_lists_what_is_around_before_what_is_inside(report):
    around = []
    for event in report.to_chrome_trace()["traceEvents"][2:]:
        start = round(event["ts"] * 1000)
        around = [end for end in around if end > start]
        if event["ph"] == "X":
            end = start + round(event["dur"] * 1000)
            assert not around or end <= around[-1]
            around.append(end)
            last = event
        elif event["ph"] == "f":
            assert last["cat"] == "node"
            assert last["ts"] == event["ts"]


def test_arrows_in_the_trace_go_from_a_node_to_those_that_take_its_results(report):
    assert [node.sources for node in report.nodes[:3]] == [(), ("embedding",), ("linear",)]
    events = report.to_chrome_trace()["traceEvents"]
    slices = {e["args"]["node"]: e for e in events if e.get("cat") == "node"}
    flows = {}
    for event in events:
        if event.get("cat") == "value":
            flows.setdefault(event["id"], {})[event["ph"]] = event["ts"]
    ends = [(flow["s"], flow["f"]) for flow in flows.values()]
    assert len(ends) == sum(len(node.sources) for node in report.nodes)
    first, second = slices["embedding"], slices["linear"]
    assert first["ts"] <= ends[0][0] < first["ts"] + first["dur"] or first["dur"] == 0
    assert ends[0][1] == second["ts"]
