"""Random numbers by counter: which they are, and how they are distributed."""

from __future__ import annotations

import numpy as np
import pytest

from torch_ir.semantics.draws import Draws
from torch_ir.semantics.dtypes import numpy_dtype

MANY = 200_000


def test_draws_depend_on_seed_and_name_alone() -> None:
    first = Draws(1, "rand").words(4)
    assert first.tolist() == Draws(1, "rand").words(4).tolist()
    assert first.tolist() == Draws(1, "rand").words(9)[:4].tolist()
    others = [
        Draws(0, "rand"),
        Draws(1, "rand_1"),
        Draws(11, "/rand"),
        Draws(1, "rand").named("p"),
    ]
    assert len({tuple(draws.words(4)) for draws in (*others, Draws(1, "rand"))}) == 5


def test_the_words_are_philox_under_the_hashed_key() -> None:
    """Ten rounds of the definition, in integers, give the numbers of the first block."""
    import hashlib

    mask = 2**64 - 1
    digest = hashlib.sha256(b"7/node").digest()
    key = [int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:16], "little")]
    counter = [1, 0, 0, 0]  # NumPy counts before it makes a block
    for _ in range(10):
        low, high = counter[0] * 0xD2E7470EE14C6C93, counter[2] * 0xCA5A826395121157
        counter = [
            (high >> 64) ^ counter[1] ^ key[0],
            high & mask,
            (low >> 64) ^ counter[3] ^ key[1],
            low & mask,
        ]
        key = [(key[0] + 0x9E3779B97F4A7C15) & mask, (key[1] + 0xBB67AE8584CAA73B) & mask]
    assert Draws(7, "node").words(4).tolist() == counter


@pytest.mark.parametrize("name", ["float64", "float32", "float16", "bfloat16"])
def test_uniform_numbers_fill_the_unit_interval(name: str) -> None:
    values = Draws(0, "u").uniform([MANY], numpy_dtype(name)).astype(np.float64)
    assert values.min() >= 0
    assert values.max() < 1
    assert abs(values.mean() - 0.5) < 0.005
    assert abs(values.var() - 1 / 12) < 0.001


def test_normal_numbers_have_the_moments_of_the_distribution() -> None:
    values = Draws(0, "n").normal([2, MANY], np.dtype("float64"))
    assert values.shape == (2, MANY)
    moments = [np.mean(values**k) for k in (1, 2, 3, 4)]
    np.testing.assert_allclose(moments, [0, 1, 0, 3], atol=0.03)
    assert abs(np.mean(np.abs(values) < 1.959964) - 0.95) < 0.002
    assert abs(np.corrcoef(values)[0, 1]) < 0.01


def test_integers_bernoulli_and_permutations() -> None:
    integers = Draws(0, "i").integers(-3, 5, [MANY])
    assert integers.dtype == np.int64
    np.testing.assert_allclose(np.bincount(integers + 3) / MANY, np.full(8, 1 / 8), atol=0.005)
    probability = np.linspace(0, 1, 11).repeat(MANY // 10)
    drawn = Draws(0, "b").bernoulli(probability).reshape(11, -1)
    np.testing.assert_allclose(drawn.mean(1), np.linspace(0, 1, 11), atol=0.01)
    assert sorted(Draws(0, "p").permutation(100)) == list(range(100))
    assert Draws(0, "p").permutation(0).dtype == np.int64
