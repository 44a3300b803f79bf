from html.parser import HTMLParser

from torch_ir.ir import IR, Location, OpNode, TensorMeta
from torch_ir.viz.html import ir_html


class Outline(HTMLParser):
    """What a browser would make of the page: tags in order, and the text."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.open, self.text = [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def graph(*modules, op_type="aten.relu.default", name="n"):
    x = TensorMeta("x", (2,), "float32")
    nodes = [
        OpNode(
            f"{name}{index}",
            op_type,
            [x],
            [TensorMeta(f"{name}{index}", (2,), "float32", f"{name}{index}")],
            location=Location("net.py", index, "y = relu(x)", module),
        )
        for index, module in enumerate(modules)
    ]
    return IR(nodes, [x], [], [], model_name="Net")


def test_nodes_stand_in_program_order_in_sections_by_module():
    outline = Outline(ir_html(graph("", "layers.0", "layers.0", "layers.1", "")))
    assert outline.open == []
    summaries = [text for text in outline.text if text.startswith("layers")]
    assert summaries == ["layers: 3 nodes", "layers.0: 2 nodes", "layers.1: 1 node"]
    results = [text for text in outline.text if text.startswith("%n")]
    assert results == [f"%n{index}: f32[2]" for index in range(5)]


def test_a_notebook_gets_it():
    ir = graph("")
    assert ir._repr_html_() == ir_html(ir)


def test_all_text_is_escaped():
    ir = graph("<b>.x", op_type="my::<script>", name="<img src=x>").replace(model_name="<i>")
    outline = Outline(ir_html(ir))
    assert not {"script", "img", "i"} & set(outline.tags)
    assert outline.tags.count("b") == 1
    assert "my::<script>" in outline.text


def test_a_very_deep_module_path_is_shown_too():
    outline = Outline(ir_html(graph(".".join(["m"] * 5000))))
    assert outline.tags.count("details") == 16
    assert "%n0: f32[2]" in outline.text
