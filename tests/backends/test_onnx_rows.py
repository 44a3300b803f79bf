"""Copies to places along an axis on ONNX Runtime: by rows, or by elements where rows are short."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.export import Dim

import torch_ir
from torch_ir import extract_ir
from torch_ir.errors import TorchIRError

pytest.importorskip("onnxruntime")


class Copied(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x, places, source):
        return torch.index_copy(x.neg(), self.dim, places, source)


def drawn(shape, dim, count, dtype):
    x = (torch.randn(shape) * 9).to(dtype)
    places = torch.randperm(shape[dim])[:count]
    rows = [count if i == dim % len(shape) else size for i, size in enumerate(shape)]
    return x, places, (torch.randn(rows) * 9).to(dtype)


def compiled(dim, call, **shapes):
    run = torch_ir.compile(extract_ir(Copied(dim), call, **shapes), {}, backend="onnxruntime")
    assert run.assignment.left == ()
    return run


CASES = [
    *(
        (shape, dim)
        for shape in ([7], [5, 16], [2, 3, 9, 16], [4, 1])
        for dim in range(len(shape))
    ),
    ([2, 6, 3], -1),
    ([2, 6, 8], -2),
    ([0, 4, 9], 1),
]


@pytest.mark.parametrize(("shape", "dim"), CASES)
def test_elements_go_where_torch_copies_them(shape, dim):
    torch.manual_seed(0)
    call = drawn(shape, dim, (shape[dim] + 1) // 2, torch.float32)
    assert torch.equal(compiled(dim, call)(*call), Copied(dim)(*call))


@pytest.mark.parametrize("dtype", [torch.float16, torch.int64, torch.int32])
@pytest.mark.parametrize("count", [0, 9])
def test_other_types_and_all_or_none_of_the_places(count, dtype):
    torch.manual_seed(0)
    call = drawn([2, 9, 16], 1, count, dtype)
    assert torch.equal(compiled(1, call)(*call), Copied(1)(*call))


@pytest.mark.parametrize(("shape", "dim"), [([3, 9, 16], 1), ([9, 16], 0), ([3, 9], 1)])
def test_as_many_places_as_a_call_has(shape, dim):
    torch.manual_seed(0)
    call = drawn(shape, dim, 3, torch.float32)
    count = Dim("count", min=2, max=9)
    run = compiled(dim, call, dynamic_shapes=(None, {0: count}, {dim: count}))
    for given in (2, 3, 9):
        call = drawn(shape, dim, given, torch.float32)
        assert torch.equal(run(*call), Copied(dim)(*call))


def test_sizes_before_the_axis_that_vary():
    torch.manual_seed(0)
    batch = Dim("batch", min=2, max=9)
    call = drawn([3, 9, 16], 1, 2, torch.float32)
    run = compiled(1, call, dynamic_shapes=({0: batch}, None, {0: batch}))
    call = drawn([5, 9, 16], 1, 2, torch.float32)
    assert torch.equal(run(*call), Copied(1)(*call))


class Put(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x, places, source):
        made = x.neg()
        made[(slice(None),) * self.dim + (places,)] = source
        return made


@pytest.mark.parametrize("values", [[2, 5, 3, 16], [5, 1, 16], [1, 1, 3, 1], [16]])
@pytest.mark.parametrize("first", [0, -9])
def test_values_are_repeated_as_torch_repeats_them(values, first):
    torch.manual_seed(0)
    call = torch.randn(2, 5, 9, 16), torch.tensor([7, 0, 3]) + first, torch.randn(values)
    run = torch_ir.compile(extract_ir(Put(2), call), {}, backend="onnxruntime")
    assert run.assignment.left == ()
    assert torch.equal(run(*call), Put(2)(*call))


@pytest.mark.parametrize(
    "places",
    [
        torch.tensor([[1, 3], [8, 0]]),
        torch.tensor([False, True, True] + [False] * 6),
    ],
)
def test_places_of_other_kinds(places):
    torch.manual_seed(0)
    call = torch.randn(5, 9, 16), places, torch.randn(16)
    run = torch_ir.compile(extract_ir(Put(1), call), {}, backend="onnxruntime")
    assert torch.equal(run(*call), Put(1)(*call))


def test_places_that_torch_refuses():
    x, places, source = drawn([3, 9, 16], 1, 2, torch.float32)
    run = compiled(1, (x, places, source))
    for wrong in (places - 9, places + 9):
        with pytest.raises(TorchIRError, match="index"):
            run(x, wrong, source)
