"""Padding with the tensor's own elements: modes, ranks, dtypes, negative amounts."""

from __future__ import annotations

import pytest
import torch

from semantics.compare import check, refused

DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.complex64)
AMOUNTS = [[1, 2], [3, 3], [0, 0], [-1, 2], [3, -2], [-2, -1]]


def tensor(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.randn(shape, generator=torch.Generator().manual_seed(0)) * 3).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("mode", ["reflection", "replication"])
@pytest.mark.parametrize("amounts", AMOUNTS, ids=str)
def test_each_rank(amounts: list[int], mode: str, dtype: torch.dtype) -> None:
    for rank in (1, 2, 3):
        values = tensor((2, 3, *[4, 5, 6][:rank]), dtype)
        padding = [*amounts, 1, 0, 0, 1][: 2 * rank]
        for given in (values, values[0], values[:0]):
            check(f"aten.{mode}_pad{rank}d.default", given, padding)


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("amounts", AMOUNTS, ids=str)
def test_by_mode(amounts: list[int], mode: str) -> None:
    check("aten.pad.default", tensor((2, 3, 4, 5)), [*amounts, 1, 0], mode)
    check("aten.pad.default", tensor((3, 5)), amounts, mode)


def test_constants() -> None:
    for dtype in DTYPES:
        check("aten.pad.default", tensor((2, 3), dtype), [1, -1, 0, 2], "constant", 1.0)
    check("aten.pad.default", tensor((2, 3)), [0, -3])
    check("aten.pad.default", tensor((2, 3)), [4, -3, 1, 1], "constant", -0.0)
    check("aten.pad.default", tensor((0, 3)), [1, 1, 1, 0], "constant", 2.5)


def test_going_around_takes_away_first() -> None:
    check("aten._pad_circular.default", torch.arange(10.0).reshape(2, 5), [-1, 3])
    check("aten._pad_circular.default", torch.arange(10.0).reshape(2, 5), [-3, -2])


def test_what_torch_refuses() -> None:
    values = tensor((2, 3, 5))
    assert refused("aten.reflection_pad1d.default", values, [5, 0]) == (
        "an axis of 5 reflects no 5 and 0 elements"
    )
    assert refused("aten.replication_pad1d.default", values, [-3, -2]) == (
        "an axis of 5 cannot be padded by -3 and -2"
    )
    assert refused("aten.replication_pad1d.default", values[:, :0], [1, 1]) == (
        "padding [1, 1] is not for shape [2, 0, 5]"
    )
    assert refused("aten.pad.default", values, [6, 0], "circular") == (
        "an axis of 5 goes not around 6 and 0"
    )
    assert refused("aten.pad.default", values, [0, -6]) == (
        "padding [0, -6] leaves less than 0 of [2, 3, 5]"
    )
    assert refused("aten.pad.default", values, [1]) == "padding [1] is not for 3 dimensions"
    assert refused("aten.pad.default", values, [1, 1], "mirror") == (
        "no padding mode is called 'mirror'\n    Use ['reflect', 'replicate', 'circular']."
    ).replace("    Use", "Use")
