"""Activations against torch's kernels."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import torch_ir
from semantics.compare import check, denoted, refused
from semantics.samples import FLOATS, SHAPES, ordinary, special
from torch_ir import parse, validate
from torch_ir.ops.clamps import clamp_cuts_bounds

PLAIN = ("relu", "relu6", "silu", "hardsigmoid", "hardswish", "selu", "celu", "elu", "mish")
OTHERS = ("hardtanh", "leaky_relu", "softplus", "log_sigmoid", "hardshrink", "softshrink")


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", [*PLAIN, *OTHERS])
def test_special_values(name: str, dtype: torch.dtype) -> None:
    values = special(dtype)
    if name == "hardswish":  # the kernel overflows between
        values = values[values.abs() < torch.finfo(dtype).max / 16]
    if name == "mish":  # so does this one, and gives NaN for -inf times 0
        values = values[~values.isinf()]
    check(f"aten.{name}.default", values, ulp=6, atol=torch.finfo(dtype).eps)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", [*PLAIN, *OTHERS, "gelu"])
def test_shapes_stay(name: str, shape: tuple[int, ...]) -> None:
    check(f"aten.{name}.default", ordinary(torch.float32, *shape), ulp=4, atol=1e-6)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_gelu(dtype: torch.dtype, approximate: str) -> None:
    values = special(dtype)
    values = values[~values.isinf() & (values.abs() < torch.finfo(dtype).max)]
    tolerance = 8 * torch.finfo(dtype).eps
    check("aten.gelu.default", values, approximate=approximate, ulp=4, atol=tolerance)


def test_gelu_is_the_formula_where_torch_cancels() -> None:
    got = denoted("aten.gelu.default", torch.tensor([-5.0, -8.0], dtype=torch.float64))
    exact = [-5 * math.erfc(5 / math.sqrt(2)) / 2, -8 * math.erfc(8 / math.sqrt(2)) / 2]
    np.testing.assert_allclose(got, exact, rtol=1e-13)
    assert denoted("aten.gelu.default", torch.tensor([math.inf])).tolist() == [math.inf]


@pytest.mark.parametrize("dtype", FLOATS)
def test_parameters(dtype: torch.dtype) -> None:
    values = ordinary(dtype, 4, 6)
    near = {"ulp": 4, "atol": 2 * torch.finfo(dtype).eps}
    check("aten.elu.default", values, 0.7, 1.3, 0.4, **near)
    check("aten.celu.default", values, 0.7, **near)
    check("aten.hardtanh.default", values, -0.3, 1.7, ulp=1)
    check("aten.hardtanh.default", values, 2.0, 1.0)
    check("aten.leaky_relu.default", values, -0.3, ulp=1)
    check("aten.softplus.default", values, 3, 0.5, **near)
    check("aten.hardshrink.default", values, 0.7)
    check("aten.softshrink.default", values, 0.7, **near)
    check("aten.threshold.default", values, 0.3, -7, ulp=1)
    check("aten.glu.default", values, 0, **near)
    check("aten.glu.default", values, -1, **near)
    check("aten._prelu_kernel.default", values, ordinary(dtype, 6), ulp=1)
    check("aten.prelu.default", values, ordinary(dtype, 6), ulp=1)
    check("aten.prelu.default", values, ordinary(dtype, 1), ulp=1)


def test_integers() -> None:
    for dtype in (torch.int64, torch.uint8):
        check("aten.relu.default", special(dtype))
        check("aten.relu6.default", special(dtype))
        check("aten.threshold.default", special(dtype), 2, 7)
    check("aten.hardtanh.default", special(torch.int32), -1.5, 1.5)


def test_what_is_refused() -> None:
    whole, boolean = torch.tensor([1, 2]), torch.tensor([True])
    for name in ("gelu", "elu", "leaky_relu", "silu", "softplus", "hardsigmoid"):
        assert refused(f"aten.{name}.default", whole) == f"{name} does not exist on int64"
    assert refused("aten.relu.default", boolean) == "relu does not exist on bool"
    assert refused("aten.relu.default", torch.tensor([1j])) == "relu does not exist on complex64"
    numbers = torch.tensor([1, 3], dtype=torch.uint8)
    if clamp_cuts_bounds():
        check("aten.hardtanh.default", numbers)
    else:
        message = refused("aten.hardtanh.default", numbers)
        assert message == "hardtanh does not bound unsigned integers below zero"
    message = refused("aten.glu.default", torch.ones(3))
    assert message == "glu halves an even dimension, not -1 of [3]"
    message = refused("aten.gelu.default", torch.ones(1), approximate="erf")
    assert message == 'gelu has no approximation \'erf\'\n"none" or "tanh".'
    message = refused("aten.softshrink.default", torch.ones(1), -1.0)
    assert message == "softshrink needs a lambd of 0 or more, got -1.0"


def test_softplus_may_round_to_its_threshold() -> None:
    thirds = torch.arange(-3, 4) / 3  # 3 · 0.33333334 is 1 in float32
    ir = torch_ir.parse("""ir {
      input %x: f32[7]
      %y: f32[7] = aten.softplus.default(%x, beta=3.0, threshold=1)
      return %y
    }""")
    assert torch_ir.validate(ir, {}, (thirds,)).is_valid


@pytest.mark.parametrize("scale", [0.01, 0.1, 1.0, 4.0])
@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16"])
def test_gelu_of_what_is_dense_in_another_order_is_within_its_bound(
    dtype: str, scale: float
) -> None:
    program = parse(f"""ir {{
      input %x: {dtype}[4, 32, 128]
      %y: {dtype}[128, 4, 32] = aten.permute.default(%x, dims=[2, 0, 1])
      %z: {dtype}[128, 4, 32] = aten.gelu.default(%y)
      return %z
    }}""")
    kind = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16}[dtype]
    x = torch.randn(4, 32, 128, generator=torch.Generator().manual_seed(0)) * scale
    report = validate(program, {}, (x.to(kind),))
    assert report.verdict == "agree", str(report)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("number", [0.1, 0.3, 1 / 3, 0.7, 2049.0, -0.1])
def test_thresholds_are_compared_in_the_type_of_the_kernels(
    dtype: torch.dtype, number: float
) -> None:
    values = torch.tensor(number).to(dtype) * torch.tensor([1.0, 0.5, -1.0]).to(dtype)
    gradients = torch.ones_like(values)
    check("aten.threshold.default", values, number, 5.0)
    check("aten.hardtanh_backward.default", gradients, values, -2.0, number)
    check("aten.hardtanh_backward.default", gradients, values, -number, 9e9)
