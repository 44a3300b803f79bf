"""Softmax and the normalizations, and what gradients pass back: torch's values."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from semantics.compare import check, compare, denoted, refused
from semantics.tensors import FLOATING, tensor
from semantics.test_tolerance import parts_of
from torch_ir.torch_versions import torch_is

HALF = (torch.bfloat16, torch.float16)


def bound(dtype: torch.dtype) -> float:
    """Numbers about 1, of statistics that torch adds up in this precision or float32."""
    return 32 * torch.finfo(dtype).eps


def close(op_type: str, values: torch.Tensor, *args: Any, **kwargs: Any) -> None:
    check(op_type, values, *args, ulp=8, atol=bound(values.dtype), **kwargs)


# -- softmax --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["_softmax", "_log_softmax"])
@pytest.mark.parametrize("dtype", FLOATING, ids=str)
def test_softmax_over_any_dimension(name: str, dtype: torch.dtype) -> None:
    for dim in range(-3, 3):
        close(f"aten.{name}.default", 5 * tensor((2, 3, 4), dtype), dim, False)
    check(f"aten.{name}.default", tensor((), dtype), 0, False)
    check(f"aten.{name}.default", tensor((0, 2), dtype), 0, False)
    check(f"aten.{name}.default", tensor((2, 0), dtype), -1, False)
    close(f"aten.{name.strip('_')}.int", tensor((2, 3), dtype), 0, torch.float64)


@pytest.mark.parametrize("name", ["_softmax", "_log_softmax"])
@pytest.mark.parametrize(
    "line",
    [
        [-math.inf, -math.inf],
        [-math.inf, 0.0, 1.0],
        [math.inf, 1.0],
        [math.nan, 1.0],
        [1e4, -1e4],
        [3e38, 3e38],
    ],
)
def test_softmax_at_infinity(name: str, line: list[float]) -> None:
    check(f"aten.{name}.default", torch.tensor(line), 0, False, ulp=2)
    check("aten._safe_softmax.default", torch.tensor(line), 0, ulp=2)


def test_softmax_of_another_type() -> None:
    check("aten.softmax.int", torch.tensor([1, 2]), 0, torch.float32, ulp=2)
    check("aten.special_softmax.default", torch.tensor([1, 2]), 0, torch.float32, ulp=2)
    check(
        "aten.special_log_softmax.default", torch.tensor([1.0, 2]), 0, dtype=torch.float64, ulp=4
    )
    widened = denoted("aten._softmax.default", torch.tensor([0.0, 0.0]).half(), 0, True)
    compare(widened, torch.tensor([0.5, 0.5]))


# -- layers and groups ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize("shape", [[4], [3, 4], [2, 3, 4]])
@pytest.mark.parametrize("eps", [1e-5, 0.1])
def test_layers(dtype: torch.dtype, shape: list[int], eps: float) -> None:
    values = tensor((2, 3, 4), dtype)
    weight, bias = tensor((*shape,), dtype, 1), tensor((*shape,), dtype, 2)
    for given in ((weight, bias), (weight, None), (None, bias), (None, None)):
        close("aten.native_layer_norm.default", values, shape, *given, eps)
        close("aten.layer_norm.default", values, shape, *given, eps)


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_statistics_are_float32_where_parameters_are(dtype: torch.dtype) -> None:
    weight = torch.ones(4)
    close("aten.native_layer_norm.default", tensor((3, 4), dtype), [4], weight, None, 1e-5)
    values = tensor((2, 4, 3), dtype)
    close("aten.native_group_norm.default", values, weight, None, 2, 4, 3, 2, 1e-5)
    running = torch.zeros(4), torch.ones(4)
    name = "aten._native_batch_norm_legit_no_training.default"
    close(name, values, None, None, *running, 0.1, 1e-5)


def test_layers_that_are_constant_empty_or_not_finite() -> None:
    check("aten.native_layer_norm.default", torch.full((2, 3), 7.0), [3], None, None, 1e-5, ulp=2)
    check("aten.native_layer_norm.default", torch.zeros(0, 3), [3], None, None, 1e-5)
    check("aten.native_layer_norm.default", torch.zeros(2, 0), [0], None, None, 1e-5)
    values = torch.tensor([[1.0, math.nan, 2.0], [1.0, math.inf, 2.0], [1.0, 2.0, 3.0]])
    close("aten.layer_norm.default", values, [3], None, None, 1e-5)


def test_the_given_eps_is_used() -> None:
    line = torch.tensor([[-1e-3, 1e-3]])
    found = denoted("aten.layer_norm.default", line, [2], None, None, 1e-6)
    compare(found, torch.tensor([[-(0.5**0.5), 0.5**0.5]]), ulp=8)


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize("group", [1, 2, 4])
def test_groups(dtype: torch.dtype, group: int) -> None:
    values, weight, bias = tensor((2, 4, 3), dtype), tensor((4,), dtype, 1), tensor((4,), dtype, 2)
    for given in ((weight, bias), (weight, None), (None, None)):
        close("aten.native_group_norm.default", values, *given, 2, 4, 3, group, 1e-5)
        close("aten.group_norm.default", values, group, *given, 1e-5)
    close("aten.native_group_norm.default", values[:0], None, None, 0, 4, 3, group, 1e-5)


# -- batches --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("shape", [(5, 4), (2, 4, 3), (2, 4, 3, 2)])
@pytest.mark.parametrize("training", [False, True])
def test_batches(dtype: torch.dtype, shape: tuple[int, ...], training: bool) -> None:
    values = tensor(shape, dtype)
    running = (tensor((4,), dtype, 3), tensor((4,), dtype, 4).abs() + 0.5)
    for given in ((tensor((4,), dtype, 1), tensor((4,), dtype, 2)), (None, None)):
        last = (training, 0.1, 1e-5)
        functional = "aten._native_batch_norm_legit_functional.default"
        close(functional, values, *given, *running, *last)
        close("aten._native_batch_norm_legit.default", values, *given, *running, *last)
        close("aten.native_batch_norm.default", values, *given, *running, *last)
        close("aten.batch_norm.default", values, *given, *running, *last, False)
        name = "aten._native_batch_norm_legit_no_training.default"
        close(name, values, *given, *running, 0.1, 1e-5)
        name = "aten._native_batch_norm_legit.no_stats"
        close(name, values, *given, True, 0.1, 1e-5)
    close("aten.native_batch_norm.default", values, None, None, None, None, True, 0.1, 1e-5)


def test_a_batch_of_one_element_has_no_unbiased_variance() -> None:
    values, running = tensor((1, 4, 1), torch.float32), (torch.zeros(4), torch.ones(4))
    name = "aten._native_batch_norm_legit_functional.default"
    last = (True, 0.1, 1e-5)  # torch subtracts numbers 316 times as large: 1 / √eps
    check(name, values, None, None, *running, *last, ulp=8, atol=316 * bound(torch.float32))


def test_instances() -> None:
    values = tensor((2, 4, 3), torch.float32)
    given = (tensor((4,), torch.float32, 1), tensor((4,), torch.float32, 2))
    last = (True, 0.1, 1e-5, False)
    close("aten.instance_norm.default", values, *given, None, None, *last)
    running = (torch.zeros(4), torch.ones(4))
    close("aten.instance_norm.default", values, *given, *running, False, 0.1, 1e-5, False)


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize("eps", [None, 1e-6, 0.5])
def test_root_mean_squares(dtype: torch.dtype, eps: float | None) -> None:
    weight = tensor((4,), dtype, 1)
    for scale in (1.0, 1e-3):  # small numbers show which epsilon is added
        values = tensor((3, 4), dtype) * scale
        close("aten._fused_rms_norm.default", values, [4], weight, eps)
        close("aten.rms_norm.default", values, [4], weight, eps)
        close("aten.rms_norm.default", values, [3, 4], None, eps)


# -- gradients ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_gradients_of_layers(dtype: torch.dtype) -> None:
    values, gradient = tensor((2, 3, 4), dtype), tensor((2, 3, 4), dtype, 1)
    weight, bias = tensor((4,), dtype, 2), tensor((4,), dtype, 3)
    mean, rstd = torch.ops.aten.native_layer_norm(values, [4], weight, bias, 1e-5)[1:]
    given = (gradient, values, [4], mean, rstd, weight, bias)
    name = "aten.native_layer_norm_backward.default"
    close(name, *given, [True, True, True])
    close(name, *given[:-2], None, None, [True, False, False])
    assert denoted(name, *given, [False, True, False])[::2] == (None, None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("group", [1, 2, 4])
def test_gradients_of_groups(dtype: torch.dtype, group: int) -> None:
    values, gradient = tensor((2, 4, 3), dtype), tensor((2, 4, 3), dtype, 1)
    weight = tensor((4,), dtype, 2)
    sizes = (2, 4, 3, group)
    mean, rstd = torch.ops.aten.native_group_norm(values, weight, None, *sizes, 1e-5)[1:]
    name = "aten.native_group_norm_backward.default"
    close(name, gradient, values, mean, rstd, weight, *sizes, [True, True, True])
    close(name, gradient, values, mean, rstd, None, *sizes, [True, False, False])
    if torch_is("2.14"):  # before, torch refuses it
        close(name, gradient, values, mean, rstd, None, *sizes, [True, True, True])


def test_gradients_are_those_of_the_definition() -> None:
    """Not torch's kernel but a difference quotient of the denotation itself."""
    values, step = tensor((2, 4), torch.float64), 1e-6
    weight, gradient = tensor((4,), torch.float64, 1), tensor((2, 4), torch.float64, 2)

    def loss(at: torch.Tensor) -> float:
        out = denoted("aten.layer_norm.default", at, [4], weight, None, 1e-5)
        return float((out * gradient.numpy()).sum())

    mean, rstd = (
        torch.from_numpy(value)
        for value in denoted("aten.native_layer_norm.default", values, [4], weight, None, 1e-5)[1:]
    )
    given = (gradient, values, [4], mean, rstd, weight, None)
    name = "aten.native_layer_norm_backward.default"
    found = denoted(name, *given, [True, False, False])[0]
    for place in ((0, 0), (1, 3)):
        shift = torch.zeros_like(values)
        shift[place] = step
        slope = (loss(values + shift) - loss(values - shift)) / (2 * step)
        assert math.isclose(found[place], slope, rel_tol=1e-6, abs_tol=1e-8)


