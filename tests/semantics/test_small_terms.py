"""Small terms behind a large one: kernels lose all of them, and are right."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from semantics.compare import operator
from semantics.test_training import error, error_of_result

UNIT = 2.0**-24
COUNTS = (500, 5_000, 100_000)


def terms(count: int) -> torch.Tensor:
    """One, and many that are less than half of the distance from 1 to the next number."""
    drawn = torch.rand(count, generator=torch.Generator().manual_seed(count)) * UNIT * 0.9
    drawn[0] = 1
    return drawn


def _calls(count: int) -> dict[str, tuple[Any, ...]]:
    parts = terms(count)
    roots, logs = parts.sqrt(), parts.log()
    places = torch.arange(count) % 7 // 6
    column = logs[:, None].expand(count, 4).contiguous()
    return {
        "linalg_vector_norm.default": (parts, 3),
        "linalg__powsum.default": (parts, 1),
        "sum.default": (parts,),
        "cumsum.default": (parts, 0),
        "_softmax.default": (logs[None], 1, False),
        "_log_softmax.default": (column, 0, False),
        "logsumexp.default": (column, [0]),
        "_softmax_backward_data.default": (roots[None], roots[None], 1, torch.float32),
        "native_layer_norm.default": (roots[None], [count], None, None, 1e-5),
        "scatter_add.default": (torch.zeros(2), 0, places, parts),
        "index_add.default": (torch.zeros(2), 0, places, parts),
        "index_put.default": (torch.zeros(2), [places], parts, True),
        "embedding_dense_backward.default": (parts[:, None], places, 2, -1, False),
        "bincount.default": (places, parts),
        "native_batch_norm.default": (roots[:, None], *[None] * 4, True, 0.1, 1e-5),
    }


@pytest.mark.parametrize("name", _calls(500))
def test_kernels_that_lose_all_small_terms_are_right(name: str) -> None:
    for count in COUNTS:
        assert error(f"aten.{name}", *_calls(count)[name]) <= 1


def test_that_is_allowed_of_such_terms_alone() -> None:
    """A softmax of as many equal numbers is off by no more than a few units."""
    logits = torch.randn(1, 100_000, generator=torch.Generator().manual_seed(0))
    made = operator("aten._softmax.default")(logits, 1, False)
    wrong = made * (1 + 64 * UNIT)
    assert error("aten._softmax.default", logits, 1, False) <= 1
    with pytest.raises(AssertionError, match="of what is allowed"):
        error_of_result("aten._softmax.default", wrong, logits, 1, False)
