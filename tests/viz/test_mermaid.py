import re

import pytest

from torch_ir.errors import InvalidIRError, printable
from torch_ir.ir import IR, Location, OpNode, TensorMeta
from torch_ir.viz import generate_op_distribution_pie, ir_to_mermaid
from viz.programs import branches

HOSTILE = ['a"b', "<script>", "`tick`", "#35;", "x;y", "%% c", "ünï→", "a\\n", "a\nb", "{}", "]"]


def chain(operators, modules=None, shape=(2, 3)):
    """A graph in which each node takes the one before."""
    value = TensorMeta("x", shape, "float32")
    inputs, nodes = [value], []
    for index, op_type in enumerate(operators):
        name = f"n{index}"
        made = TensorMeta(name, shape, "float32", name)
        module = modules[index] if modules else ""
        where = Location("net.py", index + 1, "code", module, "net.Layer" if module else "")
        nodes.append(OpNode(name, op_type, [value], [made], location=where))
        value = made
    return IR(nodes, inputs, [value], [])


def boxes(text):
    return re.findall(r"^    (n\d+)\[", text, re.M)


def test_every_part_of_a_small_graph_is_drawn():
    weight = TensorMeta("p_fc_weight", (4, 3), "float32")
    x, y = TensorMeta("x", ("s0", 3), "float32"), TensorMeta("y", ("s0", 4), "float32", "y")
    ir = IR(
        [OpNode("y", "aten.linear.default", [x, weight], [y])],
        [x],
        [y],
        [weight.replace(name="fc.weight")],
        {"p_fc_weight": "fc.weight"},
    )
    assert ir_to_mermaid(ir).splitlines()[1:-2] == [
        r'    i0[/"x<br/>f32[s0, 3]"/]',
        r'    w0[("fc.weight<br/>f32[4, 3]")]:::weight',
        r'    n0["linear<br/>f32[s0, 4]"]',
        r'    o0[\"output<br/>f32[s0, 4]"\]',
        '    i0 -->|"f32[s0, 3]"| n0',
        '    w0 -.->|"f32[4, 3]"| n0',
        "    n0 --> o0",
    ]
    assert "fc.weight" not in ir_to_mermaid(ir, include_weights=False)
    assert "w0" not in ir_to_mermaid(ir, include_weights=False)


def test_as_many_nodes_as_allowed_are_not_folded():
    text = ir_to_mermaid(chain(["aten.relu.default"] * 30))
    assert len(boxes(text)) == 30
    assert "folded" not in text.replace("classDef folded", "")


def test_a_large_graph_is_folded_by_module_as_deep_as_fits():
    modules = [
        f"layers.{index // 10}.{'attn' if index % 10 < 5 else 'mlp'}" for index in range(40)
    ]
    ir = chain(["aten.relu.default", "aten.sin.default"] * 20, modules)
    deep = ir_to_mermaid(ir, max_nodes=8)
    assert len(boxes(deep)) == 8
    assert (
        '    n0["layers.0.attn (Layer)<br/>5 nodes: relu x3, sin x2"]:::folded'
        in deep.splitlines()
    )
    assert (
        "40 of 40 nodes are folded by module into 8 boxes. A larger max_nodes shows more." in deep
    )
    assert '    n0 -->|"f32[2, 3]"| n1' in deep.splitlines()
    shallow = ir_to_mermaid(ir, max_nodes=7)
    assert len(boxes(shallow)) == 4
    assert '    n3["layers.3<br/>10 nodes: relu x5, sin x5"]:::folded' in shallow.splitlines()


def test_calls_above_the_folded_modules_stay_alone_while_they_fit():
    modules = ["", *["encoder.a"] * 20, "", *["encoder.b"] * 20, ""]
    text = ir_to_mermaid(chain(["aten.relu.default"] * 43, modules), max_nodes=5)
    assert len(boxes(text)) == 5
    assert "40 of 43 nodes are folded by module into 2 boxes" in text


def test_a_graph_without_modules_is_folded_by_neighborhood():
    text = ir_to_mermaid(chain(["aten.relu.default"] * 100), max_nodes=30)
    assert len(boxes(text)) == 25
    assert "100 of 100 nodes are folded into 25 boxes." in text
    assert '"4 nodes: relu x4"' in text


def test_a_folded_box_counts_its_weights():
    ir = chain(["aten.relu.default"] * 4, ["a.b"] * 4)
    weight = TensorMeta("w", (3,), "float32")
    nodes = [
        node.replace(op_type="aten.mul.Tensor", inputs=(*node.inputs, weight), operands=None)
        for node in ir.nodes
    ]
    ir = ir.replace(nodes=nodes, weights=[weight])
    assert '"a.b (Layer)<br/>4 nodes: mul.Tensor x4<br/>1 weight"' in ir_to_mermaid(ir, 1)
    assert "1 weight" not in ir_to_mermaid(ir, 1, include_weights=False)


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_can_break_the_text(name):
    value = TensorMeta(name, (1,), "float32")
    ir = IR([OpNode("y", name, [value], [TensorMeta("y", (1,), "float32", "y")])], [], [], [value])
    plain = ir.replace(
        nodes=[OpNode("y", "z", [value.replace(name="z")], ir.nodes[0].outputs)],
        weights=[value.replace(name="z")],
    )
    for draw in (ir_to_mermaid, generate_op_distribution_pie):
        coded = "".join(
            c if (c.isascii() and c.isalnum()) or c in " %]" else f"#{ord(c)};"
            for c in printable(name)
        )
        coded = coded.replace("#92;", "#92;#8203;")
        assert draw(ir) == draw(plain).replace('"z', f'"{coded}')


def test_the_pie_counts_operators_and_puts_the_rest_together():
    ir = chain(["aten.relu.default"] * 3 + ["aten.sin.default"] * 2 + ["aten.add.Tensor"])
    assert generate_op_distribution_pie(ir, top_n=1).splitlines() == [
        "pie showData",
        "    title Operator Distribution",
        '    "relu" : 3',
        '    "Others" : 3',
    ]
    assert '"add.Tensor" : 1' in generate_op_distribution_pie(ir)


def test_limits_below_one_are_refused():
    ir = chain(["aten.relu.default"])
    with pytest.raises(InvalidIRError, match=r"^max_nodes must be at least 1, got 0$"):
        ir_to_mermaid(ir, 0)
    with pytest.raises(InvalidIRError, match=r"^top_n must be at least 1, got -1$"):
        generate_op_distribution_pie(ir, -1)


def test_functions_are_subgraphs_while_there_is_room():
    drawn = ir_to_mermaid(branches())
    assert 'subgraph f0_body["yes: 2 nodes"]' in drawn
    assert "n3 -.-> f0_body" in drawn
    assert "n3 -.-> f2_body" in drawn
    assert 'subgraph f1_body["yes/inner: 1 node"]' in drawn
    assert "f0_n1 -.-> f1_body" in drawn
    assert drawn.count("subgraph ") == drawn.count("\n    end")
    ids = re.findall(r"^ *([a-z0-9_]+)\[", drawn, re.MULTILINE)
    assert len(ids) == len(set(ids))


def test_what_is_not_drawn_is_said():
    drawn = ir_to_mermaid(branches(), max_nodes=6)
    assert drawn.count("subgraph ") == 1
    assert "2 functions not drawn. A larger max_nodes shows more." in drawn
    assert "3 functions not drawn" in ir_to_mermaid(branches(), max_nodes=5)
