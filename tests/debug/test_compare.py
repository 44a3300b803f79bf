"""When two tensors are the same: NaN equals NaN, integers and complex numbers exactly."""

from __future__ import annotations

import pytest
import torch

from torch_ir.debug import compare_tensors

NAN, INF = float("nan"), float("inf")


def tensor(*values, dtype=torch.float32):
    return torch.tensor(values, dtype=dtype)


@pytest.mark.parametrize(
    ("expected", "got", "reason"),
    [
        (tensor(1.0), tensor(1.0), ""),
        (tensor(NAN, INF, -INF), tensor(NAN, INF, -INF), ""),
        (tensor(NAN), -tensor(NAN), ""),
        (tensor(1.0, NAN), tensor(1.0, 2.0), "1 of 2 values differ by up to inf"),
        (tensor(INF), tensor(-INF), "1 of 1 values differ by up to inf"),
        (tensor(INF), tensor(1.0), "1 of 1 values differ by up to inf"),
        (tensor(1.0, 2.0), tensor(1.0, 2.5), "1 of 2 values differ by up to 0.5"),
        (tensor(1.0), tensor(1.0).double(), "the dtype is torch.float64, expected torch.float32"),
        (torch.ones(2, 3), torch.ones(3, 2), "the shape is [3, 2], expected [2, 3]"),
        (torch.ones(1), torch.tensor(1.0), "the shape is [], expected [1]"),
        (torch.ones(0, 3), torch.ones(0, 3), ""),
        (torch.ones(0, 3), torch.ones(0, 4), "the shape is [0, 4], expected [0, 3]"),
        (
            torch.eye(2),
            torch.eye(2).to_sparse(),
            "the layout is torch.sparse_coo, expected torch.strided",
        ),
        (torch.eye(2).to_sparse(), torch.eye(2).to_sparse(), ""),
        (torch.tensor([True]), torch.tensor([False]), "1 of 1 values differ by up to 1"),
        (torch.tensor([1 + 2j]), torch.tensor([1 + 2j]), ""),
        (torch.tensor([1 + 2j]).conj(), torch.tensor([1 - 2j]), ""),
        (torch.tensor([1 + 2j]), torch.tensor([1 + 3j]), "1 of 1 values differ by up to 1"),
    ],
)
def test_the_same_bits_or_the_reason(expected, got, reason):
    difference = compare_tensors(expected, got)
    assert difference.reason == reason
    assert difference.is_close is (reason == "")
    assert difference.shape == tuple(expected.shape)


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint64])
def test_large_integers_that_float64_cannot_tell_apart_differ(dtype):
    left = torch.tensor([2**53, 2**62], dtype=dtype)
    right = torch.tensor([2**53 + 1, 2**62 + 1], dtype=dtype)
    assert left.to(torch.float64).tolist() == right.to(torch.float64).tolist()
    difference = compare_tensors(left, right, rtol=1.0, atol=1.0)
    assert not difference.is_close
    assert difference.reason == "2 of 2 values differ by up to 1"


def test_a_tolerance_is_for_floating_point_alone():
    close = {"rtol": 1e-3, "atol": 1e-3}
    assert compare_tensors(tensor(1.0), tensor(1.0005), **close).is_close
    assert not compare_tensors(tensor(1.0), tensor(1.01), **close).is_close
    assert not compare_tensors(tensor(INF), tensor(1.0), rtol=2.0, atol=2.0).is_close
    assert not compare_tensors(tensor(NAN), tensor(1.0), **close).is_close
    assert not compare_tensors(torch.tensor([1]), torch.tensor([2]), rtol=10.0, atol=10.0).is_close
    one = torch.tensor([1 + 0j])
    assert not compare_tensors(one, one * (1 + 1e-6), rtol=1.0, atol=1.0).is_close
    half = compare_tensors(tensor(1.0).half(), tensor(1.0005).half() + 0.001, rtol=0.01)
    assert half.is_close
    assert half.max_diff > 0


def test_a_view_is_compared_by_its_values():
    base = torch.randn(3, 4)
    assert compare_tensors(base.t(), base.t().contiguous()).is_close
    assert compare_tensors(base[:1].expand(5, 4), base[:1].repeat(5, 1)).is_close
    assert compare_tensors(base.requires_grad_(), base.detach()).is_close
