"""Programs that are made by hand, their messages, and constants as tensors."""

import json

import pytest
import torch
from torch import nn

import torch_ir
from torch_ir import IR, Constant, IRExecutor, OpNode, TensorMeta, constants_of, execute_ir


def relu():
    x, y = TensorMeta("x", (1, 3), "float32"), TensorMeta("relu", (1, 3), "float32")
    node = OpNode("relu", "aten.relu.default", [x], [y])
    return IR([node], [x], [y], [], model_name="hand", pytorch_version="2")


def top(given=("b", None, 0)):
    """Two results of one node, of which another takes the second."""
    x, a = TensorMeta("x", (2, 3), "float32"), TensorMeta("a", (2,), "float32")
    b, z = TensorMeta("b", (2,), "int64"), TensorMeta("z", (2,), "int64")
    name, producer, position = given
    taken = TensorMeta(name, (2,), "int64", producer, position)
    first = OpNode("top", "aten.max.dim", [x], [a, b], {"dim": 1})
    return IR([first, OpNode("z", "aten.neg.default", [taken], [z])], [x], [a, z], [])


@pytest.mark.parametrize("make", [relu, top])
def test_a_program_whose_values_name_no_producer_runs_and_comes_back_equal(make, tmp_path):
    ir = make()
    assert ir.check() == ()
    assert IR.from_dict(json.loads(json.dumps(ir.to_dict()))) == ir
    assert torch_ir.parse(str(ir)) == ir
    for name in ("p.json", "p.tir"):
        ir.save(tmp_path / name)
        assert torch_ir.load_ir(tmp_path / name) == ir
    x = torch.randn(ir.graph_inputs[0].shape)
    expected = (x.relu(),) if make is relu else (x.max(1).values, -x.max(1).indices)
    for got, wanted in zip(execute_ir(ir, (x,), weights={}), expected, strict=True):
        assert torch.equal(got, wanted)


def test_results_of_one_node_count_by_their_position():
    (first, second), (taken,) = top().nodes[0].outputs, top().nodes[1].inputs
    assert (first.producer_node, first.producer_output_idx) == ("top", 0)
    assert (second.producer_node, second.producer_output_idx) == ("top", 1)
    assert taken == second
    assert top(("b", "top", 1)) == top()


def test_the_name_of_another_node_is_a_finding():
    assert top(("b", "z", 0)).check() != ()
    ir = relu()
    (node,) = ir.nodes
    other = node.outputs[0].replace(producer_node="tanh")
    found = ir.replace(nodes=[node.replace(outputs=[other])]).check()
    assert "wrong-producer" in {finding.code for finding in found}


def test_an_input_keeps_its_name_where_a_node_makes_it_once_more():
    x = TensorMeta("x", (2,), "float32")
    ir = IR([OpNode("x", "aten.relu.default", [x], [x])], [x], [x], [])
    assert ir.graph_outputs[0].producer_node is None
    assert "duplicate-value" in {finding.code for finding in ir.check()}


def test_constants_are_tensors_to_torch():
    for dtype in (torch.float32, torch.bfloat16, torch.bool, torch.complex64, torch.int8):
        tensor = torch.tensor([[1, 0], [3, 4]]).to(dtype)
        constant = Constant.from_torch(tensor)
        assert torch.equal(constant, tensor)
        assert constant.torch().dtype == dtype
        assert constant.torch() is not constant.torch()
        assert torch.equal(torch.cat([constant, tensor]), torch.cat([tensor, tensor]))
    table = Constant.from_list([[1, 2], [3, 4]], "int64")
    turned = table.view_of("table", (2, 2), strides=(1, 2))
    assert torch.equal(turned, table.torch().t())


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.inner.register_buffer("scale", torch.rand(2), persistent=False)
        self.inner.shift = torch.rand(2)

    def forward(self, x):
        return self.inner(x) * self.inner.scale + self.inner.shift


def test_a_program_from_meta_takes_the_constants_of_the_real_model():
    model, x = Scaled(), torch.randn(3, 2)
    assert set(constants_of(model)) == {"inner.scale", "inner.shift"}
    with torch.device("meta"):
        ir = torch_ir.extract_ir(Scaled(), (torch.empty(3, 2),))
    executor = IRExecutor(ir, model.state_dict(), constants_of(model))
    assert torch.equal(executor(x), model(x))


def test_an_archive_may_hold_the_weights(tmp_path):
    model, x = nn.Linear(3, 2), torch.randn(1, 3)
    torch_ir.extract_ir(model, (x,)).save(tmp_path / "m.tir", weights=model.state_dict())
    weights = torch_ir.load_weights(tmp_path / "m.tir")
    assert torch.equal(IRExecutor(torch_ir.load_ir(tmp_path / "m.tir"), weights)(x), model(x))
