"""Reductions, variances and scans: torch's values over dtypes, shapes and special values."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from semantics.compare import check, denoted, refused
from semantics.tensors import ALL, FLOATING, special, tensor
from semantics.test_tolerance import parts_of

COMPLEX = (torch.complex64, torch.complex128)
INTEGERS = (torch.int64, torch.int32, torch.uint8)
SHAPES: list[tuple[tuple[int, ...], list[int]]] = [
    ((3, 4), [0]),
    ((3, 4), [-1]),
    ((3, 1), [1]),
    ((), [0]),
    ((), [-1]),
    ((2, 3, 4), [0, -1]),
]


def bound(dtype: torch.dtype) -> float:
    """Sums of at most 36 numbers about 1, added up in torch in this precision."""
    floating = dtype.is_floating_point or dtype.is_complex
    return 32 * torch.finfo(dtype).eps if floating else 0


def close(op_type: str, values: torch.Tensor, *args: Any, **kwargs: Any) -> None:
    check(op_type, values, *args, ulp=4, atol=bound(values.dtype), **kwargs)


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize(("shape", "dim"), SHAPES)
def test_sums_and_products(shape: tuple[int, ...], dim: list[int], dtype: torch.dtype) -> None:
    values = tensor(shape, dtype)
    for keepdim in (False, True):
        close("aten.sum.dim_IntList", values, dim, keepdim)
        if len(dim) == 1:
            close("aten.prod.dim_int", values, dim[0], keepdim)
        if dtype.is_floating_point or dtype.is_complex:
            close("aten.mean.dim", values, dim, keepdim)
    close("aten.sum.default", values)
    close("aten.prod.default", values)


def test_no_dimension_named_means_all() -> None:
    values = tensor((2, 3), torch.float32)
    for dim in ([], None):
        close("aten.sum.dim_IntList", values, dim, True)
        close("aten.mean.dim", values, dim)
        close("aten.var.correction", values, dim)
    check("aten.amax.default", values, [])
    check("aten.any.dims", values, None)
    check("aten.any.dims", values, [])  # but here an empty list reduces nothing
    check("aten.all.dims", values.byte(), [], True)


@pytest.mark.parametrize("asked", [torch.int32, torch.float16, torch.bool, torch.complex64])
def test_elements_become_the_type_asked_for_before_they_are_added(asked: torch.dtype) -> None:
    values = torch.tensor([1.7, 1.7, 0.25])
    check("aten.sum.default", values, dtype=asked)
    check("aten.prod.default", values, dtype=asked)


def test_sums_of_nothing() -> None:
    for dtype in ALL:
        nothing = tensor((0, 2), dtype)
        check("aten.sum.dim_IntList", nothing, [0])
        check("aten.prod.dim_int", nothing, 0)
        check("aten.any.dim", nothing, 0)
        check("aten.all.dim", nothing, 0)
        check("aten.cumsum.default", nothing.real, 0, dtype=torch.int64)
        for name in ("sum", "prod", "any", "all"):
            assert parts_of(f"aten.{name}.default", nothing) == 0
    check("aten.mean.dim", torch.zeros(0, 2), [0])
    check("aten.var.correction", torch.zeros(0, 2), [0])
    check("aten.logsumexp.default", torch.zeros(0, 2), [0])


def test_integers_wrap() -> None:
    check("aten.sum.default", torch.tensor([2**62, 2**62]))
    check("aten.prod.default", torch.tensor([2**40, 2**40 + 1]))
    check("aten.sum.default", torch.tensor([200, 100], dtype=torch.uint8), dtype=torch.uint8)
    check("aten.cumsum.default", torch.tensor([2**62, 2**62]), 0)


def test_a_sum_is_rounded_once() -> None:
    """torch adds in float32: what is less than half a unit of the sum so far is lost."""
    values = torch.tensor([2.0**24] + [1.0] * 4)
    assert denoted("aten.sum.default", values) == 2.0**24 + 4
    assert denoted("aten.mean.default", torch.full((3,), 60000.0).half()) == 60000.0


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_truth(dtype: torch.dtype) -> None:
    for values in (special(dtype), tensor((3, 4), dtype), torch.zeros(2, 2).to(dtype)):
        for name in ("any", "all"):
            check(f"aten.{name}.default", values)
            check(f"aten.{name}.dim", values, 0, True)
            check(f"aten.{name}.dims", values, [0, 1])
        check("aten.count_nonzero.dim_IntList", values, [0])
        check("aten.count_nonzero.default", values)


@pytest.mark.parametrize("dtype", [d for d in ALL if not d.is_complex], ids=str)
def test_extremes_and_their_first_places(dtype: torch.dtype) -> None:
    for values in (special(dtype)[:, 1:], tensor((3, 4), dtype), tensor((), dtype)):
        for name in ("max", "min"):
            check(f"aten.a{name}.default", values, [0], True, atol=1e-300)
            check(f"aten.{name}.default", values, atol=1e-300)
            check(f"aten.{name}.dim", values, 0, True)
            check(f"aten.{name}.dim", values, -1)
            if dtype != torch.bool:
                check(f"aten.arg{name}.default", values)
                check(f"aten.arg{name}.default", values, None, True)
                check(f"aten.arg{name}.default", values, -1, True)
        check("aten.aminmax.default", values, atol=1e-300)
        check("aten.aminmax.default", values, dim=0, atol=1e-300)


def test_the_first_of_many_equal_elements() -> None:
    for dtype in (torch.float32, torch.int64, torch.uint8):
        check("aten.max.dim", torch.ones(100).to(dtype), 0)
        check("aten.argmin.default", torch.ones(100).to(dtype))
    check("aten.max.dim", torch.tensor([1.0, math.nan, 3.0, math.nan]), 0)
    check("aten.max.dim", torch.zeros(2, 0), 0)


@pytest.mark.parametrize("dtype", [*FLOATING, *COMPLEX], ids=str)
@pytest.mark.parametrize("correction", [None, 0, 1, 2.5, 12, 40])
def test_variance(dtype: torch.dtype, correction: float | None) -> None:
    values = tensor((3, 4), dtype)
    for name in ("var", "std", "var_mean", "std_mean"):
        close(f"aten.{name}.correction", values, None, correction=correction)
        close(f"aten.{name}.correction", values, [0], correction=correction, keepdim=True)
    close("aten.var.dim", values, [1], True)
    close("aten.std.dim", values, [1], False)
    close("aten.var.default", values)
    close("aten.std.default", values, False)
    for name in ("var_mean", "std_mean"):
        close(f"aten.{name}.dim", values, [0, 1], False, True)
        close(f"aten.{name}.default", values)


def test_variance_of_few_and_of_special_values() -> None:
    for correction in (0, 1, 5):
        check("aten.var.correction", torch.tensor([3.0]), None, correction=correction)
        check("aten.var.correction", torch.tensor(3.0), [0], correction=correction)
        check("aten.std.correction", torch.ones(4), None, correction=correction)
        check("aten.var.correction", special(torch.float32)[:, :2], [1], correction=correction)
    shifted = torch.tensor([1e9, 1e9 + 1, 1e9 + 2], dtype=torch.float64)
    assert denoted("aten.var.correction", shifted) == 1.0


@pytest.mark.parametrize("dtype", [*FLOATING, *INTEGERS, torch.bool, torch.complex64], ids=str)
def test_logarithm_of_a_sum(dtype: torch.dtype) -> None:
    close("aten.logsumexp.default", tensor((3, 4), dtype), [0, 1])
    close("aten.logsumexp.default", tensor((3, 4), dtype), [-1], True)
    close("aten.special_logsumexp.default", tensor((3, 4), dtype), [-1], True)
    if not dtype.is_complex:
        check("aten.logsumexp.default", 100 * tensor((3, 4), dtype), [1], ulp=2)


@pytest.mark.parametrize("line", [[-math.inf] * 2, [math.inf, 1.0], [math.inf, -math.inf], [1e4]])
def test_logarithm_of_a_sum_at_infinity(line: list[float]) -> None:
    check("aten.logsumexp.default", torch.tensor(line), [0])
    check("aten.logsumexp.default", torch.tensor([*line, math.nan]), [0])


@pytest.mark.parametrize("order", [0, 0.5, 1, 2, 3, -1, -2.5, math.inf, -math.inf])
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, *COMPLEX], ids=str
)
def test_norms(order: float, dtype: torch.dtype) -> None:
    values = tensor((3, 4), dtype)
    for dim, keepdim in ((None, False), ([0], True), ([-1], False)):
        check("aten.linalg_vector_norm.default", values, order, dim, keepdim, ulp=8)
    check("aten.norm.Scalar", values, order, ulp=8)
    check("aten.norm.ScalarOpt_dim", values, order, [1], ulp=8)
    check("aten.dist.default", values, tensor((4,), dtype, 1), order, ulp=16)


@pytest.mark.parametrize("order", [1.0, 2.0, 3.0])
def test_sums_of_powers_are_of_moduli_in_the_type_asked_for(order: float) -> None:
    whole = torch.tensor([[1, -2, 3], [0, 5, -1]])
    sums = "aten.linalg__powsum.default"
    for values in (whole, whole.ne(0), whole.abs().to(torch.uint8)):
        for dtype in (torch.float32, torch.float64, torch.complex64):
            check(sums, values, order, [1], dtype=dtype, ulp=8)
        assert "no sum of powers" in refused(sums, values, order)
    draws = torch.Generator().manual_seed(0)
    values = torch.randn(4, 3, generator=draws, dtype=torch.complex64)
    for dtype in (torch.float32, torch.complex64, torch.float64):
        check(sums, values, order, [0], dtype=dtype, ulp=16)


def test_norms_in_another_type_and_of_nothing() -> None:
    values = tensor((3, 4), torch.float32)
    check("aten.linalg_vector_norm.default", values, dtype=torch.float64, ulp=4)
    check("aten.norm.ScalarOpt_dim_dtype", values, None, [0], False, dtype=torch.float64, ulp=4)
    check("aten.norm.ScalarOpt_dtype", values, 1, dtype=torch.float64, ulp=4)
    check("aten.linalg_vector_norm.default", torch.zeros(0, 3), 2, [0])
    check("aten.linalg_vector_norm.default", torch.tensor([math.inf, math.nan]), 1)
    check("aten.linalg_vector_norm.default", torch.tensor([0.0, 1.0]), -1)


def test_sums_without_nan() -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        check("aten.nansum.default", special(dtype), [0])
        check("aten.nanmean.default", special(dtype), [0], ulp=1)
    check("aten.nansum.default", torch.tensor([2, 3]))
    check("aten.trace.default", tensor((3, 4), torch.int32))
    check("aten.trace.default", tensor((3, 4), torch.float32), ulp=2)


# -- scans ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_running_sums_and_products(dtype: torch.dtype) -> None:
    for dim in (0, -1):
        close("aten.cumsum.default", tensor((3, 4), dtype), dim)
        close("aten.cumprod.default", tensor((3, 4), dtype), dim)
    close("aten.cumsum.default", tensor((), dtype), 0)
    check("aten.cumsum.default", torch.tensor([1.5, 1.5]), 0, dtype=torch.int32)
    for name in ("cumsum", "cumprod"):
        for values in (torch.tensor(0.5), torch.tensor(False), torch.zeros(0), torch.zeros(2, 0)):
            check(f"aten.{name}.default", values, 0, dtype=torch.bool)
    if not dtype.is_complex:
        check("aten.cumsum.default", special(dtype)[:, :1], 0, dtype=torch.float64)


@pytest.mark.parametrize("dtype", [d for d in ALL if not d.is_complex], ids=str)
def test_running_extremes_and_their_last_places(dtype: torch.dtype) -> None:
    for name in ("cummax", "cummin"):
        for values in (special(dtype), tensor((5, 4), dtype)):
            check(f"aten.{name}.default", values, 0)
            check(f"aten.{name}.default", values, -1)
        check(f"aten.{name}.default", tensor((), dtype), 0)
        check(f"aten.{name}.default", tensor((0, 2), dtype), 0)


def test_running_logarithm_of_sums() -> None:
    for dtype in (torch.float32, torch.float64):
        values = tensor((5, 4), dtype)
        check("aten.logcumsumexp.default", values, 0, ulp=8, atol=bound(dtype))
    check("aten.logcumsumexp.default", torch.tensor([-math.inf, -math.inf, 2.0, math.inf]), 0)


REFUSED: list[tuple[str, list[Any], str]] = [
    ("sum.dim_IntList", [torch.ones(2, 2), [0, 0]], "dimensions [0, 0] name one twice"),
    ("sum.dim_IntList", [torch.tensor(1.0), [1]], "a tensor of 0 dimensions has no dimension 1"),
    ("mean.default", [torch.ones(2).int()], "a mean is floating or complex, not int32"),
    ("amax.default", [torch.zeros(0, 2), [0]], "shape [0, 2] has no extreme over a size of 0"),
    ("amax.default", [torch.zeros(0)], "shape [0] has no extreme over a size of 0"),
    ("amax.default", [torch.ones(2, dtype=torch.complex64)], "complex64 has no order"),
    ("max.dim", [torch.zeros(2, 0), 1], "shape [2, 0] has no extreme over a size of 0"),
    ("argmax.default", [torch.zeros(0)], "shape [0] has no extreme over a size of 0"),
    ("argmax.default", [torch.ones(2).bool()], "booleans have no place of an extreme"),
    ("var.correction", [torch.ones(2).byte()], "uint8 has no variance"),
    ("linalg_vector_norm.default", [torch.ones(2).int()], "int32 has no norm"),
    (
        "linalg_vector_norm.default",
        [torch.zeros(0), math.inf],
        "shape [0] has no extreme over a size of 0",
    ),
    ("trace.default", [torch.ones(2)], "a tensor of shape [2] is no matrix"),
    ("cummax.default", [torch.ones(2, dtype=torch.complex64), 0], "complex64 has no order"),
]


@pytest.mark.parametrize(("name", "args", "message"), REFUSED)
def test_what_torch_refuses_is_refused(name: str, args: list[Any], message: str) -> None:
    assert refused(f"aten.{name}", *args) == message


def test_booleans_have_no_running_sum_as_booleans() -> None:
    message = refused("aten.cumsum.default", torch.ones(2).bool(), 0, dtype=torch.bool)
    assert message == "booleans have no running sum or product"
