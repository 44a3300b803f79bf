"""Special functions in float64: what they mean is precise, and bounds are what kernels need."""

import mpmath
import numpy as np
import pytest
import torch

from semantics.test_tolerance import bounds_of, parts_of
from torch_ir.errors import InvalidIRError

NAN = float("nan")
UNIT = 2.0**-53
BESSEL = [f"special_bessel_{name}" for name in ("j0", "j1", "y0", "y1")]
_EXACT = {
    "special_bessel_j1": lambda x: mpmath.besselj(1, x),
    "special_bessel_y0": lambda x: mpmath.bessely(0, x),
    "special_modified_bessel_k0": lambda x: mpmath.besselk(0, x),
    "special_scaled_modified_bessel_k1": lambda x: mpmath.exp(x) * mpmath.besselk(1, x),
    "special_ndtri": lambda p: mpmath.findroot(
        lambda x: mpmath.log(mpmath.erfc(-x / mpmath.sqrt(2)) / 2) - mpmath.log(p), -30
    ),
    "special_erfcx": lambda x: mpmath.exp(mpmath.mpf(x) ** 2) * mpmath.erfc(x),
}


def doubles(low: float, high: float, count: int = 2_000) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return low + (high - low) * torch.rand(count, dtype=torch.float64, generator=generator)


@pytest.mark.parametrize(
    ("name", "points"),
    [
        ("special_bessel_j1", (1e-30, 3e-9, 1e-4, 0.3, 0.999, 1.5)),
        ("special_bessel_y0", (0.5, 2.3, 7.0, 24.9, 25.1, 100.0)),
        ("special_bessel_j1", (1e301, 1e308)),
        ("special_bessel_y0", (1e-310, 5e-324)),
        ("special_modified_bessel_k0", (1e-21, 1e-19, 1e-310, 5e-324)),
        ("special_scaled_modified_bessel_k1", (1e-21, 1e-19, 1e-300)),
        ("special_ndtri", (5e-324, 1e-310, 1e-251, 1e-249)),
        ("special_erfcx", (-26.63, -26.6, -3.0, 0.5, 20.0)),
    ],
)
def test_what_is_meant_is_precise(name: str, points: tuple[float, ...]) -> None:
    values = torch.tensor(points, dtype=torch.float64)
    (meant,), _, _ = bounds_of(f"aten.{name}.default", values)
    with mpmath.workdps(40):
        exact = np.array([float(_EXACT[name](float(x))) for x in points])
    np.testing.assert_allclose(meant, exact, rtol=2e-14)


def test_derivatives_of_the_digamma_function_near_0_are_precise() -> None:
    (meant,), _, _ = bounds_of(
        "aten.polygamma.default", 20, torch.tensor([0.16, 3.0], dtype=torch.float64)
    )
    exact = [float(mpmath.psi(20, x)) for x in (0.16, 3.0)]
    np.testing.assert_allclose(meant, exact, rtol=1e-13)


@pytest.mark.parametrize("name", [*BESSEL, "special_airy_ai"])
def test_kernels_take_their_bounds_and_no_more(name: str) -> None:
    op_type = f"aten.{name}.default"
    for low, high in ((0.0, 5.0), (5.0, 30.0), (30.0, 1e3), (0.0, 1e-3)):
        assert parts_of(op_type, doubles(low, high)) <= 1
        assert parts_of(op_type, doubles(low, high).float()) <= 1
    if "airy" in name:
        assert 0.2 < parts_of(op_type, doubles(-30, 0)) <= 1
    else:
        assert 0.3 < parts_of(op_type, doubles(5, 20)) <= 1


@pytest.mark.parametrize("name", BESSEL)
def test_waves_are_bound_as_if_computed_in_float64(name: str) -> None:
    for low, high, units in ((0.1, 1.0, 200), (30.0, 100.0, 300)):
        _, _, (allowed,) = bounds_of(f"aten.{name}.default", doubles(low, high, 100))
        assert allowed.max() < units * UNIT * (1 if low > 1 or name != "special_bessel_y1" else 10)
    _, _, (allowed,) = bounds_of(f"aten.{name}.default", torch.tensor([2.0, 4.0]).double())
    assert allowed[0] < 2e-12
    assert allowed[1] < 1e-8  # what denominators lack


def test_small_values_are_bound_relative_to_themselves() -> None:
    for name, x in (("special_bessel_j1", 1e-12), ("special_airy_ai", 20.0)):
        (meant,), _, (allowed,) = bounds_of(f"aten.{name}.default", torch.tensor([x]).double())
        assert allowed[0] < 2e3 * UNIT * meant[0]


def test_incomplete_gamma_functions_are_off_by_a_wrong_pi_near_the_order_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    orders = 30 * torch.rand(1000, dtype=torch.float64, generator=generator) ** 2
    points = 40 * torch.rand(1000, dtype=torch.float64, generator=generator) ** 2
    for op_type in ("aten.igamma.default", "aten.igammac.default"):
        assert 0.1 < parts_of(op_type, orders, points) <= 1
        near = torch.tensor([5.0, 100.0, 100.0]).double()
        _, _, (allowed,) = bounds_of(op_type, near, torch.tensor([5.0, 100.0, 30.0]).double())
        assert allowed[0] < 200 * UNIT
        assert 1e-10 < allowed[1] < 1e-9
        assert allowed[2] < 1e4 * UNIT


def test_trigamma_lacks_the_rest_of_its_series() -> None:
    values = doubles(-20, 30)
    assert 0.3 < parts_of("aten.polygamma.default", 1, values) <= 1
    _, _, (allowed,) = bounds_of("aten.polygamma.default", 1, torch.tensor([100.0]).double())
    assert allowed[0] < 1e-16
    for n in (2, 5, 12, 40):
        assert parts_of("aten.polygamma.default", n, doubles(1e-3, 10)) <= 1
    near_poles = torch.tensor([-1e-3, -1e-6, -1 + 1e-3, -1 - 1e-5, -7 + 1e-4], dtype=torch.float64)
    assert parts_of("aten.polygamma.default", 1, near_poles) <= 1


def test_a_polynomial_of_too_many_steps_is_refused_and_not_waited_for() -> None:
    degree = torch.tensor([2.0, 1e9])
    with pytest.raises(InvalidIRError) as caught:
        bounds_of("aten.special_legendre_polynomial_p.default", torch.tensor(NAN), degree)
    assert str(caught.value) == "a polynomial of degree 1e+09 takes more than 100000 steps"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_logarithm_of_a_probability_is_a_number_however_far_the_point(
    dtype: torch.dtype,
) -> None:
    info = torch.finfo(dtype)
    points = [-info.max, -info.max / 2, -1e19, -1e300, -info.tiny, info.max, float("-inf"), NAN]
    meant, got, _ = bounds_of("aten.special_log_ndtr.default", torch.tensor(points, dtype=dtype))
    np.testing.assert_allclose(meant[0], got[0], rtol=1e-6)
