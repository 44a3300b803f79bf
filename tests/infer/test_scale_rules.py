"""Scales of resampling: a kernel that would read beyond its tensors is not called."""

from __future__ import annotations

import itertools

import pytest
import torch

from infer.trusting_calls import eager, in_child, refusals
from older_torch import since_2_13
from torch_ir.infer.preconditions.table import PRECONDITIONS

LANCZOS = since_2_13("has no resampling by Lanczos filters")
RESAMPLING = [
    pytest.param(name, marks=LANCZOS) if "lanczos" in name else name
    for name in PRECONDITIONS
    if "upsample" in name and name.endswith(".default")
]
ELEMENTS = 5


def call_of(op_type, count, scale):
    """A call that makes so many places of five elements on the first axis, three of three on the
    others."""
    rank = next(rank for rank in (1, 2, 3) if f"{rank}d" in op_type)
    goal, sizes = [count, 3, 3][:rank], [ELEMENTS, 3, 3][:rank]
    name = "scales" if rank == 1 else "scales_h" if rank == 2 else "scales_d"
    shape = goal if "backward" in op_type else sizes
    tensor = torch.arange(2.0 * torch.Size(shape).numel()).reshape(1, 2, *shape)
    is_back = "backward" in op_type
    return {
        "grad_output" if is_back else "self": tensor,
        "output_size": goal,
        **({"input_size": [1, 2, *sizes]} if is_back else {}),
        **({} if "nearest" in op_type else {"align_corners": False}),
        name: scale,
    }


@pytest.mark.parametrize("op_type", RESAMPLING)
def test_no_scale_ends_the_process(op_type):
    scales = [10.0**exponent for exponent in range(-320, 310, 30)]
    scales += [1e-19, 1e-18, 0.3, 0.7, 1.3, -1.0, 0.0, float("inf"), float("nan")]
    ends = in_child(
        lambda: [
            refusals(op_type, call_of(op_type, count, scale))[1]
            for scale, count in itertools.product(scales, (1, 7, 300))
        ]
    )
    assert {end.partition(": ")[0] for end in ends} == {"ran", "refused"}, set(ends)


@pytest.mark.parametrize("op_type", RESAMPLING)
def test_scales_that_fit_their_sizes_are_taken(op_type):
    for scale in (0.2, 0.25, 0.5, 0.6, 0.99, 1.0, 1.19, 1.2, 1.7, 2.0, 3.1, 100.0):
        call = call_of(op_type, int(ELEMENTS * scale), scale)
        assert refusals(op_type, call, [eager(op_type, call)]) == ("ran", "ran")


@pytest.mark.parametrize("kind", ["bilinear", "bicubic", pytest.param("lanczos", marks=LANCZOS)])
@pytest.mark.parametrize(("count", "scale"), [(4_000_000, 0.5), (300, 0.9), (1, 1e-10)])
def test_filters_do_not_begin_behind_the_last_element(kind, count, scale):
    op_type = f"aten._upsample_{kind}2d_aa.default"
    told, refused = in_child(lambda: refusals(op_type, call_of(op_type, count, scale)))
    assert told == "refused-arguments"
    why = "which is too small for 1 places" if count == 1 else f"where 5 elements become {count}"
    assert refused.endswith(f" scales_h is {scale}, {why}")
