"""How far values are from what they mean, measured in little memory."""

import tracemalloc

import numpy as np
import pytest

from torch_ir.debug.reference import tolerance_check
from torch_ir.debug.reference.tolerance_check import Error, within


def noisy(size, dtype="float32"):
    draws = np.random.default_rng(0)
    meaning = draws.normal(size=size).astype(dtype)
    got = (meaning + draws.normal(size=size, scale=1e-6)).astype(dtype)
    got[draws.integers(0, size, size // 50)] = np.nan
    meaning[draws.integers(0, size, size // 50)] = np.inf
    return meaning, got, np.abs(draws.normal(size=size, scale=1e-6))


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("at_once", [1, 7, 100])
def test_a_measure_of_parts_is_that_of_all_at_once(dtype, at_once, monkeypatch):
    meaning, got, allowed = noisy(500, dtype)
    whole = within(meaning, got, allowed)
    assert whole.reason
    monkeypatch.setattr(tolerance_check, "AT_ONCE", at_once)
    assert within(meaning, got, allowed) == whole
    same = within(meaning, meaning.copy(), np.zeros(()))
    assert same == Error()


def test_a_measure_of_large_values_takes_less_memory_than_they():
    meaning, got, allowed = noisy(2**22)
    tracemalloc.start()
    try:
        found = within(meaning, got, allowed)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.part > 1
    assert peak < 2 * meaning.nbytes
