"""Bounds of products of rows, relative to the result, and of what they are on the way.

A product in a 16-bit type is rounded to it at each step. On the way it may overflow, or be less
than normal numbers, where the whole is neither: that follows from the order. Along a dimension
kernels multiply one factor after the other, or lanes of factors at regular places, which they join
in the end; of a whole tensor the order follows from its layout, and is any.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import log, sqrt
from typing import Any

import ml_dtypes
import numpy as np

from torch_ir.semantics.bounds.call import BLOCK, BoundedCall, Errors
from torch_ir.semantics.bounds.call import moduli as sizes_of
from torch_ir.semantics.bounds.sums import FEW, along, lost_products
from torch_ir.semantics.dtypes import Array, is_complex, is_inexact

_LANES = (32, 64, 128)
"""Elements of four vectors of 16-bit numbers."""


def running_product(call: BoundedCall) -> Errors:
    """Bound relative to the result: each factor rounds once."""
    (result,) = call.results
    if not is_inexact(result.dtype):
        return [None]
    is_whole = call["dim"] is None
    count = max(call["self"].size, 1) if is_whole else along(call)
    scale = 3 if is_complex(result.dtype) else 1
    # roundings of equal factors go one way, as those of sums do
    equal = _equal_factors(call, is_whole, result)
    steps = np.maximum(_greatest_walk(count, result.size), call.depth(count, BLOCK, equal))
    own, in_type = call.unit * (FEW + steps), _multiplies_in_type(call)
    if in_type:
        own = own + call.result_unit * steps
    error = own * scale * sizes_of(result)
    if in_type and not is_whole and call["self"].ndim:
        reach, lost = _in_order(call, result)
        return [call.opened(error + lost, reach, result.dtype)]
    # a partial product may overflow where the whole does not, or be less than normal numbers
    (reach,) = call.meant(self=np.maximum(sizes_of(call["self"]), 1))
    if call.is_narrow:
        error = error + lost_products(result, reach, sqrt(count))
    return [call.opened(error, reach, result.dtype if in_type else None)]


def _greatest_walk(count: int, size: int) -> float:
    """How far the greatest of so many walks goes, of so many steps of ``u / √3`` on average.

    Of N such walks the greatest is seldom more than ``√(2 ln 10 N)`` deviations.
    """
    return min(sqrt(2 * log(10 * max(size, 1)) * count / 3), count)


def _multiplies_in_type(call: BoundedCall) -> bool:
    return call.is_narrow and call.op_type != "aten.cumprod.default"


def _equal_factors(call: BoundedCall, is_whole: bool, result: Array) -> Any:
    """Which part of the factors of each product are equal: their roundings may go one way."""
    sizes = sizes_of(call["self"])
    if not sizes.ndim:
        return 0.0
    if is_whole:
        return call.repeats(sizes, range(sizes.ndim))
    keeps = result.ndim == sizes.ndim
    return call.repeats(sizes, [call["dim"] % sizes.ndim], keepdims=keeps)


def _in_order(call: BoundedCall, result: Array) -> tuple[Array, Array]:
    """The greatest product on the way, and what those lose that are less than normal numbers.

    What is left of a product that is off by half of the least number is the whole by it.
    """
    factors = np.moveaxis(sizes_of(call["self"]), call["dim"], -1)
    whole = np.prod(factors, -1, keepdims=True)
    info = ml_dtypes.finfo(result.dtype)
    least, normal = float(info.smallest_subnormal), float(info.smallest_normal)
    reach, lost = np.zeros(factors.shape[:-1]), np.zeros(factors.shape[:-1])
    for products in _orders(factors):
        reach = np.maximum(reach, np.max(products, -1, initial=0))
        is_less = (products < normal) & (products > 0)
        parts = np.where(is_less, least / 2 * whole / products, 0)
        lost = np.maximum(lost, np.sum(parts, -1))
    return reach.reshape(result.shape), lost.reshape(result.shape)


def _orders(factors: Array) -> Iterator[Array]:
    """Yield the products on the way, for each way to multiply a row."""
    yield np.cumprod(factors, -1)
    count = factors.shape[-1]
    for lanes in _LANES:
        if lanes > count:
            return
        kept = count // lanes * lanes
        rows = factors[..., :kept].reshape(*factors.shape[:-1], -1, lanes)
        steps = np.cumprod(rows, -2)
        ends = np.concatenate([steps[..., -1, :], factors[..., kept:]], -1)
        joined = [np.cumprod(np.sort(turn(ends, 1), -1), -1) for turn in (np.maximum, np.minimum)]
        yield np.concatenate([steps.reshape(*factors.shape[:-1], -1), *joined], -1)
