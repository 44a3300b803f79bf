"""Fourier transforms: the sums that define them, torch's values, refusals."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from semantics.compare import check, refused
from torch_ir.semantics import denotation

R2C, C2R, C2C = (f"aten._fft_{kind}.default" for kind in ("r2c", "c2r", "c2c"))
AXES = [((5,), [0]), ((4, 6), [1]), ((4, 6), [0]), ((4, 6), [1, 0]), ((3, 1, 5), [0, 2])]


def tensor(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=dtype)


@pytest.mark.parametrize("count", [1, 2, 5, 8])
@pytest.mark.parametrize("forward", [True, False])
def test_they_are_the_sums_that_define_them(count: int, forward: bool) -> None:
    values = tensor((count,), torch.complex128).numpy()
    j = np.arange(count)
    turns = np.exp((-2j if forward else 2j) * np.pi * np.outer(j, j) / count)
    for normalization, scale in enumerate((1, count**-0.5, 1 / count)):
        result = denotation(C2C).function(values, [0], normalization, forward)
        np.testing.assert_allclose(result, turns @ values * scale, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("normalization", [0, 1, 2])
@pytest.mark.parametrize(("shape", "axes"), AXES)
def test_torch_agrees(shape: tuple[int, ...], axes: list[int], normalization: int) -> None:
    for real, compound, bound in (
        (torch.float32, torch.complex64, 2e-5),
        (torch.float64, torch.complex128, 1e-13),
    ):
        for flag in (True, False):
            check(R2C, tensor(shape, real), axes, normalization, flag, atol=bound)
            check(C2C, tensor(shape, compound), axes, normalization, flag, atol=bound)
        half = shape[axes[-1]]
        for size in {2 * half - 1, 2 * half - 2} - {0}:
            check(C2R, tensor(shape, compound), axes, normalization, size, atol=bound)


def test_the_inverse() -> None:
    values = tensor((3, 6), torch.float64).numpy()
    half = denotation(R2C).function(values, [0, 1], 0, True)
    np.testing.assert_allclose(denotation(C2R).function(half, [0, 1], 2, 6), values, atol=1e-15)


def test_what_torch_refuses() -> None:
    real, compound = tensor((4, 0), torch.float32), tensor((4, 3), torch.complex64)
    assert refused(R2C, real, [1], 0, True) == (
        "dim [1] of [4, 0] names an axis twice, or an empty one"
    )
    assert refused(R2C, compound, [0], 0, True) == (
        "the transform of real numbers takes no complex64"
    )
    assert refused(C2C, real, [0], 0, True) == (
        "the transform of complex numbers takes no float32"
    )
    assert refused(C2R, compound, [1], 0, 9) == "dim [1] of [4, 3] is no half of 9 elements"
    assert refused(C2C, compound, [-3], 0, True) == "dim [-3] is out of range for 2 axes"
