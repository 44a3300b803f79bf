"""Torch's own error is within the bounds of reductions where roundings add up one way."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from semantics.test_tolerance import bounds_of, parts_of

Rows = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
ROWS: dict[str, Rows] = {
    "equal": lambda _, at: torch.full_like(at, 0.1),
    "of two numbers": lambda _, at: torch.where(at % 2 == 0, 0.1, 0.7),
    "mostly zero": lambda values, at: torch.where(at % 64 == 5, values, 0.0),
    "zero but for the first": lambda _, at: torch.where(at == 0, 1.3, 0.0),
    "mostly equal": lambda values, at: torch.where(at % 16 == 5, values, 0.7),
    "far from zero": lambda values, _: values + 100,
    "one far from the rest": lambda values, at: torch.where(at == at.numel() - 1, 1e3, values),
    "one far among equal ones": lambda _, at: torch.where(at == at.numel() // 2, 1e3, 0.1),
    "rising": lambda _, at: at / at.numel(),
    "falling": lambda _, at: 0.9 ** at.clamp(max=600),
    "tiny": lambda values, _: values * 1e-37,
}
CALLS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "sum of rows": ("aten.sum.dim_IntList", ([1],)),
    "sum of columns": ("aten.sum.dim_IntList", ([0],)),
    "mean of columns": ("aten.mean.dim", ([0],)),
    "variance of rows": ("aten.var.correction", ([1],)),
    "variance of columns": ("aten.var.correction", ([0],)),
    "variance of all": ("aten.var.correction", (None,)),
    "deviation and mean": ("aten.std_mean.correction", ([0],)),
    "norm 1": ("aten.linalg_vector_norm.default", (1.0, [1])),
    "norm 2": ("aten.linalg_vector_norm.default", (2.0, [1])),
    "norm 1/2": ("aten.linalg_vector_norm.default", (0.5, [1])),
    "norm 3": ("aten.linalg_vector_norm.default", (3.0, [1])),
    "product": ("aten.prod.dim_int", (1,)),
    "running sum": ("aten.cumsum.default", (1,)),
    "running product": ("aten.cumprod.default", (1,)),
}
REAL: dict[str, tuple[str, tuple[Any, ...]]] = {
    "softmax": ("aten._softmax.default", (0, False)),
    "log_softmax": ("aten._log_softmax.default", (0, False)),
    "logsumexp": ("aten.logsumexp.default", ([1],)),
    "running logsumexp": ("aten.logcumsumexp.default", (1,)),
    "layer norm": ("aten.native_layer_norm.default", ([257], None, None, 1e-5)),
    "batch norm": (
        "aten._native_batch_norm_legit.no_stats",
        (None, None, True, 0.1, 1e-5),
    ),
    "distances": ("aten._pdist_forward.default", (2.0,)),
}
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64)


@pytest.mark.parametrize("how", ROWS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_own_errors_are_within_bounds(how: str, dtype: torch.dtype) -> None:
    for height, width in ((4, 257), (150, 257)):
        generator = torch.Generator().manual_seed(width)
        drawn = torch.randn(height * width, generator=generator, dtype=torch.float64)
        places = torch.arange(height * width, dtype=torch.float64)
        values = ROWS[how](drawn, places).reshape(height, width).to(dtype)
        calls = {**CALLS, **({} if dtype.is_complex else REAL)}
        for name, (op_type, arguments) in calls.items():
            if (height > 10) != (name in ("sum of columns", "batch norm", "variance of all")):
                continue
            if dtype.itemsize < 4 and name == "distances":
                continue  # a kernel for none of them
            if dtype.is_complex and "product" in name:
                continue  # what overflows in one part is NaN in the other
            assert parts_of(op_type, values, *arguments) <= 1, name


def test_bounds_of_terms_that_differ_are_not_wider() -> None:
    values = torch.randn(4, 257, generator=torch.Generator().manual_seed(0))
    unit = 2.0**-24
    for op_type, arguments in (CALLS["sum of rows"], CALLS["norm 1"]):
        _, _, (allowed,) = bounds_of(op_type, values, *arguments)
        assert (allowed < 32 * unit * values.abs().sum(1).numpy()).all()


def test_products_of_nothing_are_zero() -> None:
    nothing = torch.zeros(0, 2)
    assert parts_of("aten.mm.default", nothing.t(), nothing) == 0
    assert parts_of("aten.mm.default", nothing, torch.ones(2, 3)) == 0
    assert parts_of("aten.addmm.default", torch.ones(2, 2), nothing.t(), nothing) == 0
    assert parts_of("aten.linalg_vector_norm.default", nothing, 2.0, [0]) == 0
    assert parts_of("aten.cumsum.default", nothing, 0) == 0


def test_matrices_are_scaled_by_their_own_norm() -> None:
    values = torch.randn(3, 2, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    values[1] *= 40
    assert parts_of("aten.linalg_matrix_exp.default", values) <= 1


def test_a_complex_logarithm_near_one_is_not_cancelled() -> None:
    values = torch.tensor([1e-9 + 2e-9j, -1e-3 + 1e-3j, 3 + 4j], dtype=torch.complex128)
    (meant,), (got,), _ = bounds_of("aten.log1p.default", values)
    assert abs(meant / got - 1).max() < 1e-15


ALTERNATING: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "equal": lambda at: torch.full_like(at, 0.0177),
    "of two signs": lambda at: torch.where(at % 2 == 0, 0.1, -0.1),
    "in blocks": lambda at: torch.where(at < at.numel() // 3, -0.1, 0.1),
    "of two numbers": lambda at: torch.where(at % 2 == 0, 0.1, 0.7),
}


def distances_of(line: torch.Tensor) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Distances and norms whose terms are equal in size, though the operands' signs differ."""
    off = torch.full((), 0.05, dtype=line.dtype)
    for order in (0.5, 1.0, 1.5, 2.0, 3.0):
        yield "dist.default", (line, off, order)
        yield "dist.default", (off, line, order)
        yield "linalg_vector_norm.default", (line, order)
        if line.dtype.itemsize >= 4:
            yield "_cdist_forward.default", (line[None], off.repeat(2, len(line)), order, None)
            yield "_pdist_forward.default", (torch.stack([line, line * 0, line * 0.3]), order)


