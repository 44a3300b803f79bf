"""Quantized operators against what their pattern means: which codes a kernel may give."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch.nn import functional

from passes.quantized import Calls, codes, dq, fused, q
from torch_ir import extract_ir, register_executor, validate
from torch_ir.executor import unregister_executor

LINEAR = "quantized_decomposed.linear.default"


def layer(x, w):
    """Numbers of one scale 0.25, quantized with the scale 1: every second is a tie or near one."""
    return q(functional.linear(dq(x, 0.5, 0), dq(w, 0.5, 0)), 1.0, 0)


def program(x, w):
    ir = fused(extract_ir(Calls(layer), (x, w)))
    assert [node.op_type for node in ir.nodes] == [LINEAR]
    return ir


@contextmanager
def kernel(change) -> Iterator[None]:
    """Within the context the linear layer's codes are others."""

    def run(inputs, attrs):
        right = layer(*inputs).int()
        return [change(right).clamp(0, 255).to(torch.uint8)]

    register_executor(LINEAR)(run)
    try:
        yield
    finally:
        unregister_executor(LINEAR)


def test_every_quantized_operator_is_compared_with_what_it_is_made_of():
    def model(x, w, v):
        y = q(torch.relu(functional.linear(dq(x), dq(w, 0.05))), 0.3)
        z = q(dq(y, 0.3) * dq(v) + 1.0, 0.2)
        return q(torch.relu(dq(q(dq(z, 0.2) + dq(v), 0.2), 0.2)), 0.1), z

    args = (codes(2, 4), codes(3, 4, seed=1), codes(3, seed=2))
    ir = fused(extract_ir(Calls(model), args))
    for seed in range(5):
        given = tuple([codes(*arg.shape, seed=seed + i) for i, arg in enumerate(args)])
        report = validate(ir, {}, given)
        assert report.is_valid
        assert report.undenoted == {}
        assert report.compared == {"denotation": len(ir.nodes), "eager": len(ir.nodes)}


def test_in_the_middle_between_two_codes_a_kernel_may_give_either():
    x, w = torch.tensor([[1, 1]], dtype=torch.uint8), torch.tensor([[1, 1]], dtype=torch.uint8)
    assert layer(x, w).item() == 0  # of 0.5, which is as close to 1
    ir = program(x, w)
    for offset, is_valid in ((0, True), (1, True), (2, False)):
        with kernel(lambda right, offset=offset: right + offset):
            report = validate(ir, {}, (x, w), against=["denotation"])
            assert report.is_valid is is_valid


@pytest.mark.parametrize("offset", [-1, 1])
def test_elsewhere_a_code_that_is_off_by_one_is_found(offset):
    x, w = torch.tensor([[1, 2]], dtype=torch.uint8), torch.tensor([[2, 3]], dtype=torch.uint8)
    assert layer(x, w).item() == 2
    ir = program(x, w)
    assert validate(ir, {}, (x, w)).is_valid
    with kernel(lambda right: right + offset):
        report = validate(ir, {}, (x, w), against=["denotation"])
    assert not report.is_valid
    assert report.first is not None
    assert report.first.node == ir.nodes[0].name


def test_quantizing_itself_has_one_right_code():
    def quantize(x):
        return q(x, 1.0, 0)

    ir = extract_ir(Calls(quantize), (torch.tensor([0.5, 1.5]),))
    op_type = "quantized_decomposed.quantize_per_tensor.default"
    assert validate(ir, {}, (torch.tensor([0.5, 1.5]),)).is_valid
    register_executor(op_type)(lambda inputs, attrs: [torch.tensor([1, 2], dtype=torch.uint8)])
    try:
        report = validate(ir, {}, (torch.tensor([0.5, 1.5]),), against=["denotation"])
    finally:
        unregister_executor(op_type)
    assert not report.is_valid
