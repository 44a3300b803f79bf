"""Golden values: exact copies of what every node made, whole in a file or not at all."""

import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

from torch_ir import SerializationError, compile_graph, extract_ir, parse
from torch_ir.debug import capture
from torch_ir.errors import InvalidIRError

CHAIN = """
ir "Chain" {
  input %x: f32[2, 3]
  %relu: f32[2, 3] = aten.relu.default(%x)
  %neg: f32[2, 3] = aten.neg.default(%relu)
  %neg_1: f32[2, 3] = aten.neg.default(%neg)
  return %neg_1
}
"""


def run(text, *inputs, patterns=()):
    return capture(compile_graph(parse(text)), inputs, patterns)


def test_every_value_by_name_in_program_order_inputs_first():
    x = torch.randn(2, 3)
    captured = run(CHAIN, x)
    assert list(captured.values) == ["x", "relu", "neg", "neg_1"]
    expected = [x, x.relu(), -x.relu(), x.relu()]
    assert all(map(torch.equal, captured.values.values(), expected))
    assert torch.equal(captured.outputs[0], x.relu())
    assert captured.operators == {
        "relu": "aten.relu.default",
        "neg": "aten.neg.default",
        "neg_1": "aten.neg.default",
    }


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        (["relu"], ["relu"]),
        (["neg*"], ["neg", "neg_1"]),
        (["neg_?", "relu"], ["relu", "neg_1"]),
        (["aten.neg.default"], ["neg", "neg_1"]),
        (["aten.r*"], ["relu"]),
    ],
)
def test_chosen_values_by_name_or_operator(patterns, names):
    assert list(run(CHAIN, torch.ones(2, 3), patterns=patterns).values) == ["x", *names]


def test_a_pattern_that_matches_nothing_is_an_error_before_anything_runs():
    with pytest.raises(InvalidIRError) as caught:
        run(CHAIN, "no tensor at all", patterns=["neg", "rellu"])
    assert str(caught.value) == ("no value, node or operator matches 'rellu'\nDid you mean relu?")


class Split(nn.Module):
    def forward(self, x):
        first, second = x.split_with_sizes([1, 3])
        return first.sum() + second.sum()


def test_the_outputs_of_a_node_with_several_are_kept_by_their_own_names():
    x = torch.arange(8.0).reshape(4, 2)
    ir = extract_ir(Split(), (x,))
    node = next(node for node in ir.nodes if len(node.outputs) == 2)
    values = capture(compile_graph(ir), (x,), [node.name]).values
    names = [meta.name for meta in node.outputs]
    assert list(values) == [ir.graph_inputs[0].name, *names]
    assert torch.equal(values[names[1]], x[1:])


class WritesLater(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("state", torch.zeros(3))

    def forward(self, x):
        y = x * 2
        view = y[1:]
        view.add_(1)
        self.state.add_(x)
        return y + self.state


def test_values_are_copies_as_they_were_when_they_were_made():
    ir = extract_ir(WritesLater(), (torch.ones(3),))
    graph = compile_graph(ir, WritesLater().state_dict())
    x = torch.tensor([1.0, 2.0, 3.0])
    captured = capture(graph, (x,))
    first = next(n.outputs[0].name for n in ir.nodes if n.op_type.startswith("aten.mul"))
    assert captured.values[first].tolist() == [2.0, 4.0, 6.0]
    assert captured.outputs[0].tolist() == [3.0, 7.0, 10.0]
    assert graph.buffers["state"].tolist() == [1.0, 2.0, 3.0]


class Kinds(nn.Module):
    def forward(self, x):
        half = x.to(torch.bfloat16)
        flags = x > 0
        scalar = x.sum()
        empty = x[:0] * 2
        turned = (x * 3).t()
        wide = x[:1].expand(4, 3) + 0
        return half, flags, scalar, empty, turned, wide


def test_every_kind_of_tensor_comes_back_exactly_from_the_file(tmp_path):
    x = torch.tensor([[1.5, -0.0, float("nan")], [float("inf"), 1e-40, -2.0]])
    graph = compile_graph(extract_ir(Kinds(), (x,)))
    captured = capture(graph, (x,))
    captured.save(tmp_path / "golden.safetensors")
    loaded = load_file(tmp_path / "golden.safetensors")
    every = {graph.ir.graph_inputs[0].name: x, **graph.eval_all((x,))}
    assert set(loaded) == set(every)
    for name, value in every.items():
        assert loaded[name].dtype == value.dtype
        assert loaded[name].shape == value.shape
        assert loaded[name].is_contiguous()
        assert bits(loaded[name]) == bits(value), name
    kinds = {(t.dtype, tuple(t.shape)) for t in loaded.values()}
    assert {(torch.bfloat16, (2, 3)), (torch.bool, (2, 3)), (torch.float32, ())} <= kinds
    assert {(torch.float32, (0, 3)), (torch.float32, (3, 2)), (torch.float32, (4, 3))} <= kinds


def bits(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).tolist()


def test_the_file_says_which_model_and_which_operators(tmp_path):
    run(CHAIN, torch.ones(2, 3), patterns=["neg*"]).save(tmp_path / "g.safetensors")
    with safe_open(tmp_path / "g.safetensors", framework="pt") as file:
        metadata = file.metadata()
    assert metadata["model_name"] == "Chain"
    assert json.loads(metadata["operators"]) == {
        "neg": "aten.neg.default",
        "neg_1": "aten.neg.default",
    }


COMPLEX = """
ir "Complex" {
  input %x: c128[2]
  %y: c128[2] = aten.neg.default(%x)
  return %y
}
"""


def test_what_the_format_cannot_hold_is_named_and_nothing_is_written(tmp_path):
    captured = run(COMPLEX, torch.ones(2, dtype=torch.complex128))
    path = tmp_path / "g.safetensors"
    path.write_bytes(b"old")
    with pytest.raises(SerializationError) as caught:
        captured.save(path)
    assert str(caught.value) == (
        "the value 'x' is complex128, which a safetensors file cannot hold\nChoose other values."
    )
    assert path.read_bytes() == b"old"


def test_a_conjugate_view_is_stored_by_its_values(tmp_path):
    text = COMPLEX.replace("c128", "c64").replace("aten.neg", "aten.conj")
    x = torch.tensor([1 + 2j, 3 - 4j])
    run(text, x).save(tmp_path / "g.safetensors")
    assert load_file(tmp_path / "g.safetensors")["y"].tolist() == x.conj().tolist()


def test_a_graph_without_a_listener_says_nothing_of_listeners():
    source = compile_graph(parse(CHAIN)).source
    assert "aten.neg.default" in source
    assert "will_run" not in source
    assert "did_run" not in source
