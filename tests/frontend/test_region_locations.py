"""Layers that are traced once have the source lines of flat extraction, whoever wrote them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from torch_ir import extract_ir, parse
from torch_ir.passes import inline_functions, outline


def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)


class Users(nn.Module):
    """Calls layers of torch alone, from two lines of the user's."""

    def __init__(self):
        super().__init__()
        self.first, self.second = encoder(), encoder()

    def forward(self, x):
        y = self.first(x)
        return self.second(y.sin())


class Scoped(nn.Module):
    """A layer with regions, for which torch records no line."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            y = self.fc(x)
        with torch.no_grad():
            z = y.float().sin().cos()
        return x + z


def places(ir):
    return [(node.op_type, node.location) for node in inline_functions(ir).nodes]


@pytest.mark.parametrize(
    "model",
    [
        Users(),
        encoder(),
        nn.Sequential(Users(), encoder()),
        nn.Sequential(Scoped(), Scoped(), Scoped()),
    ],
    ids=["lines of the user", "no line of the user", "both", "regions"],
)
def test_layers_of_torch_have_the_lines_of_flat_extraction(model):
    model, x = model.eval(), torch.randn(1, 3, 8)
    flat = extract_ir(model, (x,))
    regions = extract_ir(model, (x,), regions="auto")
    assert len(regions.nodes) < len(flat.nodes)
    assert places(flat) == places(regions) == places(outline(flat)) == places(outline(regions))
    assert parse(str(regions)) == regions
    assert all(node.location.file for _, _, node in flat.walk())


def test_a_node_without_a_line_has_that_of_its_call():
    ir = parse("""ir {
  func &layer "layer" {
    input %a: f32[2]
    %sin: f32[2] = aten.sin.default(%a)  # in inner (Sine)
    %cos: f32[2] = aten.cos.default(%sin)  # own.py:7 in inner (Sine): return y.cos()
    return %cos
  }
  input %x: f32[2]
  %y: f32[2] = higher_order.invoke_subgraph(operands=[%x], identifier="layer", subgraph=&layer)  # net.py:3 in outer (Net): y = f(x)
  return %y
}""")  # noqa: E501  # the text of a program has long lines
    sine, cosine = inline_functions(ir).nodes
    assert str(sine.location) == "net.py:3 in inner (Sine): y = f(x)"
    assert str(cosine.location) == "own.py:7 in inner (Sine): return y.cos()"
