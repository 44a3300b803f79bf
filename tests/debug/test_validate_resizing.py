"""Validation of calls that give what they write another shape: ``out=`` and ``resize_``."""

from __future__ import annotations

import warnings

import pytest
import torch

from functions import Call
from torch_ir import extract_ir, validate
from torch_ir.executor import register_executor, unregister_executor


def _add(x):
    made = torch.zeros(2)
    before = made.sin()
    torch.add(x, 1, out=made)
    return made * 2, before


def _of_a_view(x):
    made = torch.zeros(5).neg()
    part = made[2:] * 3
    torch.cos(x, out=made)
    return made, part


def _sort(x):
    values, places = torch.zeros(3), torch.zeros(2, dtype=torch.long)
    torch.sort(x, out=(values, places))
    return values, places


def _product(x):
    made = torch.zeros(2, 2)
    torch.mm(x, x.t(), out=made)
    return made + 1


def _empty(x):
    made = torch.empty(0)
    torch.add(x, 1, out=made)
    return made


def _triangle(x):
    made = x.new_empty(0)
    torch.tril(x, out=made)
    return torch.triu(x, out=x.new_empty(0, 2)) + made


def _longer(x):
    made = x.new_empty(5, 5)
    torch.tril(x, out=made)
    torch.softmax(x, 1, out=x.new_empty(2))
    return torch.ops.aten._log_softmax.out(x, 1, False, out=x.new_empty(7)) + made


CALLS = {f.__name__: f for f in (_add, _of_a_view, _sort, _product, _empty, _triangle, _longer)}


def _validated(function):
    x = torch.randn(3, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return validate(extract_ir(Call(function), (x,)), {}, (x,))


@pytest.mark.parametrize("name", CALLS)
def test_every_reader_reads_a_call_that_resizes_its_result(name):
    report = _validated(CALLS[name])
    assert (report.verdict, report.not_compared) == ("agree", {})


def test_a_wrong_kernel_that_resizes_is_told():
    def wrong(inputs, attributes):
        x, made = inputs
        return [torch.sub(x, 1, out=made)]

    register_executor("aten.add.out")(wrong)
    try:
        report = _validated(_add)
    finally:
        unregister_executor("aten.add.out")
    assert report.verdict == "disagree"
    assert {found.reader for found in report.divergences} == {"denotation", "eager"}


def test_memory_that_a_resize_adds_is_open():
    def grown(x):
        made = torch.zeros(2).cos()
        made.resize_as_(x)
        made.resize_(3, 3).fill_(1.0)
        return made + 1

    assert _validated(grown).verdict == "agree"
