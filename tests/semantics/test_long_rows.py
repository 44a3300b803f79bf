"""Long sums of terms alike: each rounding goes the way of the last, and kernels are right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from semantics.compare import operator
from semantics.test_tolerance import bounds_of
from semantics.test_training import error

ATEN = torch.ops.aten
UNIT = 2.0**-24
DTYPES = (torch.float32, torch.bfloat16, torch.float16)

Terms = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
TERMS: dict[str, Terms] = {
    "of one sign": lambda drawn, _: drawn.abs(),
    "equal": lambda drawn, _: torch.full_like(drawn, 0.7),
    "nearly equal": lambda drawn, at: 0.7 * (1 - 2 * (at % 2)) + 1e-6 * drawn,
    "mostly zero": lambda drawn, at: torch.where(at % 50 == 7, drawn, 0.0),
    "in steps": lambda _, at: (at * 7 // at.numel()) / 3.0,
    "behind a large one": lambda drawn, at: torch.where(
        at % at.shape[-1] == 5, 1.0, drawn.abs().clamp(max=2) * UNIT / 2
    ),
    "of all sizes": lambda drawn, _: (5 * drawn).exp(),
}


def drawn(how: str, dtype: torch.dtype, *shape: int, seed: int = 0) -> torch.Tensor:
    """Terms of a kind, as many as a shape has."""
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    places = torch.arange(values.numel()).reshape(shape)
    return TERMS[how](values, places).to(dtype)


def _softmaxes(how: str, dtype: torch.dtype) -> Iterator[tuple[str, tuple[Any, ...]]]:
    for shape, dim in (((2, 60_000), 1), ((4_000, 3), 0)):
        x, gradient = drawn(how, dtype, *shape), drawn(how, dtype, *shape, seed=1)
        yield "_softmax.default", (x, dim, False)
        yield "_log_softmax.default", (x, dim, False)
        yield "logsumexp.default", (x, [dim])
        made = torch.softmax(x, dim)
        yield "_softmax_backward_data.default", (gradient, made, dim, dtype)
        yield "_log_softmax_backward_data.default", (gradient, made.log(), dim, dtype)
        yield "linalg_vector_norm.default", (x, 2, [dim])


def _normalizations(how: str, dtype: torch.dtype) -> Iterator[tuple[str, tuple[Any, ...]]]:
    for rows, width in ((4_000, 5), (2, 30_000)):
        x, gradient = drawn(how, dtype, rows, width), drawn(how, dtype, rows, width, seed=1)
        weight = drawn("of one sign", dtype, width)
        _, mean, rstd = torch.native_layer_norm(x, [width], weight, weight, 1e-5)
        all_asked = [True, True, True]
        given = (gradient, x, [width], mean, rstd, weight, weight, all_asked)
        yield "native_layer_norm_backward.default", given
        x, gradient, ones = x.reshape(2, 4, -1), gradient.reshape(2, 4, -1), weight.new_ones(4)
        places = x.shape[2]
        _, mean, rstd = torch.native_group_norm(x, ones, ones, 2, 4, places, 2, 1e-5)
        given = (gradient, x, mean, rstd, ones, 2, 4, places, 2, all_asked)
        yield "native_group_norm_backward.default", given
        lines = [t.transpose(1, 2).reshape(-1, 4) for t in (x, gradient)]
        _, mean, rstd = torch.native_batch_norm(lines[0], ones, ones, None, None, True, 0.1, 1e-5)
        given = (lines[1], lines[0], ones, None, None, mean, rstd, True, 1e-5, all_asked)
        yield "native_batch_norm_backward.default", given


def _joined(how: str, dtype: torch.dtype) -> Iterator[tuple[str, tuple[Any, ...]]]:
    x = drawn(how, dtype, 4_000, 3)
    places, zeros = torch.arange(4_000) % 2, torch.zeros(2, 3, dtype=dtype)
    index = places[:, None].expand(4_000, 3).contiguous()
    for reduce in ("sum", "mean"):
        yield "scatter_reduce.two", (zeros, 0, index, x, reduce)
    yield "index_reduce.default", (zeros, 0, places, x, "mean")
    bags = x, torch.arange(4_000), torch.tensor([0, 3_000])
    yield "_embedding_bag.default", (*bags, False, 0)
    yield "_embedding_bag.default", (*bags, False, 1)
    scales = drawn(how, dtype, 4_000, seed=1)
    yield "_embedding_bag.default", (*bags, False, 0, False, scales)
    yield "nanmean.default", (drawn(how, dtype, 1, 70_000), [1])


def _pooled(how: str, dtype: torch.dtype) -> Iterator[tuple[str, tuple[Any, ...]]]:
    x = drawn(how, dtype, 1, 2, 10_000)
    yield "avg_pool1d.default", (x, [10_000])
    yield "adaptive_avg_pool1d.default", (x, [1])
    images = x.reshape(1, 2, 100, 100)
    yield "avg_pool2d.default", (images, [100, 100])
    yield "avg_pool2d.default", (images, [90, 80], [5, 10])
    yield "_adaptive_avg_pool2d.default", (images, [2, 1])


@pytest.mark.parametrize("how", TERMS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("calls", [_softmaxes, _normalizations, _joined, _pooled])
def test_own_errors_of_long_sums_are_within_bounds(
    calls: Callable[..., Iterator[tuple[str, tuple[Any, ...]]]], dtype: torch.dtype, how: str
) -> None:
    for name, given in calls(how, dtype):
        assert error(f"aten.{name}", *given) <= 1, name


@pytest.mark.parametrize("count", [1_000, 50_000, 1_000_000])
def test_that_is_allowed_of_no_other_terms(count: int) -> None:
    """A row of numbers of all sizes is off by a walk, however long it is."""
    logits = torch.randn(1, count, generator=torch.Generator().manual_seed(0))
    for name in ("_softmax.default", "_log_softmax.default"):
        (meant,), _, (allowed,) = bounds_of(f"aten.{name}", logits, 1, False)
        scale = abs(meant) if name == "_softmax.default" else 1
        below = (logits.max() - logits).numpy()
        steps = (allowed / scale - UNIT * (below + 2)) / UNIT
        assert steps.max() < 40 + count**0.5 / 4, name
    assert error("aten.logsumexp.default", logits, [1]) <= 1
    assert operator("aten._softmax.default")(logits, 1, False).shape == (1, count)


def _of_two_sums() -> dict[str, tuple[Any, ...]]:
    """Calls that add five large numbers, and five that are less than a unit of these."""
    numbers = torch.cat([torch.full((5,), 300.0), torch.full((5,), 1e-5)])
    places, zeros = torch.tensor([0] * 5 + [1] * 5), torch.zeros(2)
    column = numbers[:, None]
    return {
        "scatter_add.default": (zeros, 0, places, numbers),
        "index_add.default": (zeros, 0, places, numbers),
        "index_put.default": (zeros, [places], numbers, True),
        "scatter_reduce.two": (zeros, 0, places, numbers, "sum"),
        "bincount.default": (places, numbers),
        "embedding_dense_backward.default": (column, places, 2, -1, False),
        "_embedding_bag.default": (column, torch.arange(10), torch.tensor([0, 5])),
    }


@pytest.mark.parametrize("name", _of_two_sums())
def test_a_small_sum_is_bounded_by_itself(name: str) -> None:
    (meant, *_), _, (allowed, *_) = bounds_of(f"aten.{name}", *_of_two_sums()[name])
    assert (allowed < 32 * UNIT * abs(meant)).all()
