"""A backend is judged delegate by delegate, and the node at which it goes wrong is named."""

import pytest
import torch
from torch import nn

import torch_ir
from torch_ir import compile_graph, extract_ir, validate
from torch_ir.backends import (
    SUPPORTED,
    DelegateBackend,
)
from torch_ir.passes import functionalize


class Faulty(DelegateBackend):
    """Runs what it takes with torch, node by node, and changes what a node makes.

    Args:
        node: The node whose values are changed; None for every result of a body.
        change: Makes another value of one.
        fused: Whether it does so only in a body of several nodes.
        refused: How many nodes a body has that is not compiled.
    """

    name = "faulty"

    def __init__(self, node=None, change=None, fused=False, refused=()):
        self.node, self.change, self.fused, self.refused = node, change, fused, refused
        self.compiled = []

    def supports(self, node, ir):
        return SUPPORTED

    def compile(self, ir, payload):
        if len(ir.nodes) in self.refused:
            raise ValueError("no such body")
        self.compiled.append(len(ir.nodes))
        graph = compile_graph(ir.replace(signature=None))
        sizes = [dim.text for dim in _symbols(ir)]

        def run(*given):
            values = iter(given)
            tensors = [
                payload[m.name] if m.name in payload else next(values) for m in ir.graph_inputs
            ]
            if self.fused and len(ir.nodes) == 1:
                return graph.run(tensors, dict(zip(sizes, values, strict=True)))[0]
            return self._changed(ir, tensors, dict(zip(sizes, values, strict=True)))

        return run

    def _changed(self, ir, tensors, symbols):
        known = dict(zip(ir.input_names, tensors, strict=True))
        for node in ir.nodes:
            part = torch_ir.ir.builder.subgraph(ir, [node], node.outputs)
            given = [known[meta.name] for meta in part.graph_inputs]
            made = compile_graph(part).run(given, symbols)[0]
            is_wrong = self.change is not None and self.node in (node.name, None)
            known.update(
                (meta.name, self.change(tensor) if is_wrong else tensor)
                for meta, tensor in zip(node.outputs, made, strict=True)
            )
        return [known[meta.name] for meta in ir.graph_outputs]


def _symbols(ir):
    from torch_ir.ir import ValueLeaf
    from torch_ir.ir.tree import leaves

    found = leaves(ir.signature.inputs) if ir.signature is not None else ()
    return [leaf.value for leaf in found if isinstance(leaf, ValueLeaf)]


def wrong(tensor):
    """A value with one element that is off."""
    if not tensor.numel():
        return tensor
    made = tensor.clone(memory_format=torch.contiguous_format)
    first = made.view(-1)[0]
    made.view(-1)[0] = ~first if made.dtype == torch.bool else first + 1 + abs(first)
    return made


def one_unit_off(tensor):
    if not tensor.is_floating_point():
        return tensor
    return torch.nextafter(tensor, torch.full_like(tensor, float("inf")))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 6)
        self.norm = nn.LayerNorm(6)

    def forward(self, x):
        y = self.second(torch.tanh(self.first(x)))
        return self.norm(x + y), y.sum()


@pytest.fixture(scope="module")
def block():
    torch.manual_seed(0)
    model, x = Block().eval(), torch.randn(3, 6)
    return functionalize(extract_ir(model, (x,))), model.state_dict(), (x,)


@pytest.mark.parametrize("mode", ["isolated", "accumulated"])
@pytest.mark.parametrize("fused", [False, True])
def test_each_node_wrong_in_turn(block, mode, fused):
    ir, weights, inputs = block
    for node in ir.nodes:
        report = validate(ir, weights, inputs, backend=Faulty(node.name, wrong, fused), mode=mode)
        assert report.verdict == "disagree"
        assert {d.node for d in report.divergences} == {node.name}
        assert report.first.location == str(node.location)
        assert report.first.delegate == "faulty_0"
        assert "in the delegate 'faulty_0'" in str(report)


@pytest.mark.parametrize("mode", ["isolated", "accumulated"])
@pytest.mark.parametrize("change", [None, one_unit_off])
def test_a_right_backend_agrees(block, mode, change):
    ir, weights, inputs = block
    report = validate(ir, weights, inputs, backend=Faulty(None, change), mode=mode)
    assert report.verdict == "agree", str(report)
    assert report.run_by_torch == {}
