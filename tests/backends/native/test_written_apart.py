"""Functions that stand for operators that runtimes lack, or have without digits."""

import pytest
import torch

from torch_ir.backends.native.written_apart import WRITTEN_APART

ATEN = torch.ops.aten
CURVES = {
    "expm1": (),
    "special_expm1": (),
    "elu": (0.3, 1.5, 0.7),
    "celu": (2.5,),
    "selu": (),
}


@pytest.mark.parametrize("name", CURVES)
@pytest.mark.parametrize("scale", [1e-30, 1e-8, 1e-3, 1, 80])
def test_exponentials_less_one_have_the_digits_of_small_numbers(name, scale):
    x = torch.linspace(-1, 1, 101) * scale
    made = WRITTEN_APART[f"aten.{name}.default"](x, *CURVES[name])
    expected = getattr(ATEN, name).default(x, *CURVES[name])
    torch.testing.assert_close(made, expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("start", [None, 0, 2, -2, 4, -9])
@pytest.mark.parametrize("end", [None, 2, -1, 9])
def test_a_written_slice_is_put_between_what_is_around_it(start, end):
    x = torch.arange(12.0).view(3, 4)
    source = torch.ones_like(x[:, slice(start, end)])
    made = WRITTEN_APART["aten.slice_scatter.default"](x, source, 1, start, end)
    assert torch.equal(made, ATEN.slice_scatter.default(x, source, 1, start, end))


def test_gelu_is_written_as_its_approximation():
    x = torch.linspace(-6, 6, 101)
    made = WRITTEN_APART["aten.gelu.default"](x, approximate="tanh")
    torch.testing.assert_close(made, ATEN.gelu.default(x, approximate="tanh"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
@pytest.mark.parametrize(("other", "alpha"), [(1, 1), (1.5, 1), (2, 3), (-7, -2)])
def test_what_is_taken_from_a_number_is_negated_and_added(dtype, other, alpha):
    x = torch.tensor([-3, 0, 2, 2**20 + 1]).to(dtype)
    made = WRITTEN_APART["aten.rsub.Scalar"](x, other, alpha)
    expected = ATEN.rsub.Scalar(x, other, alpha)
    assert made.dtype is expected.dtype
    assert torch.equal(made, expected)
