"""Preconditions of operators that walk several lists of tensors at once."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from torch_ir.infer.preconditions.faults import Arguments, Faults, unlike

_STATE = (
    *("grads", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs", "momentum_buffer_list"),
    *("state_sums", "out"),
)


def optimized(call: Arguments) -> Faults:
    """Yield what is wrong with the lists of a fused step of an optimizer."""
    params = call["self"]
    unused = {"max_exp_avg_sqs": not call.get("amsgrad", True)}
    unused["momentum_buffer_list"] = call.get("momentum", 1.0) == 0
    for name in (*_STATE, "state_steps"):
        if name not in call or (unused.get(name, False) and not call[name]):
            continue
        if len(call[name]) != len(params):
            yield f"{name} has {len(call[name])} tensors, where self has {len(params)}"
        for position, (item, param) in enumerate(zip(call[name], params, strict=True)):
            if name != "out":  # whose tensors become as large as they have to be
                shape = [] if name == "state_steps" else param.shape
                yield from unlike(f"{name}[{position}]", item, shape)


def dense(call: Arguments) -> Faults:
    """Yield what is wrong with the memory of the tensors of a fused step of an optimizer."""
    params: Sequence[torch.Tensor] = call["self"]
    for name in ("self", *_STATE):
        for position, item in enumerate(call.get(name, ())):
            is_like = item.stride() == params[position].stride() or name == "out"
            if not (is_like and torch.ops.aten.is_non_overlapping_and_dense(item)):
                yield f"{name}[{position}] does not lie in memory as self[{position}] has to"


def copied(call: Arguments) -> Faults:
    """Yield what is wrong with the lists of a copy of one into the other."""
    for name in ("src", "out"):
        if name in call and len(call[name]) != len(call["self"]):
            yield f"{name} has {len(call[name])} tensors, where self has {len(call['self'])}"
    if not call["self"]:
        yield "self has no tensors"


def in_chunks(call: Arguments) -> Faults:
    """Yield what is wrong with the tensors of which ``_chunk_cat`` takes chunks along a dim."""
    dim = call["dim"] + (len(call["tensors"][0].shape) if call["dim"] < 0 else 0)
    for index, tensor in enumerate(call["tensors"]):
        if len(tensor.shape) <= dim:
            yield f"tensor {index} is {[*tensor.shape]}, and has to have a dimension {dim}"
