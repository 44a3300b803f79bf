"""torch's own error is within bounds on numbers of every size: pointwise operators on random bits.

Samples of usual sizes never overflow on the way, and quotients of theirs are small.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import torch

from semantics.compare import operator
from semantics.test_tolerance import bounds_of
from torch_ir.semantics import denoted_operators

INTEGERS = {torch.float16: torch.int16, torch.bfloat16: torch.int16, torch.float32: torch.int32}
SIZE = 800
OPEN = {
    "aten.fmax.default": "of a signaling NaN and a number torch gives NaN",
    "aten.fmin.default": "as fmax",
}
"""What the law leaves out, with the reason."""


def pointwise() -> list[str]:
    """The overloads that take one or two tensors of numbers and nothing else that must be said."""
    found = []
    for op_type in sorted(denoted_operators()):
        is_left_out = op_type in OPEN or "_polynomial_" in op_type  # whose degrees are small
        _, packet, overload = (*op_type.split("."), "", "")[:3]
        op = getattr(getattr(torch.ops.aten, packet, None), overload, None)
        if is_left_out or not op_type.startswith("aten.") or op is None:
            continue
        if torch.Tag.pointwise not in op.tags or _kinds(op._schema.returns) != ["Tensor"]:
            continue
        kinds = _kinds(a for a in op._schema.arguments if not a.has_default_value())
        if kinds in (["Tensor"], ["Tensor", "Tensor"], ["Tensor", "Tensor", "Optional[str]"]):
            found.append(op_type)
    return found


def _kinds(values: Iterable[Any]) -> list[str]:
    return [str(value.type) for value in values]


def numbers(dtype: torch.dtype, seed: int) -> list[torch.Tensor]:
    """Random bits, numbers as far from 1 as products of a few, and where exponentials overflow."""
    generator = torch.Generator().manual_seed(seed)
    bits = 8 * dtype.itemsize - 1
    drawn = torch.randint(-(2**bits), 2**bits, (SIZE,), generator=generator)
    normal = torch.randn(3, SIZE, generator=generator, dtype=torch.float64)
    return [
        drawn.to(INTEGERS[dtype]).view(dtype),
        (normal[0] * (3 * normal[1]).exp()).to(dtype),
        (60 * normal[2]).to(dtype),
    ]


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("op_type", pointwise())
def test_own_errors_are_within_bounds(op_type: str, dtype: torch.dtype) -> None:
    for first, second in zip(numbers(dtype, 1), numbers(dtype, 2), strict=True):
        given = [a for a in operator(op_type)._schema.arguments if not a.has_default_value()]
        operands = (first, second)[: _kinds(given).count("Tensor")]
        modes = (None, "floor", "trunc") if op_type.endswith("_mode") else (None,)
        for mode in modes:
            named = {"rounding_mode": mode} if len(modes) > 1 else {}
            try:
                operator(op_type)(*operands, **named)
            except (RuntimeError, NotImplementedError):
                return  # torch has no kernel for the type, or needs a limit
            with np.errstate(all="ignore"):
                meant, got, allowed = bounds_of(op_type, *operands, **named)
            m, g, a = meant[0], got[0], np.broadcast_to(allowed[0], meant[0].shape)
            is_open = np.isinf(a)
            assert np.array_equal(np.isnan(m)[~is_open], np.isnan(g)[~is_open])
            differs = (m != g) & ~np.isnan(m) & ~np.isnan(g)
            with np.errstate(invalid="ignore"):
                off = differs & ~(np.abs(m - g) <= a)
            places = [(*(x[i].item() for x in operands), m[i], g[i]) for i in np.nonzero(off)[0]]
            assert not places[:3], mode
