"""Batch norm in the weights of the layer before it: near the original, and only where it may."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from torch_ir import IRExecutor, decompose, extract_ir, parse
from torch_ir.errors import PassError
from torch_ir.passes import fold_weights
from torch_ir.passes.batch_norm_folding import fold_batch_norm


def norm(kind, channels):
    torch.manual_seed(1)
    made = kind(channels)
    for value in (made.weight, made.bias, made.running_mean):
        nn.init.normal_(value)
    nn.init.uniform_(made.running_var, 0.5, 2.0)
    return made


LAYERS = {
    "conv1d": (nn.Conv1d(4, 6, 3, groups=2), nn.BatchNorm1d, (2, 4, 8)),
    "conv2d": (nn.Conv2d(3, 6, 3, bias=False), nn.BatchNorm2d, (2, 3, 8, 8)),
    "conv3d": (nn.Conv3d(2, 6, 2), nn.BatchNorm3d, (1, 2, 4, 4, 4)),
    "linear": (nn.Linear(5, 6), nn.BatchNorm1d, (3, 5)),
}


@pytest.mark.parametrize("lower", [lambda ir: ir, decompose], ids=["export", "core"])
@pytest.mark.parametrize("name", LAYERS)
def test_results_are_within_rounding(name, lower):
    layer, kind, shape = LAYERS[name]
    net = nn.Sequential(layer, norm(kind, 6), nn.ReLU()).eval()
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    ir = lower(extract_ir(net, (x,)))
    done = fold_batch_norm(ir, net.state_dict())
    if name == "linear" and lower is decompose:
        assert done.ir is ir  # it is addmm there
        return
    assert len(done.folded) == 1
    assert done.ir.check() == ()
    assert not any("batch_norm" in node.op_type for node in done.ir.nodes)
    assert {"0.weight.folded", "0.bias.folded"} <= {meta.name for meta in done.ir.weights}
    assert "1.running_mean" not in done.weights
    got = IRExecutor(done.ir, done.weights)(x)
    torch.testing.assert_close(got, net(x), rtol=1e-5, atol=1e-5)


class Used(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)
        self.norm = norm(nn.BatchNorm2d, 4)

    def forward(self, x):
        y = self.conv(x)
        return self.norm(y) + y


class Tied(Used):
    def forward(self, x):
        return self.norm(self.conv(x)) + self.conv(x.neg())


def test_a_layer_whose_result_is_used_elsewhere_stays():
    net = Used().eval()
    ir = extract_ir(net, (torch.ones(1, 3, 2, 2),))
    done = fold_batch_norm(ir, net.state_dict())
    assert done.ir is ir
    assert done.folded == ()


def test_a_weight_that_another_layer_uses_stays_for_it():
    net = Tied().eval()
    x = torch.randn(1, 3, 2, 2)
    given = net.state_dict()
    done = fold_batch_norm(extract_ir(net, (x,)), given)
    assert {"conv.weight", "conv.weight.folded"} <= done.weights.keys()
    assert given.keys() == net.state_dict().keys()
    got = IRExecutor(done.ir, done.weights)(x)
    torch.testing.assert_close(got, net(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("layer", "kind", "shape"),
    [
        (nn.Conv1d(4, 6, 3), nn.BatchNorm1d, (4, 8)),
        (nn.Conv2d(3, 6, 3), nn.BatchNorm1d, (3, 8, 8)),
        (nn.Conv3d(2, 6, 3), nn.BatchNorm2d, (2, 8, 8, 8)),
    ],
    ids=["conv1d", "conv2d", "conv3d"],
)
def test_channels_of_a_result_without_a_batch_are_not_those_of_the_norm(layer, kind, shape):
    net = nn.Sequential(layer, norm(kind, 6)).eval()
    ir = extract_ir(net, (torch.randn(shape),))
    assert fold_batch_norm(ir, net.state_dict()).ir is ir


def test_a_batch_norm_that_trains_stays():
    net = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)).train()
    with pytest.warns(UserWarning, match="training mode"):
        ir = extract_ir(net, (torch.ones(2, 3, 2, 2),))
    assert fold_batch_norm(ir, net.state_dict()).ir is ir


def test_a_weight_that_is_not_given_is_an_error():
    net = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)).eval()
    ir = extract_ir(net, (torch.ones(2, 3, 2, 2),))
    with pytest.raises(PassError) as caught:
        fold_batch_norm(ir, {})
    assert str(caught.value) == (
        "the weight '0.weight' is not given; folding needs it as "
        "%p_0_weight: f32[4, 3, 1, 1]\n"
        "Give the weights that the program runs with."
    )


def test_a_weight_of_another_dtype_is_refused():
    ir = parse("""ir {
  weight @w: f32[2]
  input %x: f32[2]
  %half: f32[2] = aten.mul.Tensor(@w, 0.5)
  %y: f32[2] = aten.add.Tensor(%x, %half)
  return %y
}""")
    with pytest.raises(PassError, match="the weight 'w' is of float64"):
        fold_weights(ir, {"w": torch.ones(2, dtype=torch.float64)})


@pytest.mark.parametrize("name", ["table.weight", "head.weight"])
def test_a_weight_is_found_under_each_of_its_names(name):
    ir = parse("""ir {
  weight @table.weight: f32[2] as %w
  input %x: f32[2]
  %half: f32[2] = aten.mul.Tensor(%w, 0.5)
  %y: f32[2] = aten.add.Tensor(%x, %half)
  return %y
}""").replace(weight_aliases={"head.weight": "table.weight"})
    folded = fold_weights(ir, {name: torch.full((2,), 4.0)})
    assert [*folded.weights] == ["half.folded"]
    run = IRExecutor(folded.ir, folded.weights)
    assert run(torch.ones(2))[0].tolist() == [3.0, 3.0]
