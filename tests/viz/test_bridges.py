import json
import re

import pytest
from click.testing import CliRunner

from torch_ir.cli import main
from torch_ir.ir import IR
from torch_ir.ir.queries import graphs
from torch_ir.viz.bridges import graphviz, model_explorer, node_data
from viz.programs import HOSTILE, branches, hostile, layers


@pytest.mark.parametrize("program", [branches, hostile, lambda: layers(3)])
def test_model_explorer_gets_every_node_with_edges_that_end(program):
    ir = program()
    document = json.loads(json.dumps(model_explorer(ir)))
    shown = document["graphs"]
    assert len(shown) == len(list(graphs(ir)))
    known = {graph["id"] for graph in shown}
    for record, (_, graph) in zip(shown, graphs(ir), strict=True):
        nodes = {node["id"]: node for node in record["nodes"]}
        assert len(nodes) == len(record["nodes"])
        ends = len(graph.graph_inputs) + len(graph.graph_outputs)
        assert len(nodes) == len(graph.nodes) + ends
        for node in nodes.values():
            for edge in node["incomingEdges"]:
                source = nodes[edge["sourceNodeId"]]
                results = {each["id"] for each in source["outputsMetadata"]}
                assert edge["sourceNodeOutputId"] in results
            assert set(node.get("subgraphIds", ())) <= known


def test_model_explorer_gets_modules_weights_and_bodies():
    nodes = model_explorer(branches())["graphs"][0]["nodes"]
    facts = {each["key"]: each["value"] for each in nodes[1]["attrs"]}
    assert facts["weight 1"] == "fc.weight f32[8, 8]"
    (call,) = [node for node in nodes if "subgraphIds" in node]
    assert call["subgraphIds"] == ["yes", "no"]
    inside = model_explorer(layers(2))["graphs"][0]["nodes"]
    assert inside[2]["namespace"] == "layers/0/attn/q"


@pytest.mark.parametrize("program", [branches, hostile, lambda: layers(300)])
def test_graphviz_has_every_node_once_and_balanced_quotes_and_braces(program):
    ir = program()
    text = graphviz(ir)
    plain = re.sub(r'"(\\.|[^"\\])*"', '""', text)
    assert plain.count("{") == plain.count("}") == 1 + plain.count("subgraph")
    made = re.findall(r"^ *(g\d+[nio]\d+) \[label", plain, re.M)
    assert (
        len(made)
        == len(set(made))
        == sum(
            len(graph.nodes) + len(graph.graph_inputs) + len(graph.graph_outputs)
            for _, graph in graphs(ir)
        )
    )
    for source, target in re.findall(r"(g\d+\w+) -> (g\d+\w+)", plain):
        assert {source, target} <= set(made)
    assert "\u202e" not in text
    assert HOSTILE not in text


def test_model_explorer_opens_our_files(tmp_path):
    pytest.importorskip("model_explorer", reason="pip install ai-edge-model-explorer")
    from model_explorer.extension_manager import ExtensionManager
    from model_explorer.utils import convert_adapter_response

    from torch_ir.viz.explorer.main import TorchIRAdapter

    ir = branches()
    ir.save(tmp_path / "m.tir")
    found = convert_adapter_response(TorchIRAdapter().convert(str(tmp_path / "m.tir"), {}))
    shown = model_explorer(IR.load(tmp_path / "m.tir"))["graphs"]
    for graph, plain in zip(found["graphs"], shown, strict=True):
        assert (graph["id"], graph["nodes"]) == (plain["id"], plain["nodes"])
    manager = ExtensionManager(["torch_ir.viz.explorer"])
    manager.load_extensions()
    assert ["tir"] in [getattr(each.metadata, "fileExts", None) for each in manager.extensions]


@pytest.mark.parametrize("program", [branches, hostile, lambda: layers(3)])
def test_node_data_name_nodes_that_model_explorer_has(program):
    ir = program()
    values = {f"{path}{node.name}": 1.5 for path, graph in graphs(ir) for node in graph.nodes}
    (data,) = node_data(ir, {"overlay": "x", "nodes": values}).values()
    for graph in model_explorer(ir)["graphs"]:
        known = {node["id"] for node in graph["nodes"] if node["id"].startswith("n")}
        assert data[graph["id"]]["results"].keys() == known


def test_node_data_are_written_by_view(tmp_path):
    branches().save(tmp_path / "m.tir")
    (tmp_path / "r.json").write_text('{"overlay": "cost", "nodes": {"linear": 2.0}}')
    args = ["view", tmp_path / "m.tir", "--overlay", tmp_path / "r.json", "-o"]
    done = CliRunner().invoke(main, [*map(str, args), str(tmp_path / "m.me-data.json")])
    assert done.exit_code == 0, done.output
    data = json.loads((tmp_path / "m.me-data.json").read_text())
    assert data["main"]["results"] == {"n0": {"value": 2.0}}
