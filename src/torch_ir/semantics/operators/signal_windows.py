"""Windows of signals, and the frequencies of transforms.

A window of n elements is a function of ``i / (n - 1)``; a periodic one is a longer one without its
last element. Of one element it is 1. Source: torch.signal's pages and torch.fft.fftfreq.
"""

from __future__ import annotations

from collections.abc import Callable
from math import floor, pi
from typing import Any

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.dtypes import (
    DEFAULT_FLOAT,
    Array,
    is_complex,
    is_float,
    is_integer,
    rounded,
)
from torch_ir.semantics.registry import denotes

DType = np.dtype[Any]


def _window(
    function: Callable[[Array], Array], length: int, periodic: bool, dtype: DType | None
) -> Array:
    kind = dtype or DEFAULT_FLOAT
    has_type = is_float(kind) or (is_complex(kind) and length < 2)  # ones, whatever the window
    if length < 0 or not has_type:
        raise InvalidIRError(f"there is no window of {length} elements of {kind}")
    if length < 2:
        return np.ones(length, kind)
    places = np.arange(length) / (length - 1 + bool(periodic))
    return rounded(function(places), kind)


@denotes(
    *("aten.hamming_window.default", "aten.hamming_window.periodic"),
    *("aten.hamming_window.periodic_alpha", "aten.hamming_window.periodic_alpha_beta"),
)
def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    dtype: DType | None = None,
) -> Array:
    """``alpha - beta cos 2πx``."""
    return _window(lambda x: alpha - beta * np.cos(2 * pi * x), window_length, periodic, dtype)


@denotes("aten.blackman_window.default", "aten.blackman_window.periodic")
def blackman_window(
    window_length: int, periodic: bool = True, dtype: DType | None = None
) -> Array:
    """``0.42 - 0.5 cos 2πx + 0.08 cos 4πx``."""

    def function(x: Array) -> Array:
        return 0.42 - 0.5 * np.cos(2 * pi * x) + 0.08 * np.cos(4 * pi * x)

    return _window(function, window_length, periodic, dtype)


@denotes("aten.bartlett_window.default", "aten.bartlett_window.periodic")
def bartlett_window(
    window_length: int, periodic: bool = True, dtype: DType | None = None
) -> Array:
    """``1 - |2x - 1|``."""
    return _window(lambda x: 1 - np.abs(2 * x - 1), window_length, periodic, dtype)


@denotes("aten.kaiser_window.default", "aten.kaiser_window.periodic", "aten.kaiser_window.beta")
def kaiser_window(
    window_length: int, periodic: bool = True, beta: float = 12.0, dtype: DType | None = None
) -> Array:
    """``I₀(β √(1 - (2x - 1)²)) / I₀(β)``."""

    def function(x: Array) -> Array:
        return np.i0(beta * np.sqrt(np.maximum(1 - (2 * x - 1) ** 2, 0))) / np.i0(beta)

    return _window(function, window_length, periodic, dtype)


@denotes("aten.fft_fftfreq.default")
def fftfreq(n: int, d: float = 1.0, dtype: DType | None = None) -> Array:
    """``k / (n d)``: k from 0, then from ``-⌊n / 2⌋`` up to -1."""
    places = np.arange(n)
    signed = np.where(places < (n + 1) // 2, places, places - n)
    return rounded(signed / (n * d), dtype or DEFAULT_FLOAT)


@denotes("aten.fft_rfftfreq.default")
def rfftfreq(n: int, d: float = 1.0, dtype: DType | None = None) -> Array:
    """``k / (n d)`` for k from 0 to ``⌊n / 2⌋``."""
    return rounded(np.arange(n // 2 + 1) / (n * d), dtype or DEFAULT_FLOAT)


@denotes("aten.range.default", "aten.range.step")
def inclusive_range(
    start: float, end: float, step: float = 1, dtype: DType | None = None
) -> Array:
    """``start + i · step`` up to ``end``, which is among them; float32 without a type.

    For a type of integers all three are cut off toward zero before.
    """
    kind = dtype or DEFAULT_FLOAT
    whole = tuple(map(int, (start, end, step))) if is_integer(kind) else (start, end, step)
    first, last, by = whole
    if by == 0 or (end - start) * step < 0 or (last - first) * by < 0:
        raise InvalidIRError(f"a step of {step} does not lead from {start} to {end}")
    return rounded(first + np.arange(floor((last - first) / by) + 1) * by, kind)
