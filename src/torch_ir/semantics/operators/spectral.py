"""Discrete Fourier transforms.

Along one axis of n elements ``X[k] = Σⱼ x[j] · exp(∓2πi · jk / n)``, - forward and + backward;
along several, one after the other. ``normalization`` 0 leaves the sum as it is, 1 divides by √N,
2 by N, where N is the number of elements that are summed. NumPy's fast transform in complex128
computes the sums; the tests compare it with them.

Source: torch.fft; the enumeration ``fft_norm_mode`` of ATen.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod, sqrt

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.dtypes import Array, complex_of, is_complex, is_float, real_of, rounded
from torch_ir.semantics.registry import denotes


def _scale(count: int, normalization: int) -> float:
    if normalization not in (0, 1, 2):
        raise InvalidIRError(f"normalization {normalization} is none of 0, 1 and 2")
    return (1.0, 1 / sqrt(count), 1 / count)[normalization]


def _axes(values: Array, dim: Sequence[int]) -> list[int]:
    """The axes; unlike elsewhere, they count from 0 only.

    Raises:
        InvalidIRError: One is out of range, twice there, or empty.
    """
    if any(not 0 <= axis < values.ndim for axis in dim):
        raise InvalidIRError(f"dim {list(dim)} is out of range for {values.ndim} axes")
    if len({*dim}) != len(dim) or any(values.shape[axis] == 0 for axis in dim):
        shape = list(values.shape)
        raise InvalidIRError(f"dim {list(dim)} of {shape} names an axis twice, or an empty one")
    return list(dim)


@denotes("aten._fft_r2c.default")
def fft_r2c(self: Array, dim: Sequence[int], normalization: int, onesided: bool) -> Array:
    """The forward transform of real numbers.

    ``onesided`` keeps only the first ``⌊n / 2⌋ + 1`` elements of the last axis in ``dim``: the
    others are the conjugates of these. Shapes: [*sizes] → the same, but for that axis; dtype: the
    complex one of the same precision.
    """
    if not is_float(self.dtype):
        raise InvalidIRError(f"the transform of real numbers takes no {self.dtype}")
    axes = _axes(self, dim)
    if not axes:
        raise InvalidIRError("the transform of real numbers is along one axis at least")
    total = np.fft.fftn(self.astype("float64"), axes=axes)
    total = total * _scale(prod(self.shape[axis] for axis in axes), normalization)
    if onesided:
        kept = [slice(None)] * self.ndim
        kept[axes[-1]] = slice(self.shape[axes[-1]] // 2 + 1)
        total = total[tuple(kept)]
    return rounded(total, complex_of(self.dtype))


@denotes("aten._fft_c2r.default")
def fft_c2r(self: Array, dim: Sequence[int], normalization: int, last_dim_size: int) -> Array:
    """The backward transform to real numbers: the inverse of :func:`fft_r2c`, one-sided.

    The ``⌊last_dim_size / 2⌋ + 1`` elements of the last axis in ``dim`` stand for
    ``last_dim_size``, of which the others are their conjugates; the imaginary parts of the first
    and, for an even size, the last one do not count.
    dtype: the real one of the same precision.
    """
    if not is_complex(self.dtype):
        raise InvalidIRError(f"the transform to real numbers takes no {self.dtype}")
    axes = _axes(self, dim)
    if not axes or last_dim_size < 1 or self.shape[axes[-1]] != last_dim_size // 2 + 1:
        shape = list(self.shape)
        raise InvalidIRError(f"dim {axes} of {shape} is no half of {last_dim_size} elements")
    others, last = axes[:-1], axes[-1]
    count = last_dim_size * prod(self.shape[axis] for axis in others)
    total = np.fft.ifftn(self.astype("complex128"), axes=others, norm="forward")
    total = np.fft.irfft(total, last_dim_size, axis=last, norm="forward")
    return rounded(total * _scale(count, normalization), real_of(self.dtype))


@denotes("aten._fft_c2c.default")
def fft_c2c(self: Array, dim: Sequence[int], normalization: int, forward: bool) -> Array:
    """The transform of complex numbers, forward or backward; shape and dtype: the same."""
    if not is_complex(self.dtype):
        raise InvalidIRError(f"the transform of complex numbers takes no {self.dtype}")
    axes = _axes(self, dim)
    values = self.astype("complex128")
    if forward:
        total = np.fft.fftn(values, axes=axes)
    else:
        total = np.fft.ifftn(values, axes=axes, norm="forward")
    scale = _scale(prod(self.shape[axis] for axis in axes), normalization)
    return rounded(total * scale, self.dtype)
