"""Comparison of two tensors, or of two results of a program."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import torch

from torch_ir.arguments import public
from torch_ir.frozen import identical
from torch_ir.torch_api import bytes_of, have_equal_bytes, pytree


@dataclass(frozen=True, slots=True)
class Difference:
    """How a tensor, or another leaf of a result, compares with what was expected.

    Attributes:
        is_close: Whether it is the same within the tolerance.
        reason: In what it differs; empty if it does not.
        max_diff: Largest absolute difference; infinite where values cannot be subtracted.
        mean_diff: Mean absolute difference.
        shape: Shape of the expected tensor, or None for a leaf that is no tensor.
    """

    is_close: bool
    reason: str = ""
    max_diff: float = 0.0
    mean_diff: float = 0.0
    shape: tuple[int, ...] | None = None


@public
def compare_tensors(
    expected: torch.Tensor, got: torch.Tensor, *, rtol: float = 0.0, atol: float = 0.0
) -> Difference:
    """Compare dtype, shape, layout and values of two tensors.

    Floating-point values may differ by ``atol + rtol * |expected|``, computed in float64; with no
    tolerance the sign of a zero counts. Integers, booleans and complex numbers must be equal
    exactly. NaN equals NaN, whatever its payload.

    Example:
        >>> compare_tensors(torch.ones(2), torch.tensor([1.0, 1.5])).reason
        '1 of 2 values differ by up to 0.5'
    """
    shape = tuple(expected.shape)
    if expected.dtype != got.dtype:
        return _unlike(f"the dtype is {got.dtype}, expected {expected.dtype}", shape)
    if expected.shape != got.shape:
        return _unlike(f"the shape is {list(got.shape)}, expected {list(shape)}", shape)
    if expected.layout != got.layout:
        return _unlike(f"the layout is {got.layout}, expected {expected.layout}", shape)
    if expected.layout != torch.strided:
        expected, got = expected.to_dense(), got.to_dense()
    got = got.to(expected.device)
    if expected.numel() == 0 or have_equal_bytes(expected, got):
        return Difference(True, shape=shape)
    wide = torch.complex128 if expected.is_complex() else torch.float64
    left, right = [tensor.detach().to(wide) for tensor in (expected, got)]
    equal = (left == right) | (left.isnan() & right.isnan())
    distance = torch.where(equal, torch.zeros_like(left.abs()), (left - right).abs())
    distance = distance.nan_to_num(nan=float("inf"), posinf=float("inf"))
    if expected.dtype in _WIDE_INTEGERS:
        # float64 rounds them: those that differ do so by at least 1
        distance = torch.where(_bits(expected) == _bits(got), 0.0, distance.clamp(min=1.0))
    inexact = expected.is_floating_point() and (rtol > 0 or atol > 0)
    wrong = distance > (
        float(atol) + float(rtol) * left.abs().nan_to_num(nan=0.0, posinf=0.0) if inexact else 0.0
    )
    if expected.is_floating_point() and not inexact:
        wrong |= (left == right) & (left.signbit() != right.signbit())
    count, largest = int(wrong.sum()), float(distance.max())
    size = f"by up to {largest:.3g}" if largest else "in the sign of zero"
    reason = f"{count} of {expected.numel()} values differ {size}" if count else ""
    return Difference(not count, reason, largest, float(distance.mean()), shape)


_WIDE_INTEGERS = (torch.int64, torch.uint64)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().view(torch.int64)


def _unlike(reason: str, shape: tuple[int, ...] | None = None) -> Difference:
    return Difference(False, reason, float("inf"), float("inf"), shape)


def compare_results(expected: Any, got: Any, *, rtol: float, atol: float) -> list[Difference]:
    """Compare two results leaf by leaf; one entry that says so if their structure differs."""
    expected_leaves, expected_spec = pytree.tree_flatten(expected)
    got_leaves, got_spec = pytree.tree_flatten(got)
    if expected_spec != got_spec:
        return [_unlike(f"the structure is {got_spec}, expected {expected_spec}", ())]
    return [
        _compare_leaf(a, b, rtol, atol) for a, b in zip(expected_leaves, got_leaves, strict=True)
    ]


def _compare_leaf(expected: Any, got: Any, rtol: float, atol: float) -> Difference:
    if isinstance(expected, torch.Tensor) and isinstance(got, torch.Tensor):
        return compare_tensors(expected, got, rtol=rtol, atol=atol)
    if not identical(expected, got):
        return _unlike(f"the value is {got!r:.60}, expected {expected!r:.60}")
    return Difference(True)


def digest(tensor: torch.Tensor) -> bytes:
    """Hash a tensor's dtype, shape and bits: equal hashes mean equal tensors.

    No hash is faster where processors compute it, and nothing here has to be kept from forgers.
    """
    header = f"{tensor.dtype}{tuple(tensor.shape)}".encode()
    state = hashlib.sha1(header, usedforsecurity=False)
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    if tensor.numel():
        state.update(bytes_of(tensor).numpy().data)
    return state.digest()
