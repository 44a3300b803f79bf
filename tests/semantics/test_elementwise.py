"""Functions of one number against torch's kernels."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import torch_ir
from semantics.compare import check, denoted, refused
from semantics.samples import ALL, COMPLEX, FLOATS, INTEGERS, REAL, SHAPES, ordinary, special
from torch_ir import parse, validate

EXACT = ("neg", "abs", "sign", "floor", "ceil", "trunc", "round", "sqrt", "reciprocal")
"""Correctly rounded by the kernels too, but that the root may be one unit off."""

INEXACT = (
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "rsqrt", "sigmoid"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh"),
    *("asinh", "acosh", "atanh", "erf", "erfc"),
)

REAL_ONLY = {"sign", "floor", "ceil", "trunc", "round", "erf", "erfc"}


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("name", EXACT)
def test_what_is_exact_is_equal(name: str, dtype: torch.dtype) -> None:
    if dtype == torch.bool and name not in ("sign", "sqrt", "reciprocal"):
        assert refused(f"aten.{name}.default", special(dtype)) == f"{name} does not exist on bool"
    elif dtype.is_complex and name in REAL_ONLY:
        assert "does not exist on complex" in refused(f"aten.{name}.default", special(dtype))
    else:
        half = dtype in (torch.bfloat16, torch.float16, *COMPLEX)
        check(f"aten.{name}.default", special(dtype), ulp=2 if half else name == "sqrt")


@pytest.mark.parametrize("dtype", [*ALL])
@pytest.mark.parametrize("name", INEXACT)
def test_what_rounds_is_near(name: str, dtype: torch.dtype) -> None:
    if dtype.is_complex and name in REAL_ONLY:
        assert "does not exist on complex" in refused(f"aten.{name}.default", special(dtype))
        return
    values = special(dtype)
    if name in ("sin", "cos", "tan"):  # large arguments are another matter
        values = values[~(values.abs() > 1e4) | values.isinf()] if dtype in FLOATS else values
    check(f"aten.{name}.default", values, ulp=24 if dtype.is_complex else 4)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", [*EXACT, *INEXACT])
def test_shapes_stay(name: str, shape: tuple[int, ...]) -> None:
    check(f"aten.{name}.default", ordinary(torch.float32, *shape).abs() / 8, ulp=2)


def test_large_angles_are_reduced_exactly() -> None:
    for name in ("sin", "cos"):
        got = denoted(f"aten.{name}.default", torch.tensor([1e15, 2.0**200], dtype=torch.float64))
        expected = [getattr(math, name)(x) for x in (1e15, 2.0**200)]
        np.testing.assert_allclose(got, expected, rtol=1e-15)


@pytest.mark.parametrize("dtype", FLOATS)
def test_other_functions_of_floating_point_numbers(dtype: torch.dtype) -> None:
    values = special(dtype)
    for name in ("frac", "signbit", "nan_to_num", "angle", "deg2rad", "rad2deg"):
        check(f"aten.{name}.default", values, ulp=1)
    check("aten.nan_to_num.default", values, 1.5, 2.5, -3.5)
    if dtype in (torch.float32, torch.float64):
        check("aten.lgamma.default", ordinary(dtype, 40), ulp=8, atol=16 * torch.finfo(dtype).eps)
    check("aten.logit.default", torch.tensor([0, 0.25, 0.75, 1, -1, 2], dtype=dtype), ulp=2)
    check("aten.logit.default", torch.tensor([0, 0.25, 0.75, 1, -1, 2], dtype=dtype), 0.1, ulp=2)
    check("aten.sinc.default", torch.tensor([0, 0.25, -0.75, 1.5], dtype=dtype), ulp=2)
    check("aten.round.decimals", ordinary(dtype, 20), decimals=1, ulp=2)
    check("aten.round.decimals", ordinary(dtype, 20) * 30, decimals=-1, ulp=2)


@pytest.mark.parametrize("eps", [-0.1, 0.0, 1e-9, 1e-6, 0.1, 0.3, 0.5, 0.6, 0.99, 1.0, 1.5])
@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "f16", "i64"])
def test_bounds_of_logit_are_numbers_of_its_type_and_may_cross(dtype: str, eps: float) -> None:
    values = torch.randn(64, generator=torch.Generator().manual_seed(0)) * 2
    given = torch.cat([values, values.abs() % 1, torch.tensor([0, 1, eps, 1 - eps, 0.5])])
    ir = parse(f"""ir {{
      input %x: {dtype}[133]
      %y: {"f32" if dtype == "i64" else dtype}[133] = aten.logit.default(%x, eps={eps})
      return %y
    }}""")
    (meta,) = ir.graph_inputs
    report = validate(ir, {}, (given.to(getattr(torch, meta.dtype)),))
    assert report.verdict == "agree", str(report)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_round_to_themselves(dtype: torch.dtype) -> None:
    for name in ("floor", "ceil", "trunc", "round", "sign", "signbit", "sgn", "nan_to_num"):
        check(f"aten.{name}.default", special(dtype))
    message = refused("aten.round.decimals", special(dtype), decimals=1)
    assert message == "integers have no decimals to round to"


@pytest.mark.parametrize("dtype", COMPLEX)
def test_complex_numbers_and_their_parts(dtype: torch.dtype) -> None:
    values = torch.cat([special(dtype), torch.tensor([0j, -1 + 0j, 1j], dtype=dtype)])
    for name in ("conj_physical", "view_as_real", "sgn", "angle"):
        check(f"aten.{name}.default", values, ulp=4)
    check("aten._conj.default", values)
    check("aten.view_as_complex.default", torch.view_as_real(values))
    part = torch.float32 if dtype == torch.complex64 else torch.float64
    check("aten.complex.default", ordinary(part, 3, 1), ordinary(part, 4))
    check("aten.polar.default", ordinary(part, 3).abs(), ordinary(part, 3, seed=1), ulp=2)
    check("aten.real.default", values)
    check("aten.imag.default", values)


@pytest.mark.parametrize("dtype", REAL)
def test_a_part_of_a_real_number(dtype: torch.dtype) -> None:
    check("aten.real.default", special(dtype))
    message = refused("aten.imag.default", special(dtype))
    assert message.startswith("imag does not exist on ")


@pytest.mark.parametrize("decimals", [-2, 1, 3, 6])
def test_decimals_by_a_tie_are_either_side(decimals: int) -> None:
    ir = torch_ir.parse(f"""ir {{
      input %x: f32[999]
      %y: f32[999] = aten.round.decimals(%x, decimals={decimals})
      return %y
    }}""")
    ties = (torch.arange(999) + 0.5) / 10.0**decimals
    assert torch_ir.validate(ir, {}, (ties,)).is_valid
