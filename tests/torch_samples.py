"""torch's own samples of its operators, as its tests have them."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import SEED, set_rng_seed

__all__ = ["first_samples", "op_db"]


def first_samples(
    entry: Any, dtype: torch.dtype, count: int, *, requires_grad: bool = False
) -> Iterator[Any]:
    """Yield the first samples of an entry of ``op_db``, each made with the same seed.

    torch's iterator is not taken: for each it looks through the sources of the whole stack for a
    test of unittest, and what it leaves unfinished is collected at any time later. That turns
    gradients off and on, which a trace that runs then records.
    """
    made = iter(entry.sample_inputs_func(entry, "cpu", dtype, requires_grad))
    try:
        for _ in range(count):
            set_rng_seed(SEED)
            try:
                sample = next(made)
            except StopIteration:
                return
            yield sample
    finally:
        if isinstance(made, Generator):
            made.close()
