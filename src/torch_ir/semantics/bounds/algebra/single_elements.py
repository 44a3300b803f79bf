"""The terms of single elements of products, of which each has too many for all to be looked at.

Bounds of products of matrices and convolutions know the sizes of what is added, and not how
roundings of it go one way. Where an element is out of its bound, its own terms tell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from torch_ir.ops.flops import FACTORS
from torch_ir.semantics.bounds import sums
from torch_ir.semantics.bounds.call import BoundedCall, Rule
from torch_ir.semantics.dtypes import Array, is_float
from torch_ir.semantics.windows import per_axis

_FACTORS = {f"aten.{name}.default": arguments for name, arguments in FACTORS.items()}


def of_product(call: BoundedCall, places: Array) -> Array | None:
    """Return the products that are added for some elements of a product, a row for each.

    None for a product by another name, which has no table of its factors.
    """
    if call.op_type not in _FACTORS:
        return None
    first, second, added = _FACTORS[call.op_type]
    rows, columns = call.wide(first), call.wide(second)
    if call.op_type == "aten.linear.default":
        columns = columns.T
    rows = rows[None] if rows.ndim == 1 else rows
    columns = columns[:, None] if columns.ndim == 1 else columns
    batch = np.broadcast_shapes(rows.shape[:-2], columns.shape[:-2])
    *outer, row, column = np.unravel_index(places, (*batch, rows.shape[-2], columns.shape[-1]))
    columns = np.moveaxis(columns, -1, -2)
    terms = np.broadcast_to(rows, (*batch, *rows.shape[-2:]))[(*outer, row)]
    terms = terms * np.broadcast_to(columns, (*batch, *columns.shape[-2:]))[(*outer, column)]
    terms = terms * call.arguments.get("alpha", 1)
    return _with(call, terms, call[added] if added else None, places)


def of_convolution(call: BoundedCall, places: Array) -> Array | None:
    """Return the products that are added for some elements of a convolution, a row for each.

    None for one that is transposed, a gradient, or padded by name.
    """
    images, weight = call.wide("input"), call.wide("weight")
    rank, (result,) = weight.ndim - 2, call.results[:1]
    given = [call.arguments.get(name, least) for name, least in _WINDOWS]
    is_plain = call.op_type in _FORWARD and not call["transposed"]
    if not is_plain or any(isinstance(one, str) for one in given):
        return None
    stride, padding, dilation = (
        per_axis(one, rank, name) for one, (name, _) in zip(given, _WINDOWS, strict=True)
    )
    batched = (images, result) if images.ndim > rank + 1 else (images[None], result[None])
    sample, channel, *at = np.unravel_index(places, batched[1].shape)
    padded = np.pad(batched[0], [(0, 0), (0, 0), *((size, size) for size in padding)])
    per_group = weight.shape[0] // call.arguments.get("groups", 1)
    inputs = (channel // per_group * weight.shape[1])[:, None] + np.arange(weight.shape[1])
    index = [_along(sample[:, None], 0, rank), _along(inputs, 0, rank)]
    for axis, (start, step, apart) in enumerate(zip(at, stride, dilation, strict=True)):
        taken = (start * step)[:, None] + np.arange(weight.shape[2 + axis]) * apart
        index.append(_along(taken, 1 + axis, rank))
    terms = (padded[tuple(index)] * weight[channel]).reshape(len(places), -1)
    bias = call["bias"]
    shaped = None if bias is None else bias.reshape(-1, *[1] * rank)
    return _with(call, terms, shaped, places)


_WINDOWS = (("stride", 1), ("padding", 0), ("dilation", 1))
_FORWARD = frozenset(
    f"aten.{name}.default" for name in ("conv1d", "conv2d", "conv3d", "convolution")
)


def _along(index: Array, axis: int, rank: int) -> Array:
    """An index of rows as one of windows: along their channels (0), or one of their axes."""
    shape = [len(index), *[1] * (rank + 1)]
    shape[1 + axis] = index.shape[1]
    return index.reshape(shape)


def _with(call: BoundedCall, terms: Array, added: Any, places: Array) -> Array:
    """The terms with what is added to the product, as one term more."""
    beta = call.arguments.get("beta", 1)
    if added is None or not beta:
        return terms
    (result, *_) = call.results
    more = np.broadcast_to(added, result.shape).reshape(-1)[places]
    return np.concatenate([terms, beta * more.astype("float64")[:, None]], axis=1)


TERMS: Mapping[Rule, Callable[[BoundedCall, Array], Array | None]] = {
    sums.product: of_product,
    sums.convolution: of_convolution,
}
"""The rules whose bounds leave out how far roundings go one way, and the terms that tell."""


def drift_of(call: BoundedCall, rule: Rule, places: Array) -> Array:
    """Return how far roundings may take some elements of the first result one way.

    Args:
        call: The call.
        rule: What bounds it.
        places: The elements, by their places in the result as one row.
    """
    (result, *_) = call.results
    terms = TERMS[rule](call, places) if is_float(result.dtype) else None
    if terms is None:
        return np.zeros(len(places))
    drift = call.drift(terms, (1,), keepdims=False)
    return call.unit * drift * np.sum(np.abs(terms), axis=1)
