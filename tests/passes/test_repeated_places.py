"""Writes through views many elements of which are one place in memory."""

import pytest
import torch
from torch import nn

import torch_ir
from torch_ir.errors import PassError

FOLLOWED = {
    "one repeat": lambda v: v[1].fill_(3.0),
    "the last repeat": lambda v: v[-1].copy_(torch.arange(3.0)),
    "some repeats": lambda v: v[2:].zero_(),
    "every other": lambda v: v[1::2].fill_(2.0),
    "a slice of a slice": lambda v: v[1:][1:].fill_(2.0),
    "none": lambda v: v[4:].fill_(2.0),
    "turned": lambda v: v.t()[:, 3].mul_(2.0),
    "all": lambda v: v.fill_(2.0),
    "a column": lambda v: v[:, 1].fill_(2.0),
    "columns of a repeat": lambda v: v[2, 1:].add_(1.0),
    "deeper": lambda v: v.unsqueeze(0).expand(2, 4, 3)[1, 3].add_(1.0),
    "where a row is true": lambda v: v.masked_fill_(torch.tensor([True, False, True]), 3.0),
}
OPEN = {
    "one index": lambda v: v.index_fill_(0, torch.tensor([1]), 7.0),
    "where a column is true": lambda v: v.masked_fill_(torch.arange(4)[:, None] == 2, 3.0),
    "a diagonal": lambda v: v.diagonal().fill_(1.0),
}


def writes(write):
    class Writes(nn.Module):
        def forward(self, x):
            y = x.clone()
            v = y[0].expand(4, 3)
            write(v)
            return y, v + 0

    return Writes()


@pytest.mark.parametrize("name", FOLLOWED)
def test_a_write_to_some_of_the_repeats_of_an_expanded_tensor_reaches_it(name):
    model, x = writes(FOLLOWED[name]), torch.rand(2, 3)
    ir = torch_ir.extract_ir(model, (x,))
    for program in (torch_ir.functionalize(ir), torch_ir.decompose(ir)):
        made = torch_ir.IRExecutor(program, {})(x)
        assert all(map(torch.equal, made, model(x)))


@pytest.mark.parametrize("name", OPEN)
@pytest.mark.filterwarnings("ignore:Use of")
def test_a_write_that_gives_repeats_several_values_is_refused(name):
    ir = torch_ir.extract_ir(writes(OPEN[name]), (torch.rand(2, 3),))
    with pytest.raises(PassError, match=r"writes through node 'expand' \(aten\.expand\.default\)"):
        torch_ir.functionalize(ir)


STRIDED = {
    "what is turned before a write": lambda y: (y.t().as_strided((6,), (2,)), y.t().mul_(2)),
    "what was turned in a write": lambda y: (y.t().cumsum_(0), y.as_strided((3, 4), (4, 1))),
    "a view of a view": lambda y: (y.add_(1), y[1:].t().as_strided((2, 2), (1, 3), 1).mul_(3)),
    "a part without an offset": lambda y: (y.t().exp_(), y[1:].as_strided((2, 3), (3, 1)).neg_()),
    "what is computed from it": lambda y: (y.t().sin_(), (y * 2).as_strided((3, 4), (1, 3))),
}


@pytest.mark.parametrize("name", STRIDED)
@pytest.mark.parametrize("kind", ["input", "value"])
def test_memory_is_read_by_strides_as_it_lies_in_eager(name, kind):
    class Reads(nn.Module):
        def forward(self, x):
            y = x if kind == "input" else x + 1
            _, seen = STRIDED[name](y)
            return y + 0, seen + 0

    model, x = Reads(), torch.rand(4, 3)
    ir = torch_ir.extract_ir(model, (x.clone(),))
    for program in (torch_ir.functionalize(ir), torch_ir.decompose(ir)):
        made = torch_ir.IRExecutor(program, {})(x.clone())
        assert all(map(torch.equal, made, model(x.clone())))


def test_memory_in_another_order_is_read_by_strides_in_a_program_that_writes():
    class Reads(nn.Module):
        def forward(self, x):
            y = x.t() + 1
            y.mul_(2)
            return y.as_strided((4,), (1,))

    model, x = Reads(), torch.rand(4, 3)
    ir = torch_ir.extract_ir(model, (x,))
    for program in (torch_ir.functionalize(ir), torch_ir.decompose(ir), torch_ir.to_edge(ir).ir()):
        assert torch.equal(torch_ir.IRExecutor(program, {})(x), model(x))


def test_memory_with_holes_is_not_read_by_strides_in_a_program_that_writes():
    class Reads(nn.Module):
        def forward(self, x):
            y = torch.empty_strided((3, 2), (4, 1))
            y.copy_(x)
            return y.as_strided((3,), (4,))

    ir = torch_ir.extract_ir(Reads(), (torch.rand(3, 2),))
    with pytest.raises(PassError, match="memory that is not known to be in row-major order"):
        torch_ir.functionalize(ir)


def test_memory_of_a_size_from_data_is_read_by_strides_after_writes():
    class Reads(nn.Module):
        def forward(self, x):
            y = x[x > 0]
            torch._check(y.shape[0] > 2)
            z = y[::2]
            seen = z.as_strided((2,), (1,))
            z.add_(1)
            return seen + 0, y

    model = Reads()
    ir = torch_ir.extract_ir(model, (torch.rand(10),))
    program = torch_ir.functionalize(ir)
    x = torch.arange(10.0) - 4
    assert all(map(torch.equal, torch_ir.IRExecutor(program, {})(x), model(x)))
