"""Programs for other viewers: the JSON of Model Explorer, and Graphviz' text form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from torch_ir.errors import printable
from torch_ir.ir import IR, OpNode, TensorMeta
from torch_ir.ir.node import module_of, source_place
from torch_ir.ir.queries import graphs
from torch_ir.ir.tensor import type_text
from torch_ir.ir.text.value_text import spell_value
from torch_ir.viz.document import LONGEST_TEXT
from torch_ir.viz.fold import short_operator
from torch_ir.viz.hierarchy import ModuleGroup, hierarchy
from torch_ir.viz.overlays import numbered, overlays_of, values_by_path

INPUTS, OUTPUTS = "Inputs", "Outputs"
"""Where Model Explorer shows what a graph takes and gives."""


def model_explorer(ir: IR) -> dict[str, Any]:
    """Return the program as Model Explorer reads it from JSON: a graph for each function.

    Namespaces are module paths; a call opens the graphs of its functions. Inputs and outputs of a
    graph are nodes of their own, weights are attributes of the nodes that take them.

    Example:
        >>> x, y = TensorMeta("x", (2,), "float32"), TensorMeta("y", (2,), "float32", "y")
        >>> found = model_explorer(IR([OpNode("y", "aten.relu.default", [x], [y])], [x], [y], []))
        >>> [node["label"] for node in found["graphs"][0]["nodes"]]
        ['x', 'relu', 'y']
    """
    return {
        "label": printable(ir.model_name) or "program",
        "graphs": [
            {"id": _graph_id(path), "nodes": list(_explorer_nodes(path, graph))}
            for path, graph in graphs(ir)
        ],
    }


def _graph_id(path: str) -> str:
    return printable(path.rstrip("/")) or "main"


def _explorer_nodes(path: str, ir: IR) -> Iterator[dict[str, Any]]:
    made = {
        meta.name: (f"n{at}", k)
        for at, n in enumerate(ir.nodes)
        for k, meta in enumerate(n.outputs)
    }
    for at, meta in enumerate(ir.graph_inputs):
        made.setdefault(meta.name, (f"i{at}", 0))
        yield _explorer_node(f"i{at}", meta.name, INPUTS, {}, [], [meta])
    external = ir.external_values()
    for at, node in enumerate(ir.nodes):
        attributes = _facts(node)
        edges: list[dict[str, str]] = []
        for slot, meta in enumerate(node.inputs):
            if meta.name in made:
                edges.append(_edge(made[meta.name], slot))
            elif meta.name in external:
                attributes[f"weight {slot}"] = f"{external[meta.name][0]} {type_text(meta)}"
        module = module_of(node).replace(".", "/")
        label = short_operator(node.op_type)
        entry = _explorer_node(f"n{at}", label, module, attributes, edges, node.outputs)
        called = [_graph_id(path + name) for name in node.functions if name in ir.functions]
        yield {**entry, "subgraphIds": called} if called else entry
    for at, meta in enumerate(ir.graph_outputs):
        edges = [_edge(made[meta.name], 0)] if meta.name in made else []
        yield _explorer_node(f"o{at}", meta.name, OUTPUTS, {}, edges, [])


def _edge(source: tuple[str, int], slot: int) -> dict[str, str]:
    node, output = source
    return {
        "sourceNodeId": node,
        "sourceNodeOutputId": str(output),
        "targetNodeInputId": str(slot),
    }


def _explorer_node(
    name: str,
    label: str,
    namespace: str,
    attributes: dict[str, str],
    edges: list[dict[str, str]],
    results: Sequence[TensorMeta],
) -> dict[str, Any]:
    return {
        "id": name,
        "label": printable(label),
        "namespace": printable(namespace),
        "attrs": [{"key": printable(k), "value": printable(v)} for k, v in attributes.items()],
        "incomingEdges": edges,
        "outputsMetadata": [
            {
                "id": str(at),
                "attrs": [
                    {"key": "name", "value": printable(meta.name)},
                    {"key": "tensor_shape", "value": type_text(meta)},
                ],
            }
            for at, meta in enumerate(results)
        ],
    }


def _facts(node: OpNode) -> dict[str, str]:
    facts = {"node": node.name, "operator": node.op_type}
    facts |= {name: spell_value(node.attrs[name])[:LONGEST_TEXT] for name in node.attrs}
    if node.location is not None and (place := source_place(node)):
        facts |= {"source": place, "code": node.location.code[:LONGEST_TEXT]}
    return facts


def node_data(ir: IR, report: object) -> dict[str, Any]:
    """Return what a report says of nodes as Model Explorer reads it: node data for each graph.

    Args:
        ir: The program that the report is of.
        report: What :func:`torch_ir.viz.overlays.overlays_of` reads; each column of it is a list.

    Raises:
        InvalidIRError: It says nothing of nodes, or names none of the program.

    Example:
        >>> x, y = TensorMeta("x", (2,), "float32"), TensorMeta("y", (2,), "float32", "y")
        >>> ir = IR([OpNode("y", "aten.relu.default", [x], [y])], [x], [y], [])
        >>> node_data(ir, {"nodes": [{"node": "y", "seconds": 0.5}]})["time"]["main"]["results"]
        {'n0': {'value': 0.5}}
    """
    found: dict[str, Any] = {}
    for overlay in overlays_of(report):
        numbered(overlay, ir, 0)
        values = values_by_path(overlay, ir)
        unit = f" ({overlay.unit})" if overlay.unit else ""
        found[printable(overlay.name)] = {
            _graph_id(path): {
                "name": printable(f"{overlay.name}{unit}"),
                "results": {
                    f"n{at}": {"value": values[path + node.name]}
                    for at, node in enumerate(graph.nodes)
                    if path + node.name in values
                },
                "gradient": [{"stop": 0, "bgColor": "#ffffff"}, {"stop": 1, "bgColor": "#e15759"}],
            }
            for path, graph in graphs(ir)
        }
    return found


# -- Graphviz -------------------------------------------------------------------------------------


def graphviz(ir: IR) -> str:
    r"""Return the program in Graphviz' text form: modules and functions as clusters, all nodes.

    Example:
        >>> x, y = TensorMeta("x", (2,), "float32"), TensorMeta("y", (2,), "float32", "y")
        >>> print(graphviz(IR([OpNode("y", "aten.relu.default", [x], [y])], [x], [y], [])))
        digraph {
          node [shape=box, style=rounded, fontname="sans-serif"];
          g0i0 [label="x\nf32[2]", shape=oval];
          g0n0 [label="relu\nf32[2]"];
          g0o0 [label="y", shape=oval];
          g0i0 -> g0n0;
          g0n0 -> g0o0;
        }
    """
    lines = ["digraph {", '  node [shape=box, style=rounded, fontname="sans-serif"];']
    found = dict(graphs(ir))
    numbers = {path: number for number, path in enumerate(found)}
    for path, graph in found.items():
        start = f"g{numbers[path]}"
        body = [*_ends(graph.graph_inputs, f"{start}i", types=True)]
        body += _clusters(hierarchy(graph), graph, start, start, "")
        body += [*_ends(graph.graph_outputs, f"{start}o", types=False), *_flows(graph, start)]
        if path:
            name = _quoted(path.rstrip("/"))
            body = [f"subgraph cluster_{start} {{", f"  label={name};", *_indented(body), "}"]
        lines += _indented(body)
        for at, node in enumerate(graph.nodes):
            for inner in [f"{path}{name}/" for name in node.functions if name in graph.functions]:
                end = "i" if found[inner].graph_inputs else "n"
                if found[inner].graph_inputs or found[inner].nodes:
                    lines.append(f"  {start}n{at} -> g{numbers[inner]}{end}0 [style=dashed];")
    return "\n".join([*lines, "}"])


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _ends(metas: Sequence[TensorMeta], name: str, *, types: bool) -> Iterator[str]:
    for at, meta in enumerate(metas):
        label = _quoted(meta.name, *([type_text(meta)] if types else []))
        yield f"{name}{at} [label={label}, shape=oval];"


def _clusters(group: ModuleGroup, ir: IR, start: str, cluster: str, indent: str) -> Iterator[str]:
    for number, member in enumerate(group.members):
        if isinstance(member, int):
            node = ir.nodes[member]
            types = [type_text(meta) for meta in node.outputs[:3]]
            label = _quoted(short_operator(node.op_type), *types)
            yield f"{indent}{start}n{member} [label={label}];"
        elif member.kind == "part":
            yield from _clusters(member, ir, start, f"{cluster}_{number}", indent)
        else:
            yield f"{indent}subgraph cluster_{cluster}_{number} {{"
            yield f"{indent}  label={_quoted(member.label)};"
            yield from _clusters(member, ir, start, f"{cluster}_{number}", f"{indent}  ")
            yield f"{indent}}}"


def _flows(ir: IR, start: str) -> Iterator[str]:
    made = {meta.name: f"{start}n{at}" for at, n in enumerate(ir.nodes) for meta in n.outputs}
    for at, meta in enumerate(ir.graph_inputs):
        made.setdefault(meta.name, f"{start}i{at}")
    for at, node in enumerate(ir.nodes):
        for name in dict.fromkeys(meta.name for meta in node.inputs):
            if name in made:
                yield f"{made[name]} -> {start}n{at};"
    for at, meta in enumerate(ir.graph_outputs):
        if meta.name in made:
            yield f"{made[meta.name]} -> {start}o{at};"


def _quoted(*lines: str) -> str:
    """A label in Graphviz' quotes, in which backslashes, quotes and ampersands are marks."""
    marks = {"\\": r"\\", '"': r"\"", "&": "&amp;"}
    texts = ["".join([marks.get(letter, letter) for letter in printable(line)]) for line in lines]
    return '"' + "\\n".join(texts) + '"'
