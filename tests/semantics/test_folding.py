"""Windows as columns: torch's values, and that folding is the adjoint of unfolding."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from semantics.compare import check, refused
from torch_ir.semantics import denotation

DTYPES = (torch.float32, torch.float64, torch.complex64, torch.bfloat16, torch.bool)
GEOMETRIES = [
    ([2, 3], [1, 1], [0, 0], [1, 1]),
    ([2, 2], [2, 1], [1, 2], [2, 3]),
    ([1, 1], [1, 1], [0, 0], [1, 1]),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_torch_agrees(geometry: tuple[list[int], ...], dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    planes = torch.randn((2, 3, 5, 6), generator=generator).to(dtype)
    for given in (planes, planes[0], planes[:0]):
        check("aten.im2col.default", given, *geometry)
        columns = torch.ops.aten.im2col(given, *geometry)
        bound = 8 * torch.finfo(dtype).eps if dtype.is_floating_point else 1e-6
        check("aten.col2im.default", columns, [5, 6], *geometry, ulp=4, atol=bound)


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_folding_is_the_adjoint(geometry: tuple[list[int], ...]) -> None:
    """⟨c, unfold(x)⟩ = ⟨fold(c), x⟩, exactly in integers."""
    numbers = np.random.default_rng(0)
    planes = numbers.integers(-9, 9, (2, 3, 5, 6))
    unfolded = denotation("aten.im2col.default").function(planes, *geometry)
    columns = numbers.integers(-9, 9, unfolded.shape)
    folded = denotation("aten.col2im.default").function(columns, [5, 6], *geometry)
    assert (columns * unfolded).sum() == (folded * planes).sum()


def test_what_torch_refuses() -> None:
    ones = ([1, 1], [0, 0], [1, 1])
    assert refused("aten.im2col.default", torch.ones(1, 1, 3, 3), [4, 4], *ones) == (
        "windows that span [4, 4] do not fit sizes [3, 3]"
    )
    assert refused("aten.im2col.default", torch.ones(3, 3), [1, 1], *ones) == (
        "a tensor of shape [3, 3] has no planes to unfold"
    )
    assert refused("aten.col2im.default", torch.ones(1, 4, 5), [3, 3], [2, 2], *ones) == (
        "a tensor of shape [1, 4, 5] is not 4 columns of channels of 4 elements"
    )
    assert refused("aten.col2im.default", torch.ones(1, 3, 4), [3, 3], [2, 2], *ones) == (
        "a tensor of shape [1, 3, 4] is not 4 columns of channels of 4 elements"
    )
