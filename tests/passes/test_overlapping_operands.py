"""Writes that read what they write: eager depends on the order in which a kernel goes on."""

from __future__ import annotations

import pytest
import torch
from torch.export import Dim

from functions import Call
from torch_ir import IRExecutor, extract_ir, functionalize, to_exported_program
from torch_ir.errors import PassError

X = torch.rand(3, 3, generator=torch.Generator().manual_seed(0)) + 0.5

WRITES = {
    "add_": lambda a, b: a.add_(b),
    "sub_": lambda a, b: a.sub_(b, alpha=2),
    "mul_": lambda a, b: a.mul_(b),
    "div_": lambda a, b: a.div_(b),
    "pow_": lambda a, b: a.pow_(b),
    "fmod_": lambda a, b: a.fmod_(b),
    "atan2_": lambda a, b: a.atan2_(b),
    "clamp_": lambda a, b: a.clamp_(min=b),
    "lerp_": lambda a, b: a.lerp_(b, 0.5),
    "addcmul_": lambda a, b: a.addcmul_(b, b),
    "copy_": lambda a, b: a.copy_(b),
    "maximum": lambda a, b: torch.maximum(a, b, out=a),
    "where": lambda a, b: torch.where(b > 1, b, a, out=a),
}
CROSSED = {
    "a column": lambda x: (x, x[:, 1:2]),
    "the columns before": lambda x: (x[:, 1:], x[:, :-1]),
    "a column as a row": lambda x: (x[:2], x[:, 0]),
    "a reversed diagonal": lambda x: (x.diagonal()[1:], x.diagonal()[:-1]),
    "every second": lambda x: (x.view(-1)[:-1:2], x.view(-1)[2::2]),
}
APART = {
    "another column": lambda x: (x[:, :1], x[:, 1:2]),
    "other columns": lambda x: (x[:, :2:2], x[:, 1:2]),
    "the same column": lambda x: (x[:, 1:2], x[:, 1:2]),
    "another half": lambda x: x.view(-1)[:8].chunk(2),
    "columns and columns": lambda x: x[:, :2].unbind(1),
}
WHOLE = {
    "addmm_": lambda x: x.addmm_(x, x),
    "mm": lambda x: torch.mm(x, x, out=x),
    "matmul": lambda x: torch.matmul(X, x.t(), out=x),
    "addmv_": lambda x: x[0].addmv_(X, x[0]),
    "baddbmm_": lambda x: x[None].baddbmm_(x[None], x[None]),
    "masked_scatter_": lambda x: x.masked_scatter_(X > 1, x),
    "sum": lambda x: torch.sum(x, 1, out=x[:, 0]),
    "amax": lambda x: torch.amax(x, 1, out=x[:, 0]),
    "cat": lambda x: torch.cat([x[:, 1:], x[:, :1]], 1, out=x),
    "_foreach_sub_": lambda x: torch._foreach_sub_([x], [x[:, :1]]),
}
WHOLE_APART = {
    "addmm_": lambda x: x[:1].addmm_(x[1:2], X),
    "sum": lambda x: torch.sum(x[:, 1:], 1, out=x[:, 0]),
    "cat": lambda x: torch.cat([x[:1], x[1:2]], 1, out=torch.empty(1, 6)),
    "cumsum": lambda x: torch.cumsum(x, 0, out=x),
    "sort": lambda x: torch.sort(x, 0, out=(x, torch.zeros(3, 3, dtype=torch.int64))),
    "fill_": lambda x: x.fill_(x[0, 1]),
    "masked_fill_": lambda x: x.masked_fill_(X > 1, x[0, 1]),
    "_foreach_sub_": lambda x: torch._foreach_sub_([x[:, :1]], [x[:, 1:2]]),
}
LISTS = {
    "members alike": lambda x: torch._foreach_mul_([x, x], 2.0),
    "members that overlap": lambda x: torch._foreach_add_([x[:2], x[1:]], 1.0),
    "what comes later": lambda x: torch._foreach_add_([x[0], x[1]], [x[1], x[0]]),
}
LISTS_APART = {
    "rows": lambda x: torch._foreach_mul_([x[0], x[1]], [x[1], x[2]]),
    "itself": lambda x: torch._foreach_add_([x[0], x[2]], [x[0], x[2]]),
}


def program(write, views, **options):
    """A program that writes to one view while it reads the other, and the model."""

    def function(x):
        write(*views(x))
        return x * 1

    model = Call(function)
    return extract_ir(model, (X.clone(),), **options), model


def refusal(ir):
    """Why a program cannot be made functional."""
    with pytest.raises(PassError) as caught:
        functionalize(ir)
    return str(caught.value)


def assert_followed(ir, model):
    mine, theirs = X.clone(), X.clone()
    assert torch.equal(IRExecutor(functionalize(ir))(mine), model(theirs))
    assert torch.equal(mine, theirs)


@pytest.mark.parametrize("views", CROSSED)
@pytest.mark.parametrize("write", WRITES)
def test_what_is_written_for_one_element_and_read_for_another_is_refused(write, views):
    ir, _ = program(WRITES[write], CROSSED[views])
    assert (
        "it reads elements that it writes for others, and the order in which kernels do so is "
        "open: clone what it reads" in refusal(ir)
    )


@pytest.mark.parametrize("views", APART)
@pytest.mark.parametrize("write", WRITES)
def test_what_lies_apart_or_is_the_same_is_followed(write, views):
    ir, model = program(WRITES[write], APART[views])
    assert_followed(ir, model)


@pytest.mark.parametrize("name", WHOLE)
def test_what_is_no_pointwise_operator_may_not_read_what_it_writes(name):
    ir, _ = program(lambda x: WHOLE[name](x), lambda x: (x,))
    assert "it reads elements that it writes for others" in refusal(ir)


@pytest.mark.parametrize("name", LISTS)
def test_members_of_a_list_that_are_written_in_turn_and_overlap_are_refused(name):
    ir, _ = program(lambda x: LISTS[name](x), lambda x: (x,))
    assert "it writes the members of a list in turn, and two overlap" in refusal(ir)


@pytest.mark.parametrize("name", [*WHOLE_APART, *LISTS_APART])
def test_what_lies_apart_is_followed_in_lists_and_in_other_operators(name):
    ir, model = program({**WHOLE_APART, **LISTS_APART}[name], lambda x: (x,))
    assert_followed(ir, model)


def test_sizes_that_vary_are_those_of_a_sample():
    rows = {"dynamic_shapes": ({0: Dim("rows", min=2, max=9)},)}
    crossed, _ = program(WRITES["sub_"], CROSSED["a column"], **rows)
    assert "it reads elements that it writes for others" in refusal(crossed)
    apart, model = program(WRITES["sub_"], APART["another column"], **rows)
    for count in (2, 9):
        x = X[:1].repeat(count, 1)
        assert torch.equal(IRExecutor(functionalize(apart))(x.clone()), model(x.clone()))


def test_a_clone_of_what_is_read_is_followed():
    ir, model = program(lambda a, b: a.sub_(b.clone()), CROSSED["a column"])
    for run in (IRExecutor(functionalize(ir)), to_exported_program(ir).module()):
        assert torch.equal(run(X.clone()), model(X.clone()))
