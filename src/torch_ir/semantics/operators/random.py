"""Random tensors: what distribution they have, from draws that depend on seed and node alone.

The draws are not torch's (:mod:`torch_ir.semantics.draws`): a denotation gives other samples of
the same distribution. Source: the operator's page in torch's documentation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.broadcast import broadcast_to
from torch_ir.semantics.draws import Draws
from torch_ir.semantics.dtypes import (
    DEFAULT_FLOAT,
    Array,
    is_complex,
    is_float,
    is_inexact,
    real_of,
    rounded,
    significant_bits,
)
from torch_ir.semantics.operators.activations import leaky_relu
from torch_ir.semantics.pointwise import number_as, pointwise, require_type
from torch_ir.semantics.registry import denotes

DType = np.dtype[Any]


@denotes("aten.rand.default", "aten.rand.generator", draws=True)
def rand(size: Sequence[int], draws: Draws, dtype: DType | None = None) -> Array:
    """Uniform in [0, 1); of a complex type in both parts."""
    return _uniform(_shape(size), dtype or DEFAULT_FLOAT, draws)


@denotes("aten.rand_like.default", "aten.rand_like.generator", draws=True)
def rand_like(self: Array, draws: Draws, dtype: DType | None = None) -> Array:
    """Uniform in [0, 1), in the shape of ``self``."""
    return _uniform(self.shape, dtype or self.dtype, draws)


def _uniform(shape: Sequence[int], dtype: DType, draws: Draws) -> Array:
    _require_inexact("rand", dtype)
    if not is_complex(dtype):
        return draws.uniform(shape, dtype)
    return draws.uniform([*shape, 2], real_of(dtype)).view(dtype)[..., 0]


@denotes("aten.randn.default", "aten.randn.generator", draws=True)
def randn(size: Sequence[int], draws: Draws, dtype: DType | None = None) -> Array:
    """Normal with mean 0 and variance 1; the parts of a complex number have variance ½ each."""
    return _normal(_shape(size), dtype or DEFAULT_FLOAT, draws)


@denotes("aten.randn_like.default", "aten.randn_like.generator", draws=True)
def randn_like(self: Array, draws: Draws, dtype: DType | None = None) -> Array:
    """Normal with mean 0 and variance 1, in the shape of ``self``; as :func:`randn`."""
    return _normal(self.shape, dtype or self.dtype, draws)


def _normal(shape: Sequence[int], dtype: DType, draws: Draws) -> Array:
    _require_inexact("randn", dtype)
    if not is_complex(dtype):
        return draws.normal(shape, dtype)
    return rounded(draws.normal(shape, np.dtype("complex128")) * math.sqrt(0.5), dtype)


@denotes("aten.normal_functional.default", draws=True)
def normal(self: Array, draws: Draws, mean: float = 0.0, std: float = 1.0) -> Array:
    """Normal with that mean and standard deviation (0 or more), in the shape of ``self``."""
    require_type("normal", is_float, self)
    if not std >= 0:
        raise InvalidIRError(f"no normal distribution has the standard deviation {std}")
    return rounded(mean + std * draws.normal(self.shape, np.dtype("float64")), self.dtype)


@denotes("aten.uniform.default", draws=True)
def uniform(self: Array, draws: Draws, **bounds: float) -> Array:
    """Uniform in [from, to), or (from, to] where rounding leads there, in the shape of ``self``.

    ``from`` is 0 and ``to`` is 1 if not given.
    """
    require_type("uniform", is_float, self)
    low, high = bounds.get("from", 0.0), bounds.get("to", 1.0)
    if not low <= high:
        raise InvalidIRError(f"there is nothing between {low} and {high}")
    drawn = draws.uniform(self.shape, np.dtype("float64"))
    return rounded(low + (high - low) * drawn, self.dtype)


@denotes(
    *("aten.randint.default", "aten.randint.generator"),
    *("aten.randint.low", "aten.randint.low_generator"),
    draws=True,
)
def randint(
    high: int, size: Sequence[int], draws: Draws, low: int = 0, dtype: DType | None = None
) -> Array:
    """Integers from ``low`` below ``high``, each as likely, in the type (int64) that is given."""
    return _integers(low, high, _shape(size), dtype or np.dtype("int64"), draws)


@denotes(
    *("aten.randint_like.default", "aten.randint_like.generator", "aten.randint_like.Tensor"),
    *("aten.randint_like.Tensor_generator", "aten.randint_like.low_dtype"),
    "aten.randint_like.low_generator_dtype",
    draws=True,
)
def randint_like(
    self: Array, high: int | Array, draws: Draws, low: int = 0, dtype: DType | None = None
) -> Array:
    """Integers from ``low`` below ``high``, in the shape and type of ``self``.

    A high that is a tensor without dimensions is cut to an integer.
    """
    if isinstance(high, np.ndarray):
        if high.ndim:
            raise InvalidIRError(f"a limit of shape {list(high.shape)} is no number")
        high = int(high.item())
    return _integers(low, high, self.shape, dtype or self.dtype, draws)


def _integers(low: int, high: int, shape: Sequence[int], dtype: DType, draws: Draws) -> Array:
    if not low < high:
        raise InvalidIRError(f"there is no integer from {low} below {high}")
    for bound in (low, high - 1):
        number_as(bound, dtype)  # refuses what the type cannot hold
    return rounded(draws.integers(low, high, shape), dtype)


@denotes("aten.randperm.default", "aten.randperm.generator", draws=True)
def randperm(n: int, draws: Draws, dtype: DType | None = None) -> Array:
    """The numbers ``0 … n − 1`` in random order, as int64 if no type is given."""
    if n < 0:
        raise InvalidIRError(f"there are no {n} numbers to permute")
    return rounded(draws.permutation(n), dtype or np.dtype("int64"))


@denotes("aten.bernoulli.default", draws=True)
def bernoulli(self: Array, draws: Draws) -> Array:
    """1 with the probability that stands in ``self``, else 0."""
    require_type("bernoulli", is_float, self)
    return _trials(self, self, draws)


@denotes("aten.bernoulli.p", "aten.bernoulli.Tensor", draws=True)
def bernoulli_p(self: Array, p: float | Array, draws: Draws) -> Array:
    """1 with probability ``p``, broadcast, else 0, in the shape and type of ``self``."""
    return _trials(broadcast_to(np.asarray(p), self.shape), self, draws)


def _trials(probability: Array, like: Array, draws: Draws) -> Array:
    if not ((probability >= 0) & (probability <= 1)).all():
        raise InvalidIRError("a probability is not between 0 and 1")
    return rounded(draws.bernoulli(probability), like.dtype)


@denotes("aten.native_dropout.default", draws=True)
def native_dropout(
    input: Array, p: float, train: bool | None, draws: Draws
) -> tuple[Array, Array]:
    """``input · mask / (1 − p)`` and the mask, true with probability ``1 − p``.

    For ``p = 1`` all zeros. Without training (``train`` false; None trains) the input itself and
    a mask that is all true.
    """
    if train is False:
        return input.copy(), np.ones(input.shape, bool)
    require_type("dropout", is_inexact, input)
    if not 0 <= p <= 1:
        raise InvalidIRError(f"{p} is no probability")
    mask = draws.bernoulli(np.full(input.shape, 1 - p))
    scale = 0.0 if p == 1 else 1 / (1 - p)
    return pointwise(lambda x, kept: x * kept * scale, input, mask, dtype=input.dtype), mask


@denotes("aten.dropout.default", draws=True)
def dropout(input: Array, p: float, train: bool, draws: Draws) -> Array:
    """``input · mask / (1 − p)``, as :func:`native_dropout`.

    The input itself without training and for ``p = 0``, and ``0 · input`` for ``p = 1``: in these
    cases of any type.
    """
    if not train or p == 0:
        return input.copy()
    if p == 1:
        return pointwise(lambda x: x * 0, input, dtype=input.dtype)
    return native_dropout(input, p, train, draws)[0]


@denotes("aten.rrelu.default", draws=True)
def rrelu(self: Array, draws: Draws, **arguments: Any) -> Array:
    """As :func:`rrelu_with_noise`, without the slopes."""
    return rrelu_with_noise(self, np.ones_like(self), draws, **arguments)[0]


@denotes("aten.rrelu_with_noise_functional.default", draws=True)
def rrelu_with_noise(
    self: Array,
    noise: Array,
    draws: Draws,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
) -> tuple[Array, Array]:
    """``self`` above zero, else ``slope · self``, with a slope of its own for each element.

    In training it is drawn from ``lower`` to ``upper``, and returned, 1 above zero. Else it is the
    middle of the two, and ``noise`` is returned as it was.
    """
    if not training:
        return leaky_relu(self, (lower + upper) / 2), noise.copy()
    require_type("rrelu", is_float, self)
    drawn = lower + (upper - lower) * draws.uniform(self.shape, np.dtype("float64"))
    slopes = rounded(np.where(self <= 0, drawn, 1.0), self.dtype)
    return pointwise(np.multiply, self, slopes, dtype=self.dtype), slopes


def _shape(size: Sequence[int]) -> tuple[int, ...]:
    if any(length < 0 for length in size):
        raise InvalidIRError(f"no tensor has the shape {list(size)}")
    return tuple(size)


def _require_inexact(name: str, dtype: DType) -> None:
    if not is_inexact(dtype):
        raise InvalidIRError(f"{name} does not exist on {dtype}")


@denotes("aten.multinomial.default", draws=True)
def multinomial(self: Array, num_samples: int, draws: Draws, replacement: bool = False) -> Array:
    """Numbers of a row's elements (int64), each as likely as the element says of the row's sum.

    Without replacement no number twice: those with the greatest ``p / exponential`` in order.
    Shapes: [*, n] → [*, num_samples].
    """
    require_type("multinomial", is_float, self)
    wide = self.astype("float64")
    if not (np.isfinite(wide).all() and (wide >= 0).all() and (wide.sum(axis=-1) > 0).all()):
        raise InvalidIRError("the elements of a row are no probabilities")
    if replacement:
        ends = np.cumsum(wide, axis=-1)[..., None, :]
        drawn = draws.uniform([*wide.shape[:-1], num_samples, 1], np.dtype("float64"))
        chosen = np.sum(drawn * ends[..., -1:] >= ends, axis=-1)
        return np.minimum(chosen, wide.shape[-1] - 1).astype("int64")
    if num_samples > np.count_nonzero(wide, axis=-1).min(initial=wide.shape[-1]):
        raise InvalidIRError(f"{num_samples} elements cannot be drawn without replacement")
    waits = -np.log1p(-draws.uniform(wide.shape, np.dtype("float64")))
    order = np.argsort(-(wide / waits), axis=-1, kind="stable")
    return order[..., :num_samples].astype("int64")


@denotes(
    *("aten.normal.Tensor_float", "aten.normal.float_Tensor", "aten.normal.Tensor_Tensor"),
    draws=True,
)
def normal_each(mean: float | Array, draws: Draws, std: float | Array = 1.0) -> Array:
    """Normal around each mean with each standard deviation, broadcast; the type of the first."""
    dtype = (mean if isinstance(mean, np.ndarray) else np.asarray(std)).dtype
    drawn = draws.normal(np.broadcast_shapes(np.shape(mean), np.shape(std)), np.dtype("float64"))
    return rounded(mean + std * drawn, dtype)


@denotes("aten.normal.float_float", draws=True)
def normal_of(
    mean: float, std: float, size: Sequence[int], draws: Draws, dtype: DType | None = None
) -> Array:
    """Normal with that mean and standard deviation in a new tensor."""
    drawn = draws.normal(_shape(size), np.dtype("float64"))
    return rounded(mean + std * drawn, dtype or DEFAULT_FLOAT)


@denotes("aten.exponential.default", draws=True)
def exponential(self: Array, draws: Draws, lambd: float = 1.0) -> Array:
    """Exponential with that rate, ``-ln(1 - u) / lambd``, in the shape of ``self``."""
    drawn = draws.uniform(self.shape, np.dtype("float64"))
    return rounded(-np.log1p(-drawn) / lambd, self.dtype)


@denotes("aten.log_normal.default", draws=True)
def log_normal(self: Array, draws: Draws, mean: float = 1.0, std: float = 2.0) -> Array:
    """``e^`` of what is normal with that mean and standard deviation, in the shape of ``self``."""
    return rounded(np.exp(mean + std * draws.normal(self.shape, np.dtype("float64"))), self.dtype)


@denotes("aten.cauchy.default", draws=True)
def cauchy(self: Array, draws: Draws, median: float = 0.0, sigma: float = 1.0) -> Array:
    """``median + sigma · tan(π(u - ½))``, in the shape of ``self``."""
    drawn = draws.uniform(self.shape, np.dtype("float64"))
    return rounded(median + sigma * np.tan(np.pi * (drawn - 0.5)), self.dtype)


@denotes("aten.geometric.default", draws=True)
def geometric(self: Array, p: float, draws: Draws) -> Array:
    """The number of trials up to the first success, ``⌈ln(1 - u) / ln(1 - p)⌉``, at least 1."""
    drawn = draws.uniform(self.shape, np.dtype("float64"))
    return rounded(np.maximum(np.ceil(np.log1p(-drawn) / np.log1p(-p)), 1), self.dtype)


@denotes("aten.random.default", "aten.random.from", "aten.random.to", draws=True)
def random(self: Array, draws: Draws, to: int | None = None, **bounds: int) -> Array:
    """Integers from ``from`` (0) below ``to``, in the shape and type of ``self``.

    Without an end, to the greatest number of the type; of floating-point types, as far as these
    hold all integers.
    """
    low = bounds.get("from", 0)
    if to is not None:
        return _integers(low, to, self.shape, self.dtype, draws)
    if is_float(self.dtype):
        return _integers(low, 2 ** significant_bits(self.dtype) + 1, self.shape, self.dtype, draws)
    most = 1 if self.dtype == np.bool_ else np.iinfo(self.dtype).max
    return _integers(low, min(int(most), 2**63 - 2) + 1, self.shape, self.dtype, draws)


@denotes("aten._standard_gamma.default", draws=True)
def standard_gamma(self: Array, draws: Draws) -> Array:
    """From the gamma distribution with the shape that stands in ``self`` and scale 1, in its type.

    At least the least normal number of the type.
    """
    require_type("standard_gamma", is_float, self)
    return _positive(draws.gamma(self.astype("float64")), self.dtype)


@denotes("aten._sample_dirichlet.default", draws=True)
def sample_dirichlet(self: Array, draws: Draws) -> Array:
    """From Dirichlet's distribution: gamma's along the last dimension, parts of their sum."""
    require_type("sample_dirichlet", is_float, self)
    drawn = np.atleast_1d(standard_gamma(self.astype("float64"), draws))
    parts = drawn / np.sum(drawn, -1, keepdims=True)
    return _positive(parts.reshape(self.shape), self.dtype)


def _positive(drawn: Array, dtype: DType) -> Array:
    return np.maximum(
        rounded(drawn, dtype), rounded(float(ml_dtypes.finfo(dtype).smallest_normal), dtype)
    )


_MOST = 10_000_000
"""Chances that are looked at: a rate in a tensor is not to keep its reader for hours."""


def _counted(logarithms: Array, drawn: Array, shape: tuple[int, ...], dtype: DType) -> Array:
    """The number whose chance a uniform number falls on; chances of numbers from 0, by row."""
    ends = np.cumsum(np.exp(logarithms), -1)
    found = np.sum(drawn.reshape(-1, 1) * ends[:, -1:] >= ends, -1)
    return rounded(np.minimum(found, ends.shape[-1] - 1).reshape(shape), dtype)


def _log_factorials(count: int) -> Array:
    return np.concatenate([np.zeros(1), np.cumsum(np.log(np.arange(1, count)))])


@denotes("aten.poisson.default", draws=True)
def poisson(self: Array, draws: Draws) -> Array:
    """Poisson's with the rate that stands in ``self``, in its type."""
    require_type("poisson", is_float, self)
    rates = self.astype("float64").reshape(-1, 1)
    most = float(rates.max(initial=0))
    count = int(most + 12 * math.sqrt(most) + 30) if np.isfinite(most) else _MOST
    if not ((rates >= 0) & np.isfinite(rates)).all() or rates.size * count > _MOST:
        raise InvalidIRError(f"rates up to {most:g} are not drawn from")
    places = np.arange(count)
    logarithms = np.where(places == 0, 0, places * np.log(rates)) - rates - _log_factorials(count)
    drawn = draws.uniform(self.shape, np.dtype("float64"))
    return _counted(logarithms, drawn, self.shape, self.dtype)


@denotes("aten.binomial.default", draws=True)
def binomial(count: Array, prob: Array, draws: Draws) -> Array:
    """The successes among ``count`` trials of probability ``prob``, in the type of the first."""
    require_type("binomial", is_float, count, prob)
    trials, chances = np.broadcast_arrays(count.astype("float64"), prob.astype("float64"))
    most = float(trials.max(initial=0))
    is_right = ((chances >= 0) & (chances <= 1) & (trials >= 0) & np.isfinite(trials)).all()
    if not is_right or trials.size * (most + 1) > _MOST:
        raise InvalidIRError(f"up to {most:g} trials are not drawn")
    n, p = np.trunc(trials).reshape(-1, 1), chances.reshape(-1, 1)
    places, table = np.arange(int(most) + 1), _log_factorials(int(most) + 1)
    rest = np.maximum(n - places, 0).astype("int64")
    ways = table[n.astype("int64")] - table - table[rest]
    first, second = (np.where(k == 0, 0, k * np.log(q)) for k, q in ((places, p), (rest, 1 - p)))
    logarithms = np.where(places <= n, ways + first + second, -np.inf)
    drawn = draws.uniform(trials.shape, np.dtype("float64"))
    return _counted(logarithms, drawn, trials.shape, count.dtype)
