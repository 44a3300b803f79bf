"""Scaled dot-product attention.

``softmax(query · keyᵀ · scale + mask) · value`` over the last two axes, with ``scale`` 1/√(width
of the query) if none is given. All of it in float64, rounded once.

Source: torch.nn.functional.scaled_dot_product_attention.
"""

from __future__ import annotations

from math import inf, sqrt

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.dtypes import Array, is_bool, is_float, rounded, working
from torch_ir.semantics.registry import denotes


def scores_of(
    query: Array, key: Array, mask: Array | None, is_causal: bool, scale: float | None
) -> Array:
    """Return ``query · keyᵀ · scale + mask``; -inf where a pair is left out."""
    width = query.shape[-1]
    factor = (1 / sqrt(width) if width else 1.0) if scale is None else scale
    scores = query @ key.swapaxes(-1, -2) * factor
    if mask is not None:
        adds = not is_bool(mask.dtype)
        scores = scores + mask.astype(scores.dtype) if adds else np.where(mask, scores, -inf)
    if is_causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -inf)
    return scores


def _softmax(scores: Array) -> tuple[Array, Array]:
    """The softmax over the last axis, and log Σ exp; both 0 where all of the axis is -inf."""
    greatest = scores.max(axis=-1, keepdims=True, initial=-inf)
    greatest = np.where(np.isneginf(greatest), 0, greatest)
    shifted = np.exp(scores - greatest)
    total = shifted.sum(axis=-1, keepdims=True)
    divisor = np.where(total == 0, 1, total)
    return shifted / divisor, (np.log(divisor) + greatest)[..., 0]


def _attention(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None,
    is_causal: bool,
    scale: float | None,
    dropout_p: float,
    enable_gqa: bool = False,
) -> tuple[Array, Array, Array]:
    """The result, the weights and log Σ exp of the scores, in working precision."""
    if dropout_p:
        raise InvalidIRError("attention that drops weights at random has no denotation")
    _require(query, key, value)
    wide = working(query.dtype)
    if enable_gqa:
        key, value = (_for_heads(values, query.shape[-3]) for values in (key, value))
    query, key, value = (values.astype(wide) for values in (query, key, value))
    weights, logarithms = _softmax(scores_of(query, key, mask, is_causal, scale))
    return weights @ value, weights, logarithms


def _require(query: Array, key: Array, value: Array) -> None:
    operands = (query, key, value)
    same = all(values.dtype == query.dtype and values.ndim >= 2 for values in operands)
    if not same or query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        shapes = ", ".join(f"{values.dtype}{list(values.shape)}" for values in operands)
        raise InvalidIRError(f"attention takes no operands {shapes}")
    if not is_float(query.dtype):
        raise InvalidIRError(f"attention is of floating-point numbers, not {query.dtype}")


def _for_heads(values: Array, heads: int) -> Array:
    """Each head as often, one after the other, as there are heads of the query to one of it."""
    if not values.shape[-3] or heads % values.shape[-3]:
        raise InvalidIRError(f"{heads} heads cannot share {values.shape[-3]}")
    return values.repeat(heads // values.shape[-3], axis=-3)


@denotes("aten.scaled_dot_product_attention.default")
def scaled_dot_product_attention(
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Array | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Array:
    """``softmax(query · keyᵀ · scale + attn_mask) · value``.

    A boolean mask leaves pairs out where it is False; ``is_causal`` those with a key after the
    query, both counted from 0. A query with no key at all gets 0. With ``enable_gqa`` each head
    of key and value serves several heads of the query, in order.
    Shapes: [*, l, e], [*, s, e], [*, s, v] → [*, l, v]; the mask broadcasts to [*, l, s].
    """
    result, _, _ = _attention(
        query, key, value, attn_mask, is_causal, scale, dropout_p, enable_gqa
    )
    return rounded(result, query.dtype)


@denotes("aten._scaled_dot_product_flash_attention_for_cpu.default")
def scaled_dot_product_flash_attention_for_cpu(
    query: Array,
    key: Array,
    value: Array,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Array | None = None,
    scale: float | None = None,
) -> tuple[Array, Array]:
    """:func:`scaled_dot_product_attention`, and log Σₛ exp of the scores, 0 without a key.

    Shapes of the second: [n, heads, l]; dtype: float64 for float64, else float32.
    """
    result, _, logarithms = _attention(query, key, value, attn_mask, is_causal, scale, dropout_p)
    wide = np.dtype("float64" if query.dtype == np.float64 else "float32")
    return rounded(result, query.dtype), rounded(logarithms, wide)


@denotes("aten._scaled_dot_product_attention_math.default")
def scaled_dot_product_attention_math(
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Array | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    dropout_mask: Array | None = None,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[Array, Array]:
    """:func:`scaled_dot_product_attention`, and the weights of each pair [*, l, s].

    The mask is added, a boolean one as 0 and 1; the function above replaces it before.
    """
    if attn_mask is not None:
        if is_causal:
            raise InvalidIRError("attention is causal or has a mask, not both")
        attn_mask = attn_mask.astype(working(query.dtype))
    if dropout_mask is not None:
        raise InvalidIRError("attention with a mask for its dropout has no denotation")
    result, weights, _ = _attention(
        query, key, value, attn_mask, is_causal, scale, dropout_p, enable_gqa
    )
    return rounded(result, query.dtype), rounded(weights, query.dtype)


@denotes("aten._scaled_dot_product_flash_attention_for_cpu_backward.default")
def flash_attention_backward(
    grad_out: Array,
    query: Array,
    key: Array,
    value: Array,
    out: Array,
    logsumexp: Array,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Array | None = None,
    scale: float | None = None,
) -> tuple[Array, Array, Array]:
    """The gradients of attention by the query, the key and the value.

    With the weights ``p = exp(scores - logsumexp)`` and ``s = p · (g · valueᵀ - Σ g · out)``:
    ``scale · s · key``, ``scale · sᵀ · query`` and ``pᵀ · g``.
    """
    if dropout_p:
        raise InvalidIRError("attention that drops weights at random has no denotation")
    _require(query, key, value)
    wide, width = working(query.dtype), query.shape[-1]
    gradient, q, k, v, made = (a.astype(wide) for a in (grad_out, query, key, value, out))
    factor = (1 / sqrt(width) if width else 1.0) if scale is None else scale
    scores = scores_of(q, k, attn_mask, is_causal, scale)
    weights = np.where(np.isneginf(scores), 0, np.exp(scores - logsumexp[..., None]))
    share = np.sum(gradient * made, axis=-1, keepdims=True)
    moved = weights * (gradient @ v.swapaxes(-1, -2) - share)
    gradients = (
        moved @ k * factor,
        moved.swapaxes(-1, -2) @ q * factor,
        weights.swapaxes(-1, -2) @ gradient,
    )
    first, second, third = (rounded(part, query.dtype) for part in gradients)
    return first, second, third
