"""Random tensors: shapes and types as torch's, distributions as they are said to be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from semantics.compare import denoted, operator, refused
from semantics.samples import COMPLEX, FLOATS
from torch_ir import compare, extract_ir

LIKE = torch.zeros(200, 500)

CALLS: list[tuple[str, tuple[Any, ...]]] = [
    ("aten.rand.default", ([200, 500],)),
    ("aten.rand_like.default", (LIKE,)),
    ("aten.randn.default", ([200, 500],)),
    ("aten.randn_like.default", (LIKE,)),
    ("aten.randint.default", (10, [200, 500])),
    ("aten.randint.low", (-4, 6, [200, 500])),
    ("aten.randint_like.default", (LIKE, 10)),
    ("aten.randint_like.low_dtype", (LIKE, -4, 6)),
    ("aten.randint_like.Tensor", (LIKE, torch.tensor(10))),
    ("aten._standard_gamma.default", (LIKE + 0.8,)),
    ("aten._standard_gamma.default", (LIKE + 2.5,)),
    ("aten._sample_dirichlet.default", (LIKE[:, :4].repeat(50, 1) + 0.5,)),
    ("aten.bernoulli.default", (LIKE + 0.3,)),
    ("aten.bernoulli.p", (LIKE, 0.3)),
    ("aten.bernoulli.Tensor", (LIKE, torch.tensor(0.3))),
    ("aten.normal_functional.default", (LIKE, 2.0, 3.0)),
    ("aten.uniform.default", (LIKE, -1.0, 3.0)),
    ("aten.native_dropout.default", (LIKE + 1, 0.3, True)),
    ("aten.dropout.default", (LIKE + 1, 0.3, True)),
]


@pytest.mark.parametrize(("op_type", "args"), CALLS, ids=[name for name, _ in CALLS])
def test_the_distribution_is_torchs(op_type: str, args: tuple[Any, ...]) -> None:
    """Ranges, means and variances of 100,000 samples, and deciles."""
    torch.manual_seed(0)
    expected, got = operator(op_type)(*args), denoted(op_type, *args)
    if isinstance(expected, tuple):
        np.testing.assert_array_equal(got[1], got[0] != 0)
        expected, got = expected[0], got[0]
    assert got.shape == tuple(expected.shape)
    assert got.dtype == expected.numpy().dtype
    theirs = expected.double().numpy()
    spread = max(theirs.std(), 0.1)
    assert abs(got.mean() - theirs.mean()) < 0.02 * spread
    assert abs(got.std() - theirs.std()) < 0.02 * spread
    tenths = np.linspace(0.05, 0.95, 10)
    gaps = np.quantile(got, tenths) - np.quantile(theirs, tenths)
    assert np.abs(gaps).max() < 0.05 * spread
    assert got.tolist() == denoted(op_type, *args)[0].tolist() if isinstance(got, tuple) else True


@pytest.mark.parametrize("dtype", [*FLOATS, *COMPLEX])
def test_types(dtype: torch.dtype) -> None:
    for name in ("rand", "randn"):
        got = denoted(f"aten.{name}.default", [3, 4], dtype=dtype)
        assert (got.shape, got.dtype.name) == ((3, 4), str(dtype).removeprefix("torch."))


def test_parts_of_complex_numbers() -> None:
    normal = denoted("aten.randn.default", [100_000], dtype=torch.complex64)
    assert abs(np.mean(np.abs(normal) ** 2) - 1) < 0.02
    uniform = denoted("aten.rand.default", [100_000], dtype=torch.complex64)
    assert 0.49 < uniform.imag.mean() < 0.51
    assert abs(np.corrcoef(uniform.real, uniform.imag)[0, 1]) < 0.02


def test_permutations() -> None:
    for dtype in (torch.int64, torch.int32, torch.float32):
        got = denoted("aten.randperm.default", 100, dtype=dtype)
        assert got.dtype.name == str(dtype).removeprefix("torch.")
        assert sorted(got.tolist()) == list(range(100))
        assert got.tolist() != list(range(100))


def test_dropout_at_its_ends() -> None:
    x = torch.tensor([1.0, -2.0, 3.0])
    for train in (False, None, True):
        kept, mask = denoted("aten.native_dropout.default", x, 0.0, train)
        assert (kept.tolist(), mask.all()) == (x.tolist(), True)
    gone, mask = denoted("aten.native_dropout.default", x, 1.0, True)
    assert (gone.tolist(), mask.any()) == ([0, 0, 0], False)
    same, mask = denoted("aten.native_dropout.default", x, 0.5, False)
    assert (same.tolist(), mask.all()) == (x.tolist(), True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.complex64])
def test_dropout_without_a_choice_is_of_any_type(dtype: torch.dtype) -> None:
    x = torch.tensor([1.0, 0.0, 3.0]).to(dtype)
    for rate, train in ((0.0, True), (1.0, True), (0.5, False)):
        expected = operator("aten.dropout.default")(x, rate, train)
        got = denoted("aten.dropout.default", x, rate, train)
        assert (got.tolist(), got.dtype) == (expected.tolist(), expected.numpy().dtype)


def test_random_slopes() -> None:
    torch.manual_seed(0)
    x = torch.linspace(-1, 1, 10_001)
    x[0] = torch.nan
    ones, name = torch.ones_like(x), "aten.rrelu_with_noise_functional.default"
    expected, theirs = operator(name)(x, ones, 0.1, 0.4, True)
    got, slopes = denoted(name, x, ones, 0.1, 0.4, True)
    for made, factors in ((expected.numpy(), theirs.numpy()), (got, slopes)):
        is_drawn = x.numpy() <= 0
        assert (factors[~is_drawn] == 1).all()
        np.testing.assert_array_equal(made, x.numpy() * factors)
        assert 0.1 <= factors[is_drawn].min() < 0.101 < 0.399 < factors[is_drawn].max() <= 0.4
        assert abs(factors[is_drawn].mean() - 0.25) < 0.01
    for attributes in ((), (0.2, 0.6)):
        mean, kept = denoted(name, x, 2 * ones, *attributes)
        np.testing.assert_array_equal(kept, 2 * ones)
        theirs = operator("aten.rrelu.default")(x, *attributes)
        np.testing.assert_allclose(mean, theirs, rtol=2e-7)  # the slope is rounded
        np.testing.assert_array_equal(mean, denoted("aten.rrelu.default", x, *attributes))


@pytest.mark.filterwarnings("ignore:the model is in training")
def test_rrelu_is_judged_as_dropout_is() -> None:
    x, verdicts = (torch.randn(3, 4),), list[tuple[str, ...]]()
    for model in (nn.RReLU().eval(), nn.RReLU(), nn.Dropout()):
        report = compare(extract_ir(model, x), {}, x)
        verdicts.append((report.verdict, *report.not_compared.values()))
    assert verdicts[0] == ("agree",)
    assert verdicts[1] == verdicts[2] == ("not compared", "it draws random numbers")


def test_what_is_refused() -> None:
    assert refused("aten.randint.low", 3, 3, [2]) == "there is no integer from 3 below 3"
    assert refused("aten.randn.default", [2], dtype=torch.int64) == "randn does not exist on int64"
    assert refused("aten.randperm.default", -1) == "there are no -1 numbers to permute"
    message = refused("aten.bernoulli.default", torch.tensor([2.0]))
    assert message == "a probability is not between 0 and 1"
    assert refused("aten.rand.default", [-2]) == "no tensor has the shape [-2]"
    message = refused("aten.native_dropout.default", torch.ones(2), 1.5, True)
    assert message == "1.5 is no probability"
