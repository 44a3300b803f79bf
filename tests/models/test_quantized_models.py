"""Models that PT2E, torchao and torch.ao quantized: what is fused, with the same bits."""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import nn

from passes.equal import assert_same
from passes.quantized import LEVELS, count, fused, names
from torch_ir import IR, decompose, extract_ir, load_weights, validate
from torch_ir.passes import common_subexpressions
from torch_ir.serde import dumps, loads

RECORDED = Path(__file__).parent / "quantized"

OURS = {
    "cnn-int8": {
        "conv_relu.per_channel": 1,
        "conv.per_channel": 1,
        "add_relu": 1,
        "linear.per_channel": 1,
    },
    "cnn-int8-per-tensor": {"conv_relu": 1, "conv": 1, "add_relu": 1, "linear": 1},
    "cnn-uint8": {"conv_relu.per_channel": 1},  # its sums and results are of numbers
    "mlp-int8": {"linear_relu.per_channel": 1, "linear.per_channel": 1},
    "mlp-uint8": {"linear_relu.per_channel": 1},
    "rows-int8": {"embedding_byte": 1},
    "rows-int4": {"embedding_4bit": 1, "pack_4bit": 1},
    "rows-int2": {"embedding_2bit": 1, "pack_2bit": 1},
}
"""The operators that stand in each recorded model (``tools/record_quantized_models.py``)."""

LEFT = ("quantize_", "dequantize_")


def quantized(ir) -> Counter[str]:
    """The calls of quantized operators, but for quantize and dequantize."""
    called = [n for n in ir.nodes if n.op_type.startswith("quantized_decomposed.")]
    short = [node.op_type.partition(".")[2].removesuffix(".default") for node in called]
    return Counter(name for name in short if not name.startswith(LEFT))


def inputs_of(ir, seed):
    generator = torch.Generator().manual_seed(seed)
    (meta,) = ir.graph_inputs
    if meta.dtype == "int64":
        return (torch.randint(0, 10, meta.shape, generator=generator),)
    return (torch.randn(meta.shape, generator=generator) * (seed + 1),)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", OURS)
def test_recorded_models_are_fused_with_the_same_bits(name, level):
    path = RECORDED / f"{name}.tir"
    before = LEVELS[level](IR.load(path))
    after = fused(before)
    assert quantized(after) == OURS[name]
    assert loads(dumps(after)) == after
    weights = load_weights(path)
    for seed in range(3):
        assert_same(before, after, weights, inputs_of(before, seed), calls=1)


@pytest.mark.parametrize("name", ["cnn-int8", "mlp-int8"])
def test_a_fused_model_has_no_numbers_between_its_first_and_last_node(name):
    after = fused(IR.load(RECORDED / f"{name}.tir"))
    first, *inside, last = after.nodes
    assert (names(after)[0], names(after)[-1]) == ("quantize_per_tensor", "dequantize_per_tensor")
    assert {meta.dtype for node in (first, *inside) for meta in node.outputs} == {"int8"}
    assert last.outputs[0].dtype == "float32"


@pytest.mark.parametrize("name", ["mlp-int8", "mlp-uint8"])
def test_decomposing_a_fused_model_gives_it_back(name):
    before = decompose(IR.load(RECORDED / f"{name}.tir"))
    again = common_subexpressions(decompose(fused(before)))
    assert count(again) == count(common_subexpressions(before))
    assert quantized(again) == {}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Conv2d(3, 4, 3)
        self.last = nn.Linear(36, 5)

    def forward(self, x):
        y = torch.relu(self.body(x))
        return self.last(torch.max_pool2d(y + y, 2).flatten(1))


def test_a_model_that_torch_ao_quantized_is_fused():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch moves its quantizers to torchao
        from torch.ao.quantization import get_default_qconfig_mapping
        from torch.ao.quantization.quantize_fx import (
            _convert_to_reference_decomposed_fx,
            prepare_fx,
        )

        args = (torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0)),)
        prepared = prepare_fx(Net().eval(), get_default_qconfig_mapping("x86"), args)
        prepared(*args)
        model = _convert_to_reference_decomposed_fx(prepared)
    ir = extract_ir(model.eval(), args)
    for lower in LEVELS.values():
        before = lower(ir)
        after = fused(before)
        assert quantized(after) == {
            "conv.per_channel": 1,
            "relu": 1,
            "add": 1,
            "linear.per_channel": 1,
        }
        assert_same(before, after, model.state_dict(), args)


@pytest.mark.parametrize("name", ["cnn-int8", "cnn-uint8", "mlp-int8", "rows-int4"])
def test_fused_models_mean_what_they_compute(name):
    path = RECORDED / f"{name}.tir"
    ir = fused(IR.load(path))
    report = validate(ir, load_weights(path), inputs_of(ir, 0))
    assert report.is_valid
    by_torchao = {n.name for n in ir.nodes if n.op_type.startswith("torchao.")}
    assert set(report.undenoted) == by_torchao
