"""The judge of writes to tensors many elements of which are one place in memory."""

from contextlib import contextmanager

import pytest
import torch
from torch import nn

from torch_ir import extract_ir, register_executor, validate
from torch_ir.executor import unregister_executor

TOLD = {
    "index_fill": lambda v: v.index_fill_(0, torch.tensor([0]), 7.0),
    "index_copy": lambda v: v.index_copy_(0, torch.tensor([0]), torch.full((1, 3), 7.0)),
    "masked_fill": lambda v: v.masked_fill_(torch.tensor([True, False, True]), 3.0),
    "scatter": lambda v: v.scatter_(1, torch.tensor([[0], [1], [1]]), 3.0),
    "tril": lambda v: v.tril_(),
    "fill_diagonal": lambda v: v.fill_diagonal_(5.0),
    "relu": lambda v: v.relu_(),
    "zero": lambda v: v.zero_(),
}
OPEN = {
    "neg": lambda v: v.neg_(),
    "add": lambda v: v.add_(1.0),
    "copy": lambda v: v.copy_(torch.arange(9.0).reshape(3, 3)),
    "index_add": lambda v: v.index_add_(0, torch.tensor([0, 1]), torch.ones(2, 3)),
    "cumsum": lambda v: v.cumsum_(0),
}


def writes(write, strides=(1, 1)):
    class Writes(nn.Module):
        def forward(self, x):
            y = x.clone()
            write(y.as_strided((3, 3), strides))
            return y

    return extract_ir(Writes(), (torch.zeros(12),))


@contextmanager
def kernel(op_type, run):
    register_executor(op_type)(run)
    try:
        yield
    finally:
        unregister_executor(op_type)


@pytest.mark.parametrize("strides", [(1, 1), (2, 1)])
@pytest.mark.parametrize("name", TOLD)
def test_writes_that_hold_in_any_order_are_compared(name, strides):
    ir = writes(TOLD[name], strides)
    report = validate(ir, {}, (torch.randn(12),))
    assert report.verdict == "agree"
    assert report.compared == dict.fromkeys(("denotation", "eager"), len(ir.nodes))


@pytest.mark.parametrize("name", OPEN)
def test_writes_that_depend_on_the_order_are_left_to_eager_with_the_reason(name):
    report = validate(writes(OPEN[name]), {}, (torch.randn(12),), against=["denotation"])
    assert not report.divergences
    assert set(report.not_compared.values()) <= {"it writes to one place in memory more than once"}
    assert validate(writes(OPEN[name]), {}, (torch.randn(12),)).verdict == "agree"


def test_wrong_writes_are_still_found():
    ir = writes(TOLD["index_fill"])
    faults = {
        "another value": lambda inputs, attrs: [inputs[0].index_fill_(0, inputs[1], 8.0)],
        "another row": lambda inputs, attrs: [inputs[0].index_fill_(0, inputs[1] + 2, 7.0)],
        "nothing": lambda inputs, attrs: [inputs[0]],
    }
    for run in faults.values():
        with kernel("aten.index_fill_.int_Scalar", run):
            report = validate(ir, {}, (torch.randn(12),), against=["denotation"])
        assert report.verdict == "disagree"
