import json
import re

import pytest

from torch_ir.ir.queries import graphs
from torch_ir.viz.bridges import graphviz, model_explorer
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