def sums_of(line: torch.Tensor) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Sums of a line, however an operator comes to it."""
    length, same = len(line), torch.zeros(len(line), dtype=torch.int64)
    none, column = torch.zeros(3, dtype=line.dtype), line[:, None]
    yield "index_add.default", (none, 0, same, line)
    yield "scatter_add.default", (none, 0, same, line)
    yield "index_put.default", (none, [same], line, True)
    yield "put.default", (none, same, line, True)
    yield "index_reduce.default", (none, 0, same, line, "mean")
    for reduce in ("sum", "mean"):
        yield "scatter_reduce.two", (none, 0, same, line, reduce)
    yield "embedding_dense_backward.default", (column, same, 3, -1, False)
    for mode in (0, 1):
        bags = torch.arange(length), torch.tensor([0]), False, mode
        yield "_embedding_bag.default", (column, *bags)
    yield "_adaptive_avg_pool3d.default", (line.reshape(1, 1, 1, 1, -1), [1, 1, 1])
    channels = line.reshape(1, -1, 1, 1)
    options = None, [1, 1], [0, 0], [1, 1]
    yield "convolution.default", (channels, channels, *options, False, [0, 0], 1)
    yield "convolution.default", (channels, channels.transpose(0, 1), *options, True, [0, 0], 1)
    if line.dtype.itemsize >= 4:
        yield "bincount.default", (same, line)
        yield "_fft_r2c.default", (line, [0], 0, True)
    if line.dtype == torch.float32:
        keys, values = line[:64].repeat(1, 1, 500, 1), line[:500].reshape(1, 1, -1, 1)
        flash = "_scaled_dot_product_flash_attention_for_cpu.default"
        yield flash, (keys[:, :, :1], keys, values.repeat(1, 1, 1, 64))
        ones, rising = torch.ones(length), torch.linspace(-1, 1, length)[None]
        moments = torch.zeros(1, 1), torch.ones(1, 1)
        gradient = line[None], rising, [length], *moments, ones, ones, [True] * 3
        yield "native_layer_norm_backward.default", gradient


@pytest.mark.parametrize("dtype", DTYPES[:4], ids=str)
@pytest.mark.parametrize("how", ALTERNATING)
def test_own_errors_of_lines_are_within_bounds(how: str, dtype: torch.dtype) -> None:
    for length in (600, 5000):
        line = ALTERNATING[how](torch.arange(length, dtype=torch.float64)).to(dtype)
        for name, arguments in (*distances_of(line), *sums_of(line)):
            assert parts_of(f"aten.{name}", *arguments) <= 1, (name, length, arguments[2:])


STAGNATING = (
    *("index_add", "index_put", "scatter_add", "embedding_dense_backward", "scatter_reduce"),
    "_embedding_bag_dense_backward",
)


@pytest.mark.parametrize("count", [1000, 5000, 60000])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", STAGNATING)
def test_sums_that_no_element_makes_greater_any_more_are_within_bounds(
    name: str, dtype: torch.dtype, count: int
) -> None:
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(count, generator=generator)
    values = (torch.arange(count) / count / 2 + 0.5)[order].to(dtype)[:, None]
    start, index = torch.zeros(2, 1, dtype=dtype), torch.zeros(count, dtype=torch.int64)
    sizes = torch.ones(count, dtype=torch.int64)
    arguments: dict[str, tuple[str, tuple[Any, ...]]] = {
        "index_add": ("default", (start, 0, index, values)),
        "index_put": ("default", (start, [index], values, True)),
        "scatter_add": ("default", (start, 0, index[:, None], values)),
        "embedding_dense_backward": ("default", (values, index, 2, -1, False)),
        "scatter_reduce": ("two", (start, 0, index[:, None], values, "sum")),
        "_embedding_bag_dense_backward": (
            "default",
            (values, index, torch.arange(count), sizes, sizes, 2, False, 0, None),
        ),
    }
    overload, args = arguments[name]
    assert parts_of(f"aten.{name}.{overload}", *args) <= 1
