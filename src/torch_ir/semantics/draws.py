"""Random numbers by counter: what a node draws depends on the seed and its name, not on order.

This is not torch's stream. torch's generator gives each draw the state that earlier draws left,
so removing one dead node changes all later ones; here a node draws the same in every graph that
has it. What the two have in common is the distribution.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from torch_ir.semantics.dtypes import Array, is_complex, rounded, significant_bits


@dataclass(frozen=True, slots=True)
class Draws:
    """The random numbers of one node.

    The words are those of Philox 4×64 with 10 rounds, from counter 0, under the key that is the
    first 128 bits of the SHA-256 of ``"{seed}/{name}"``. Every method starts at the first word,
    so one node that draws twice gives the second draw another name (:meth:`named`).

    Source: J. K. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.

    Attributes:
        seed: The seed of the run.
        name: What draws: the node's name, behind those of the calls and iterations that it is in.

    Example:
        >>> Draws(0, "rand").uniform([2], np.dtype("float32"))
        array([0.57917 , 0.613939], dtype=float32)
        >>> Draws(0, "rand").permutation(4)
        array([3, 2, 0, 1])
    """

    seed: int
    name: str

    def named(self, part: str) -> Draws:
        """Return the independent draws of a named part of the node."""
        return Draws(self.seed, f"{self.name}/{part}")

    def words(self, count: int) -> Array:
        """Return the first random words, as uint64."""
        digest = hashlib.sha256(f"{self.seed}/{self.name}".encode()).digest()
        generator: Any = np.random.Philox(key=int.from_bytes(digest[:16], "little"))
        return np.asarray(generator.random_raw(count), np.uint64)

    def uniform(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """Draw ``k · 2⁻ᵖ`` for ``k`` uniform in ``0 … 2ᵖ − 1``, ``p`` the type's significant bits.

        So all results are exact and less than 1.
        """
        bits = significant_bits(dtype)
        whole = (self.words(prod(shape)) >> np.uint64(64 - bits)).astype(np.float64)
        return rounded(np.ldexp(whole, -bits), dtype).reshape(shape)

    def normal(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """Draw ``√(−2 ln(1 − u)) · cos 2πv`` for uniform ``u`` and ``v`` (Box and Muller).

        Of a complex number, each part is one.
        """
        if is_complex(dtype):
            parts = self.normal([*shape, 2], np.dtype("float64"))
            return rounded(parts.view(np.complex128)[..., 0], dtype)
        first, second = self.uniform([2, *shape], np.dtype("float64"))
        return rounded(np.sqrt(-2 * np.log1p(-first)) * np.cos(2 * np.pi * second), dtype)

    def integers(self, low: int, high: int, shape: Sequence[int]) -> Array:
        """Draw ``low + w mod (high − low)`` for random words ``w``, as int64.

        The remainders are uniform to within ``(high − low) / 2⁶⁴``.
        """
        remainders = self.words(prod(shape)) % np.uint64(high - low)
        wrapped = remainders + np.uint64(low % 2**64)
        return wrapped.astype(np.int64).reshape(shape)

    def bernoulli(self, probability: Array) -> Array:
        """Draw for each probability ``p`` whether a uniform number is less than ``p``."""
        return np.asarray(self.uniform(probability.shape, np.dtype("float64")) < probability)

    def gamma(self, shapes: Array) -> Array:
        """Draw from the gamma distribution with each shape, by Marsaglia's and Tsang's rejection.

        ``d v`` for ``v = (1 + x / √(9 d))³``, normal x and ``d = a - 1/3``, where a uniform number
        is less than ``exp(x²/2 + d - d v + d ln v)``: the first of 16, of which a twentieth at
        most is rejected. Of shapes below 1, that of ``a + 1`` times ``u^(1/a)``.
        """
        wide, float64 = shapes[..., None], np.dtype("float64")
        tries = (*shapes.shape, 16)
        x, u = self.normal(tries, float64), self.named("kept").uniform(tries, float64)
        with np.errstate(all="ignore"):
            d = np.where(wide < 1, wide + 1, wide) - 1 / 3
            v = np.maximum(1 + x / np.sqrt(9 * d), 0) ** 3
            is_kept = np.log1p(-u) < x**2 / 2 + d - d * v + d * np.log(v)
            first = np.argmax(is_kept, -1)[..., None]
            drawn = np.take_along_axis(np.broadcast_to(d * v, tries), first, -1)[..., 0]
            power = self.named("power").uniform(shapes.shape, float64)
            return np.where(shapes < 1, drawn * (1 - power) ** (1 / shapes), drawn)

    def permutation(self, count: int) -> Array:
        """Draw a permutation: the order that sorts the first ``count`` words, as int64."""
        return np.argsort(self.words(count), kind="stable").astype(np.int64)
