"""Bounds of the gradients of attention."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from torch_ir.semantics.bounds.call import BLOCK, BoundedCall, Errors, least_normal
from torch_ir.semantics.bounds.rows import FAST_EXPONENTIAL, FEW, weights_of
from torch_ir.semantics.dtypes import Array

QUERIES = 32
"""How many queries, at least, fused kernels take together."""


def attention_backward(call: BoundedCall) -> Errors:
    """Bound the gradients of attention by the errors of scores, weights and products with them.

    A weight is off by its score's error, ``g · valueᵀ - Σ g · out`` by those of two products, and
    each gradient by what it adds up. Narrow types keep weights, and what they are off, as such.
    """
    weights, scores, absolute = _given_weights(call)
    gradient, query, key, value, out = (
        call.size(name) for name in ("grad_out", "query", "key", "value", "out")
    )
    width, keys, queries = query.shape[-1], key.shape[-2], query.shape[-2]
    factor = abs(call["scale"]) if call["scale"] is not None else 1 / sqrt(max(width, 1))
    spans = (width, keys, queries)
    steps, over_keys, over_queries = (2 * FEW + call.depth(max(n, 1), BLOCK) for n in spans)
    logs = np.nan_to_num(call.size("logsumexp"), posinf=0.0)[..., None]
    size = np.nan_to_num(np.abs(scores), posinf=0.0)
    relative = np.expm1(call.unit * (steps * absolute + size + logs + FEW))
    if call.is_narrow:
        relative = relative + call.result_unit + FAST_EXPONENTIAL
    shares = np.sum(gradient * out, axis=-1, keepdims=True)
    apart = gradient @ value.swapaxes(-1, -2) + shares
    moved = weights * apart
    off = factor * moved * (relative + call.unit * steps)
    kept = weights * (relative + call.unit * over_queries)
    if call.is_narrow:
        off, kept = off + call.stepped(1, factor * moved), kept + call.stepped(1, weights)
    kept = kept + least_normal(call.dtype)  # what a weight is that is flushed to 0
    pairs = (
        (off + call.unit * over_keys * factor * moved, factor * moved, key, keys),
        (off + call.unit * over_queries * factor * moved, factor * moved, query, queries),
        (kept, weights, gradient, queries),
    )
    errors: list[Any] = []
    for index, (error, sizes, operand, count) in enumerate(pairs):
        turned = [part if not index else part.swapaxes(-1, -2) for part in (error, sizes)]
        total = turned[0] @ operand
        if call.is_narrow:  # blocks of a sum are added in the type
            total = total + call.stepped(1 + count // QUERIES, turned[1] @ operand)
        errors.append(total)
    way = np.max(absolute, initial=0) * sqrt(max(width, 1)) + np.max(apart, initial=0)
    return [call.opened(error, way, call.results[0].dtype) for error in errors]


def _given_weights(call: BoundedCall) -> tuple[Array, Array, Array]:
    """The weights by a given logarithm of their sum, the scores, and ``scale · Σ |q · k|``."""
    _, _, scores, absolute = weights_of(call)
    powers = np.exp(scores - call.wide("logsumexp")[..., None])
    return np.where(np.isneginf(scores), 0, powers), scores, absolute
