"""Which quantized values cost the outputs their accuracy."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from torch import nn

from torch_ir import attribute, extract_ir, parse
from torch_ir.errors import InvalidIRError
from torch_ir.ir import IR, DType, OpNode, TensorMeta
from torch_ir.ir.builder import with_inputs

LIBRARY = "quantized_decomposed"


def quantized(ir: IR, names, scales) -> IR:
    """A program with a pair behind each of some nodes."""
    nodes, values = [], {}
    for node in ir.nodes:
        nodes.append(with_inputs(node, values))
        if node.name not in names:
            continue
        meta = node.outputs[0]
        attrs = {"scale": scales[node.name], "zero_point": 0, "quant_min": -128, "quant_max": 127}
        attrs["dtype"] = DType("int8")
        codes = TensorMeta(f"q_{node.name}", meta.shape, "int8", f"q_{node.name}")
        back = TensorMeta(f"d_{node.name}", meta.shape, meta.dtype, f"d_{node.name}")
        for op, taken, made in (("quantize", meta, codes), ("dequantize", codes, back)):
            op_type = f"{LIBRARY}.{op}_per_tensor.default"
            nodes.append(OpNode(made.name, op_type, [taken], [made], attrs, {"input": 0}))
        values[meta.name] = back
    outputs = [values.get(meta.name, meta) for meta in ir.graph_outputs]
    return ir.replace(nodes=nodes, graph_outputs=outputs, signature=None)


def layers(count=6, size=16):
    torch.manual_seed(count)
    parts = [part for _ in range(count) for part in (nn.Linear(size, size), nn.Tanh())]
    model = nn.Sequential(*parts, nn.Linear(size, 4)).eval()
    x = torch.randn(8, size)
    return extract_ir(model, (x,)), model.state_dict(), x


def program(steps):
    ir, weights, x = layers()
    names = [node.name for node in ir.nodes if node.op_type == "aten.linear.default"][:6]
    return quantized(ir, names, dict(zip(names, steps, strict=True))), weights, x, names


@pytest.mark.parametrize("worst", range(6))
def test_a_pair_with_a_coarse_scale_is_the_worst(worst):
    ir, weights, x, names = program([0.5 if i == worst else 0.004 for i in range(6)])
    found = attribute(ir, weights, (x,))
    assert found.rows[0].quantize == f"q_{names[worst]}"
    assert found.rows[0].node == names[worst]
    assert found.rows[0].is_measured
    assert found.runs <= 10
    assert json.loads(json.dumps(found.to_dict()))["rows"][0]["node"] == names[worst]


class Steps(nn.Module):
    """Layers before a sign, of which derivatives tell nothing, and layers behind it."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(16, 16) for _ in range(12)])

    def forward(self, x):
        for number, layer in enumerate(self.layers):
            x = torch.sign(layer(x)) if number < 6 else torch.tanh(layer(x))
        return x


@pytest.mark.parametrize("worst", range(0, 12, 2))
def test_a_coarse_pair_before_a_step_is_the_worst(worst):
    torch.manual_seed(0)
    model, x = Steps().eval(), torch.randn(8, 16)
    ir = extract_ir(model, (x,))
    names = [node.name for node in ir.nodes if node.op_type == "aten.linear.default"]
    scales = {name: 2.0 if i == worst else 0.004 for i, name in enumerate(names)}
    found = attribute(quantized(ir, names, scales), model.state_dict(), (x,))
    assert found.rows[0].node == names[worst]
    assert found.runs <= 10
    unknown = [row for row in found.rows if row.output_sqnr is None]
    assert {row.is_measured for row in unknown} <= {False}
    assert {row.node for row in unknown} <= set(names[:6])
    assert found.table().count("?") == len(unknown) > 0


def test_a_pair_that_leaves_no_number_is_the_worst_and_infinities_that_stay_are_no_noise():
    ir = parse("""ir {
      input %x: f32[4]
      input %mask: f32[4]
      %a: f32[4] = aten.mul.Tensor(%x, 2.0)
      %b: f32[4] = aten.exp.default(%a)
      %c: f32[4] = aten.log.default(%b)
      %d: f32[4] = aten.add.Tensor(%c, %mask)
      return %d
    }""")
    ir = quantized(ir, ["a", "b"], {"a": 0.01, "b": 10.0})
    x = torch.tensor([0.103, 0.222, 0.311, 0.402])
    given = x, torch.tensor([0.0, 0.0, 0.0, -torch.inf])
    found = attribute(ir, {}, given)
    assert [row.node for row in found.rows] == ["b", "a"]
    assert found.output_sqnr == found.rows[0].output_sqnr == -math.inf
    assert 20 < found.rows[1].output_sqnr < 60


def test_estimates_rank_pairs_as_single_runs_do():
    ir, weights, x = layers(count=20)
    names = [node.name for node in ir.nodes if node.op_type == "aten.linear.default"][:20]
    steps = np.random.default_rng(0).permutation(np.geomspace(0.002, 0.4, 20))
    scales = dict(zip(names, steps, strict=True))
    found = attribute(quantized(ir, names, scales), weights, (x,))
    told = {row.node: row.output_sqnr for row in found.rows}
    alone = {
        name: attribute(quantized(ir, [name], scales), weights, (x,)).output_sqnr for name in names
    }
    ranks = [np.argsort(np.argsort([kind[name] for name in names])) for kind in (told, alone)]
    assert np.corrcoef(*ranks)[0, 1] >= 0.9
    assert found.runs <= 10


def test_a_budget_is_reached_by_leaving_the_worst_in_float():
    ir, weights, x, names = program([0.3, 0.004, 0.2, 0.004, 0.004, 0.004])
    found = attribute(ir, weights, (x,), budget=35.0)
    assert found.output_sqnr < 35.0
    assert found.kept_sqnr is not None
    assert found.kept_sqnr >= 34.0
    assert (
        {f"q_{names[0]}", f"q_{names[2]}"}
        <= set(found.keep)
        < {row.quantize for row in found.rows}
    )
    assert attribute(ir, weights, (x,), budget=0.0).keep == ()


def test_more_samples_are_looked_at():
    ir, weights, x, _ = program([0.1] * 6)
    more = attribute(ir, weights, (x,), samples=[(torch.zeros_like(x),), (2 * x,)])
    assert not math.isclose(more.output_sqnr, attribute(ir, weights, (x,)).output_sqnr)
    assert more.runs <= 10


def test_a_program_without_pairs_is_refused():
    ir = parse("ir {\n  input %x: f32[2]\n  %y: f32[2] = aten.relu.default(%x)\n  return %y\n}")
    with pytest.raises(InvalidIRError) as error:
        attribute(ir, {}, (torch.ones(2),))
    assert str(error.value) == (
        "no node dequantizes what a node of the program quantizes\n"
        "Give a program that was quantized, as convert_pt2e of torchao does it."
    )
