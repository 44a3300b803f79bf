"""Failing programs made small: the same failure, few nodes, few elements."""

import json
import random
import subprocess
import sys

import pytest
import torch
from torch import nn

from torch_ir import IR, compare, decompose, extract_ir, parse, reduce
from torch_ir.debug.comparing.sources import TorchSource
from torch_ir.errors import InvalidIRError
from torch_ir.executor import IRExecutor


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])
        self.norm = nn.LayerNorm(8)

    def forward(self, x):
        for layer in self.layers:
            x = self.norm(torch.relu(layer(x)) + x).view(2, 3, 2, 4).transpose(1, 2)
            x = torch.softmax(x.reshape(2, 3, 8), -1) * 2
        return x


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    model, inputs = Net().eval(), (torch.randn(2, 3, 8),)
    return decompose(extract_ir(model, inputs)), dict(model.state_dict()), inputs


def operators_fail(*wanted):
    """Fails where all of some operators are there, in this order."""

    def oracle(ir, weights, inputs):
        assert ir.check() == ()
        assert len(inputs) == len(ir.graph_inputs)
        for meta, tensor in zip(ir.graph_inputs, inputs, strict=True):
            assert tuple(tensor.shape) == meta.shape
        found = iter([node.op_type for node in ir.nodes])
        return f"fails at {wanted[-1]}" if all(name in found for name in wanted) else None

    return oracle


def test_a_failure_of_one_operator_becomes_one_node_with_few_elements(net):
    ir, weights, inputs = net
    for op_type in sorted({node.op_type for node in ir.nodes}):
        found = reduce(ir, weights, inputs, operators_fail(op_type))
        assert [node.op_type for node in found.ir.nodes] == [op_type]
        assert found.failure == f"fails at {op_type}"
        assert found.elements <= max(16, found.elements_before // 8)
        assert found.is_finished


def test_a_failure_of_several_nodes_keeps_them_alone(net):
    ir, weights, inputs = net
    names = [node.op_type for node in ir.nodes]
    rng = random.Random(0)
    for _ in range(8):
        first, second = sorted(rng.sample(range(len(names)), 2))
        found = reduce(ir, weights, inputs, operators_fail(names[first], names[second]))
        assert [node.op_type for node in found.ir.nodes] == [names[first], names[second]]


def test_the_same_failure_is_kept_and_not_another(net):
    ir, weights, inputs = net

    def oracle(ir, weights, inputs):
        kinds = [node.op_type for node in ir.nodes]
        if "aten._softmax.default" in kinds:
            return "softmax"
        return "relu" if "aten.relu.default" in kinds else None

    found = reduce(ir, weights, inputs, oracle)
    assert found.failure == "softmax"
    assert [node.op_type for node in found.ir.nodes] == ["aten._softmax.default"]


def test_a_comparison_is_an_oracle_and_the_script_fails_alone(net, tmp_path):
    ir, weights, inputs = net

    class Wrong(TorchSource):
        pass

    def oracle(ir, weights, inputs):
        report = compare(ir, weights, inputs, run="eager", tolerance={})
        assert report.verdict == "agree"
        return "aten.relu.default" in {node.op_type for node in ir.nodes}

    found = reduce(ir, weights, inputs, oracle)
    found.save(tmp_path / "small")
    assert IR.load(tmp_path / "small" / "program.tir").nodes[0].op_type == "aten.relu.default"
    assert parse((tmp_path / "small" / "program.ir").read_text()) == found.ir
    made = subprocess.run(
        [sys.executable, str(tmp_path / "small" / "repro.py")],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (made.returncode, "agrees with" in made.stdout) == (0, True), made.stderr
    assert json.loads(json.dumps(found.to_dict()))["nodes"] == 1
    assert str(found).splitlines()[1] == "  it fails"
    assert "<table>" in found._repr_html_()


def test_a_program_that_does_not_fail_is_refused_and_time_ends_the_search(net):
    ir, weights, inputs = net
    with pytest.raises(InvalidIRError, match="the whole program does not fail"):
        reduce(ir, weights, inputs, lambda *_: None)
    found = reduce(ir, weights, inputs, lambda *_: "always", seconds=0.0)
    assert not found.is_finished
    assert len(found.ir.nodes) == len(ir.nodes)


def test_half_types_and_attributes_become_plain():
    ir = parse("""ir {
      input %x: bf16[4, 6]
      %a: bf16[4, 6] = aten.softmax.int(%x, 0)
      %b: bf16[4, 6] = aten.add.Tensor(%a, %x, alpha=3)
      return %b
    }""")
    found = reduce(ir, {}, (torch.randn(4, 6).bfloat16(),), operators_fail("aten.add.Tensor"))
    assert str(found.ir.nodes[0]) == "%b: f32[1, 1] = aten.add.Tensor(%a, %x)"
    assert all(not tensor.any() for tensor in found.inputs)


WRITING = parse("""ir {
  input %x: f32[3]
  input %y: f32[3]
  %e: f32[3] = aten.exp.default(%x)
  %v: f32[2] = aten.slice.Tensor(%e, 0, 0, 2)
  %s: f32[2] = aten.sigmoid_.default(%v)
  %m: f32[3] = aten.mul.Tensor(%e, %y)
  %n: f32[3] = aten.neg.default(%m)
  return %n
}""")
COUNTING = parse("""ir {
  symbol z0: ..
  input %x: f32[3]
  %e: f32[3] = aten.exp.default(%x)
  %t: f32[] = aten.sum.default(%e)
  item: aten.item.default(%t) -> z0
  %m: f32[3] = aten.mul.Tensor(%e, other=`z0`)
  %n: f32[3] = aten.neg.default(%m)
  return %n
}""")


@pytest.mark.parametrize(
    ("ir", "operator", "count"),
    [
        *[(WRITING, f"aten.{name}", 1) for name in ("exp.default", "sigmoid_.default")],
        *[(WRITING, f"aten.{name}", 1) for name in ("slice.Tensor", "mul.Tensor", "neg.default")],
        *[(COUNTING, f"aten.{name}", 1) for name in ("exp.default", "sum.default", "neg.default")],
    ],
)
def test_programs_that_write_or_read_numbers_become_one_node_too(ir, operator, count):
    inputs = tuple([torch.ones(3) for _ in ir.graph_inputs])

    def fails(ir, weights, inputs):
        IRExecutor(ir, weights)(*inputs)  # which writes to them where the program does
        return any(node.op_type == operator for node in ir.nodes)

    small = reduce(ir, {}, inputs, operators_fail(operator))
    assert len(small.ir.nodes) == count
    assert small.ir.check() == ()
    assert len(reduce(ir, {}, inputs, fails).ir.nodes) == count
    assert all(bool((tensor == 1).all()) for tensor in inputs)