MATRIX = tensor((2, 4), torch.float32)
REFUSED: list[tuple[str, list[Any], str]] = [
    ("_softmax.default", [MATRIX.int(), 0, False], "softmax is floating, not int32"),
    ("_softmax.default", [MATRIX, 2, False], "a tensor of 2 dimensions has no dimension 2"),
    ("layer_norm.default", [MATRIX, [2]], "shape [2, 4] does not end with [2]"),
    ("layer_norm.default", [MATRIX, []], "shape [2, 4] does not end with []"),
    (
        "layer_norm.default",
        [MATRIX.int(), [4]],
        "only floating tensors are normalized, not int32",
    ),
    ("layer_norm.default", [MATRIX, [4], torch.ones(3)], "a parameter has [3], not [4]"),
    (
        "layer_norm.default",
        [MATRIX, [4], torch.ones(4).double()],
        "float32 is not normalized with float64",
    ),
    (
        "native_group_norm.default",
        [torch.ones(2, 4, 3), None, None, 2, 4, 3, 3, 1e-5],
        "shape [2, 4, 3] has no 3 groups of 4 channels in 2 samples",
    ),
    (
        "_native_batch_norm_legit.no_stats",
        [torch.ones(0, 4, 3), None, None, True, 0.1, 1e-5],
        "a batch without elements has no statistics",
    ),
]


@pytest.mark.parametrize(("name", "args", "message"), REFUSED)
def test_what_torch_refuses_is_refused(name: str, args: list[Any], message: str) -> None:
    assert refused(f"aten.{name}", *args) == message


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("apart", range(5))
def test_statistics_that_lie_apart_are_rounded_at_each_step(
    dtype: torch.dtype, apart: int
) -> None:
    generator = torch.Generator().manual_seed(apart)
    for shape in ((8, 6), (2, 6, 5, 5)):
        values = (torch.randn(shape, generator=generator) * 2 + 1).to(dtype)
        columns = [(torch.rand(6, 3, generator=generator) + 0.1).to(dtype)[:, 0] for _ in "1234"]
        given = [c if apart in (i, 4) else c.contiguous() for i, c in enumerate(columns)]
        options = False, 0.1, 1e-3, False
        assert parts_of("aten.batch_norm.default", values, *given, *options) <= 1
